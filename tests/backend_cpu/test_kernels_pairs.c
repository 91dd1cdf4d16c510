/* The kernels of rounded products, AVX512-BF16 and tiles, where this machine has them: pairs of bfloat16 against the rounding
 * of core, products and the solve against double. */
#include "kernel_tables.h"

#include "numeric.h"

enum { LD = 50, MAX_DEPTH = 64 };

static const gdn_cpu_kernels *pair_tables[2];
static int num_pair_tables;

static int find_pair_tables(void **state)
{
    const char *reason = "";
    find_tables(state);
#if defined(GDN_CPU_HAVE_AVX512_BF16)
    if (gdn_cpu_has_avx512_bf16(&reason)) {
        pair_tables[num_pair_tables++] = &gdn_cpu_kernels_avx512_bf16;
    }
#endif
#if defined(GDN_CPU_HAVE_AMX_BF16)
    if (gdn_cpu_has_amx_bf16(&reason)) {
        pair_tables[num_pair_tables++] = &gdn_cpu_kernels_amx_bf16;
        gdn_cpu_kernels_amx_bf16.thread_begin();
    }
#endif
    if (num_pair_tables < 2) {
        printf("not every kernel of pairs was tested: %s\n", reason);
    }
    return 0;
}

/* `low` in the lower half. */
static float word_of(float low, float high)
{
    return gdn_float_of_bits(gdn_bf16_from_float(low) | (uint32_t)gdn_bf16_from_float(high) << 16);
}

static double half_of(float word, int which)
{
    return (double)gdn_float_from_bf16((uint16_t)(gdn_bits_of_float(word) >> 16 * which));
}

static void fill_words(float *x, int count)
{
    for (int i = 0; i < count; i++) {
        const float low = (float)random_normal(&source);
        x[i] = word_of(low, (float)random_normal(&source));
    }
}

static float src[C * LD], scaled[C * LD], got[BIG], wanted[BIG], words[BIG];

/* Odd counts end with a pair whose second half is zero, and nothing is written beside the columns. */
static void pairs_of_rows(void **state)
{
    (void)state;
    fill(src, C * LD);
    for (int t = 0; t < num_pair_tables; t++) {
        for (int rows = 1; rows <= 21; rows++) {
            const int cols = rows % 2 ? 48 : 16;
            memset(got, 0xff, sizeof(got));
            memset(wanted, 0xff, sizeof(wanted));
            pair_tables[t]->pair_rows(rows, cols, src, LD, got, LD);
            for (int j = 0; j < rows; j += 2) {
                for (int c = 0; c < cols; c++) {
                    wanted[j / 2 * LD + c] = word_of(src[j * LD + c], j + 1 < rows ? src[(j + 1) * LD + c] : 0.0f);
                }
            }
            require_same("pair_rows", pair_tables[t], got, wanted, sizeof(wanted));
        }
    }
}

/* Scaled and rounded along the rows, then paired across them: what pair_rows makes of the scaled rows at once. */
static void words_of_tiles(void **state)
{
    (void)state;
    enum { COLS = 32 };
    static float scale[C];
    fill(src, C * LD);
    fill(scale, C);
    for (int t = 0; t < num_pair_tables; t++) {
        for (int rows = 1; pair_tables[t]->left_row_major && rows <= 21; rows++) {
            for (int i = 0; i < rows * LD; i++) {
                scaled[i] = scale[i / LD] * src[i];
            }
            pair_tables[t]->round_rows(rows, COLS, src, LD, scale, words, COLS / 2);
            for (int i = 0; i < rows * COLS / 2; i++) {
                const float *x = scaled + i / (COLS / 2) * LD + i % (COLS / 2) * 2;
                wanted[i] = word_of(x[0], x[1]);
            }
            require_same("round_rows", pair_tables[t], words, wanted, (size_t)(rows * COLS / 2) * sizeof(float));
            pair_tables[t]->pair_words(rows, COLS, words, COLS / 2, got, COLS);
            pair_tables[t]->pair_rows(rows, COLS, scaled, LD, wanted, COLS);
            require_same("pair_words", pair_tables[t], got, wanted, (size_t)((rows + 1) / 2 * COLS) * sizeof(float));
        }
    }
}

/* What product_rows says of words, in double, for float32 rows. */
static void product_in_double(const gdn_product *p, bool left_row_major, float *out)
{
    const ptrdiff_t across = left_row_major ? p->lda : 1, along = left_row_major ? 1 : p->lda;
    const ptrdiff_t lower_across = left_row_major ? p->lower_ld : 1, lower_along = left_row_major ? 1 : p->lower_ld;
    for (int i = 0; i < p->rows && i < p->out_rows; i++) {
        for (int c = 0; c < p->cols; c++) {
            double sum = 0.0;
            for (int j = 0; j < 2 * p->depth; j++) {
                sum += half_of(p->a[j / 2 * along + i / B * p->a_block + i % B * across], j % 2) *
                       half_of(p->b[j / 2 * GDN_PANEL + c], j % 2);
            }
            sum *= p->scale ? (double)p->scale[i] : 1.0;
            for (int j = 0; p->lower && j <= i && j < p->lower_depth; j++) {
                sum += half_of(p->lower[j / 2 * lower_along + i / B * p->lower_block + i % B * lower_across], j % 2) *
                       half_of(p->lower_b[j / 2 * GDN_PANEL + c], j % 2);
            }
            if (p->add && i < p->add_rows) {
                sum += (p->add_scale ? (double)p->add_scale[i * p->add_scale_step] : 1.0) *
                       (double)((const float *)p->add)[i * p->ldadd + c];
            }
            out[i * p->ldo + c] = (float)sum;
        }
    }
}

static float a[C * MAX_DEPTH], b[MAX_DEPTH * GDN_PANEL], lower[C * C / 2], lower_b[C / 2 * GDN_PANEL], add[C * LD];
static float row_scale[C], add_scale[C];

/* Words of a lower triangle, in the layout of the table: zero above the diagonal. */
static void fill_lower(bool left_row_major)
{
    for (int i = 0; i < C; i++) {
        for (int j = 0; j < C; j += 2) {
            const float low = j <= i ? (float)random_normal(&source) : 0.0f;
            const float high = j + 1 <= i ? (float)random_normal(&source) : 0.0f;
            lower[left_row_major ? i * (C / 2) + j / 2 : j / 2 * C + i] = word_of(low, high);
        }
    }
}

static void products_of_words(void **state)
{
    (void)state;
    fill_words(a, C * MAX_DEPTH);
    fill_words(b, MAX_DEPTH * GDN_PANEL);
    fill_words(lower_b, C / 2 * GDN_PANEL);
    fill(add, C * LD);
    fill(row_scale, C);
    fill(add_scale, C);
    for (int t = 0; t < num_pair_tables; t++) {
        const bool tiles = pair_tables[t]->left_row_major;
        fill_lower(tiles);
        for (int n = 1; n <= C; n++) {
            gdn_product p = {
                .rows = (n + 7) / 8 * 8,
                .cols = n % 2 ? 32 : 16,
                .depth = n % 3 ? MAX_DEPTH : 16,
                .a = a,
                .lda = tiles ? MAX_DEPTH : C,
                .a_block = tiles ? B * MAX_DEPTH : B,
                .b = b,
                .scale = n % 4 < 2 ? row_scale : NULL,
                .lower_depth = n,
                .lower = n % 4 == 2 || (n % 4 == 1 && !tiles) ? lower : NULL,
                .lower_ld = tiles ? C / 2 : C,
                .lower_block = tiles ? B * C / 2 : B,
                .lower_b = lower_b,
                .add_dtype = GDN_DTYPE_F32,
                .add_rows = n,
                .add = n % 5 < 2 ? NULL : add,
                .ldadd = LD,
                .add_scale = add_scale,
                .add_scale_step = 1,
                .out_dtype = GDN_DTYPE_F32,
                .out_rows = n,
                .out = got,
                .ldo = LD,
                .ask = {{add, n, 96, LD * 4}, {b, 3, 4, 4}},
            };
            memset(got, 0xff, sizeof(got));
            memset(wanted, 0xff, sizeof(wanted));
            pair_tables[t]->product_rows(&p, 1);
            product_in_double(&p, tiles, wanted);
            for (int i = 0; i < n; i++) {
                require_close("product_rows", pair_tables[t], got + i * LD, wanted + i * LD, p.cols, 1e-5);
                require_same("product_rows, beside its columns", pair_tables[t], got + i * LD + p.cols,
                             wanted + i * LD + p.cols, (size_t)(LD - p.cols) * sizeof(float));
            }
            require_same("product_rows, past its rows", pair_tables[t], got + n * LD, wanted + n * LD,
                         sizeof(got) - (size_t)(n * LD) * sizeof(float));
        }
    }
}

/* The ends of some products are worked on beside the starts of others. */
static void products_in_one_call_have_the_bits_of_products_alone(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    const float factor = 0.75f;
    fill_words(a, C * MAX_DEPTH);
    fill_words(b, MAX_DEPTH * GDN_PANEL);
    fill(add, C * LD);
    for (int t = 0; t < num_pair_tables; t++) {
        const bool tiles = pair_tables[t]->left_row_major;
        gdn_product products[COUNT];
        memset(got, 0xff, sizeof(got));
        memset(wanted, 0xff, sizeof(wanted));
        for (int i = 0; i < COUNT; i++) {
            products[i] = (gdn_product){
                .rows = (C - 8 * i) / 8 * 8,
                .cols = i % 2 ? 16 : 32,
                .depth = 16 * (1 + i % 3),
                .a = a,
                .lda = tiles ? MAX_DEPTH : C,
                .a_block = tiles ? B * MAX_DEPTH : B,
                .b = b,
                .add_dtype = GDN_DTYPE_F32,
                .add_rows = C,
                .add = i == 2 ? NULL : add,
                .ldadd = LD,
                .add_scale = &factor,
                .out_dtype = GDN_DTYPE_F32,
                .out_rows = C - 8 * i,
                .out = wanted + i * C * LD,
                .ldo = LD,
            };
            pair_tables[t]->product(&products[i], 1);
            products[i].out = got + i * C * LD;
        }
        pair_tables[t]->product(products, COUNT);
        require_same("product of several", pair_tables[t], got, wanted, sizeof(wanted));
    }
}

/* Without a scale tiles take up what is there, a depth of one step by a loop of its own. */
static void sums_added_to_what_is_there(void **state)
{
    (void)state;
    fill_words(a, C * MAX_DEPTH);
    fill_words(b, MAX_DEPTH * GDN_PANEL);
    for (int t = 0; t < num_pair_tables; t++) {
        const bool tiles = pair_tables[t]->left_row_major;
        for (int i = 0; i < 16; i++) {
            gdn_product p = {
                .rows = 16 * (1 + i % 4),
                .cols = i % 3 ? 32 : 16,
                .depth = 16 * (1 + i / 8),
                .a = a,
                .lda = tiles ? MAX_DEPTH : C,
                .a_block = tiles ? B * MAX_DEPTH : B,
                .b = b,
                .add_dtype = GDN_DTYPE_F32,
                .add_rows = C,
                .add = got,
                .ldadd = LD,
                .out_dtype = GDN_DTYPE_F32,
                .out_rows = C,
                .out = got,
                .ldo = LD,
                .ask = {{b, 3, 4, 4}},
            };
            fill(got, BIG);
            memcpy(wanted, got, sizeof(got));
            product_in_double(&p, tiles, wanted);
            pair_tables[t]->product(&p, 1);
            require_close("product added in place", pair_tables[t], got, wanted, BIG, 1e-5);
        }
    }
}

/* Scale and add applied by hand, then solve_pairs of each. */
static void solve_finishes_sums(void **state)
{
    (void)state;
    enum { BLOCK = C * GDN_PAIR, PANELS = 3, FLOATS = C * GDN_PANEL };
    static float n[C * C * 2], rest[C], x[2][PANELS][FLOATS], y[2][PANELS][FLOATS], pairs[2][PANELS][FLOATS];
    fill(add, C * LD);
    fill(row_scale, C);
    fill(add_scale, C);
    fill(rest, C);
    for (int t = 0; t < num_pair_tables; t++) {
        for (int rows = 8; pair_tables[t]->solve_sums && rows <= C; rows += 8) {
            gdn_product p[PANELS];
            float *to_y[PANELS], *to_pairs[PANELS];
            fill(n, C * C * 2);
            for (int i = 0; i < C * C * 2; i++) {
                n[i] *= 0.1f;
            }
            memset(y, 0, sizeof(y));
            memset(pairs, 0, sizeof(pairs));
            for (int m = 0; m < PANELS; m++) {
                fill(x[0][m], FLOATS);
                memcpy(x[1][m], x[0][m], sizeof(x[0][m]));
                to_y[m] = y[0][m];
                to_pairs[m] = pairs[0][m];
                p[m] = (gdn_product){
                    .rows = rows,
                    .cols = m == 2 ? 16 : 32,
                    .scale = row_scale,
                    .add_dtype = GDN_DTYPE_F32,
                    .add_rows = rows - 3,
                    .add = m == 1 && rows % 16 ? NULL : add + m,
                    .ldadd = LD,
                    .add_scale = add_scale,
                    .add_scale_step = 1,
                    .out = x[0][m],
                    .ldo = GDN_PANEL,
                };
                for (int i = 0; i < rows * GDN_PANEL; i++) {
                    const int row = i / GDN_PANEL, col = i % GDN_PANEL;
                    if (col < p[m].cols) {
                        x[1][m][i] *= row_scale[row];
                        x[1][m][i] = p[m].add && row < rows - 3
                                         ? fmaf(add_scale[row], add[m + row * LD + col], x[1][m][i])
                                         : x[1][m][i];
                    }
                }
                pair_tables[t]->solve_pairs(rows, p[m].cols, n, BLOCK, x[1][m], rest, y[1][m], pairs[1][m]);
            }
            pair_tables[t]->solve_sums(p, PANELS, n, BLOCK, rest, to_y, to_pairs);
            require_same("solve_sums, x", pair_tables[t], x[0], x[1], sizeof(x[0]));
            require_same("solve_sums, scaled", pair_tables[t], y[0], y[1], sizeof(y[0]));
            require_same("solve_sums", pair_tables[t], pairs[0], pairs[1], sizeof(pairs[0]));
        }
    }
}

/* solve, then pair_rows of both results. */
static void solve_leaves_pairs(void **state)
{
    (void)state;
    enum { BLOCK = C * GDN_PAIR };
    static float n[C * C * 2], x[2][C * GDN_PANEL], y[C * GDN_PANEL], pairs[2][C * GDN_PANEL], alone[C * GDN_PANEL];
    for (int t = 0; t < num_pair_tables; t++) {
        for (int rows = 8; rows <= C; rows += 8) {
            const int cols = rows % 16 ? 16 : 32;
            const size_t bytes = (size_t)(rows / 2 * GDN_PANEL) * sizeof(float);
            fill(n, C * C * 2);
            for (int i = 0; i < C * C * 2; i++) {
                n[i] *= 0.1f;
            }
            fill(x[0], C * GDN_PANEL);
            fill(row_scale, C);
            memcpy(x[1], x[0], sizeof(x[0]));
            memset(pairs, 0, sizeof(pairs));
            pair_tables[t]->solve(rows, cols, n, BLOCK, x[0], row_scale, y);
            pair_tables[t]->solve_pairs(rows, cols, n, BLOCK, x[1], row_scale, pairs[0], pairs[1]);
            require_same("solve_pairs, x", pair_tables[t], x[1], x[0], sizeof(x[0]));
            memset(alone, 0, sizeof(alone));
            pair_tables[t]->pair_rows(rows, cols, y, GDN_PANEL, alone, GDN_PANEL);
            require_same("solve_pairs, scaled", pair_tables[t], pairs[0], alone, bytes);
            pair_tables[t]->pair_rows(rows, cols, x[0], GDN_PANEL, alone, GDN_PANEL);
            require_same("solve_pairs", pair_tables[t], pairs[1], alone, bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_rows),       cmocka_unit_test(words_of_tiles),
        cmocka_unit_test(products_of_words),   cmocka_unit_test(products_in_one_call_have_the_bits_of_products_alone),
        cmocka_unit_test(solve_leaves_pairs),  cmocka_unit_test(sums_added_to_what_is_there),
        cmocka_unit_test(solve_finishes_sums),
    };
    return cmocka_run_group_tests(tests, find_pair_tables, NULL);
}
