/* The products and the solve of every instruction set this machine has, against double. */
#include "kernel_tables.h"

#include "numeric.h"

/* What product_rows says, in double. */
static void product_in_double(const gdn_product *p, float *out)
{
    for (int i = 0; i < p->rows && i < p->out_rows; i++) {
        for (int c = 0; c < p->cols; c++) {
            double sum = 0.0;
            for (int j = 0; j < p->depth; j++) {
                const ptrdiff_t at = p->a_packed_keys ? j / B * p->a_block + i * GDN_PAIR + j % B
                                                      : j * p->lda + i / B * p->a_block + i % B;
                sum += (double)p->a[at] * (double)p->b[j * GDN_PANEL + c];
            }
            sum *= p->scale ? (double)p->scale[i] : 1.0;
            for (int j = 0; p->lower && j <= i && j < p->lower_depth; j++) {
                sum += (double)p->lower[j * p->lower_ld + i / B * p->lower_block + i % B] *
                       (double)p->lower_b[j * GDN_PANEL + c];
            }
            if (p->add && i < p->add_rows) {
                sum += (p->add_scale ? (double)p->add_scale[i * p->add_scale_step] : 1.0) *
                       (double)gdn_load_element(p->add, p->add_dtype, i * p->ldadd + c);
            }
            gdn_store_element(out, p->out_dtype, i * p->ldo + c, (float)sum);
        }
    }
}

static float a[BIG], b[BIG], lower[BIG], lower_b[BIG], row_scale[C], add_scale[C], add[BIG], out[BIG], wanted[BIG];

static void products_of_every_shape(void **state)
{
    (void)state;
    const int row_counts[] = {8, 16, 24, 32, 40, 64}, depths[] = {0, 1, 2, 7, 16, 33, 80};
    fill(a, BIG);
    fill(b, BIG);
    fill(add, BIG);
    const float factor = 0.75f;
    for (int t = 0; t < num_tables; t++) {
        for (size_t r = 0; r < COUNT_OF(row_counts); r++) {
            for (size_t d = 0; d < COUNT_OF(depths); d++) {
                for (int cols = 16; cols <= 32; cols += 16) {
                    for (int with_add = 0; with_add < 2; with_add++) {
                        gdn_product p = {
                            .rows = row_counts[r],
                            .cols = cols,
                            .depth = depths[d],
                            .a = a,
                            .lda = 70,
                            .a_block = B,
                            .b = b,
                            .add_dtype = GDN_DTYPE_F32,
                            .add_rows = row_counts[r],
                            .add = with_add ? add : NULL,
                            .ldadd = 35,
                            .add_scale = &factor,
                            .out_dtype = GDN_DTYPE_F32,
                            .out_rows = row_counts[r],
                            .out = out,
                            .ldo = 33,
                        };
                        memset(out, 0xff, sizeof(out));
                        memset(wanted, 0xff, sizeof(wanted));
                        tables[t]->product(&p, 1);
                        product_in_double(&p, wanted);
                        for (int i = 0; i < p.rows; i++) {
                            require_close("product", tables[t], out + i * 33, wanted + i * 33, cols, 1e-5);
                            /* and nothing beside its columns */
                            require_same("product", tables[t], out + i * 33 + cols, wanted + i * 33 + cols,
                                         (size_t)(33 - cols) * sizeof(float));
                        }
                    }
                }
            }
        }
    }
}

/* The left operand is the packed array of a chunk's keys, read across: depth runs over tokens, in blocks. */
static void products_of_packed_keys(void **state)
{
    (void)state;
    enum { K = 48 };
    const float factor = 0.75f;
    fill(a, BIG);
    fill(b, BIG);
    fill(add, BIG);
    for (int t = 0; t < num_tables; t++) {
        for (int i = 1; i <= C + 4; i++) {
            const bool panels = i > C; /* an update of panels by one block, scaled or not */
            const int depth = panels ? B : i, ld = panels ? GDN_PANEL : 33;
            gdn_product p = {
                .rows = K,
                .cols = i % 2 ? 32 : 16,
                .depth = depth,
                .a = a,
                .a_block = K * GDN_PAIR,
                .a_packed_keys = true,
                .b = b,
                .add_dtype = GDN_DTYPE_F32,
                .add_rows = K,
                .add = add,
                .ldadd = panels ? ld : 35,
                .add_scale = i % 4 < 2 ? &factor : NULL,
                .out_dtype = GDN_DTYPE_F32,
                .out_rows = K,
                .out = out,
                .ldo = ld,
                .ask = {{add, 7, 64, 140}, {add, 1, 4, 0}},
            };
            memset(out, 0xff, sizeof(out));
            memset(wanted, 0xff, sizeof(wanted));
            tables[t]->product(&p, 1);
            product_in_double(&p, wanted);
            for (int row = 0; row < K; row++) {
                require_close("product of keys", tables[t], out + row * ld, wanted + row * ld, p.cols, 1e-5);
            }
        }
    }
}

static void products_of_the_callers_rows(void **state)
{
    (void)state;
    const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    enum { BLOCK = 50 * GDN_PAIR, K = 48, LD = 40 };
    fill(a, BIG);
    fill(b, BIG);
    fill(lower, BIG);
    fill(lower_b, BIG);
    fill(row_scale, C);
    fill(add_scale, C);
    for (int i = 0; i < C; i++) { /* what the tiles read above the diagonal must be zero */
        for (int j = i + 1; j < C; j++) {
            lower[j * GDN_PAIR + i / B * BLOCK + i % B] = 0.0f;
        }
    }
    for (int t = 0; t < num_tables; t++) {
        for (int n = 1; n <= 40; n++) {
            const gdn_dtype dtype = dtypes[n % 3];
            for (int i = 0; i < BIG / 2; i++) {
                gdn_store_element(add, dtype, i, (float)random_normal(&source));
            }
            for (int i = n * LD; i < (n + 8) * LD; i++) { /* rows past the end are another sequence's: never read */
                gdn_store_element(add, dtype, i, NAN);
            }
            gdn_product p = {
                .rows = (n + 7) / 8 * 8,
                .cols = n % 2 ? 32 : 16,
                .depth = K,
                .a = a,
                .lda = GDN_PAIR,
                .a_block = K * GDN_PAIR,
                .b = b,
                .scale = row_scale,
                .lower_depth = n,
                .lower = n % 4 == 1 ? NULL : lower,
                .lower_ld = GDN_PAIR,
                .lower_block = BLOCK,
                .lower_b = lower_b,
                .add_dtype = dtype,
                .add_rows = n,
                .add = n % 5 == 1 ? NULL : add,
                .ldadd = LD,
                .add_scale = add_scale,
                .add_scale_step = 1,
                .out_dtype = dtype,
                .out_rows = n,
                .out = out,
                .ldo = LD,
                .ask = {{add, n, 96, LD * 4}, {b, 3, 4, 4}},
            };
            memset(out, 0xff, sizeof(out));
            memset(wanted, 0xff, sizeof(wanted));
            tables[t]->product_rows(&p, 1);
            product_in_double(&p, wanted);
            for (int i = 0; i < p.rows * LD; i++) {
                const double x = (double)gdn_load_element(out, dtype, i),
                             y = (double)gdn_load_element(wanted, dtype, i);
                const double ulp = dtype == GDN_DTYPE_F32 ? 1e-5 : dtype == GDN_DTYPE_BF16 ? 8e-3 : 1e-3;
                if (isnan(x) != isnan(y) || fabs(x - y) > ulp * (10.0 + fabs(y))) {
                    fail_msg("%s.product_rows: n %d, element %d is %g, must be %g", tables[t]->name, n, i, x, y);
                }
            }
        }
    }
}

/* A row's bits must not depend on how many rows there are, nor a column's on how many columns, nor on other products of the
 * call: prefixes, tails and V blocks rely on it. */
static void bits_depend_on_no_neighbour(void **state)
{
    (void)state;
    fill(a, BIG);
    fill(b, BIG);
    for (int t = 0; t < num_tables; t++) {
        gdn_product p = {
            .rows = 64,
            .cols = 32,
            .depth = 77,
            .a = a,
            .lda = 64,
            .a_block = B,
            .b = b,
            .out_dtype = GDN_DTYPE_F32,
            .out_rows = 64,
            .out = wanted,
            .ldo = 32,
        };
        tables[t]->product(&p, 1);
        p.out = out;
        for (p.rows = 8; p.rows < 64; p.rows += 8) {
            p.out_rows = p.rows;
            tables[t]->product(&p, 1);
            require_same("product", tables[t], out, wanted, (size_t)p.rows * 32 * sizeof(float));
            p.cols = 16;
            p.b = b + 16;
            tables[t]->product(&p, 1);
            for (int i = 0; i < p.rows; i++) {
                require_same("product", tables[t], out + i * 32, wanted + i * 32 + 16, 16 * sizeof(float));
            }
            p.cols = 32;
            p.b = b;
        }
        gdn_product two[2] = {p, p};
        two[0].rows = two[0].out_rows = 24;
        two[1].out_rows = 64;
        two[1].out = out + 24 * 32;
        tables[t]->product(two, 2);
        require_same("product", tables[t], out, wanted, 24 * 32 * sizeof(float));
        require_same("product", tables[t], out + 24 * 32, wanted, 64 * 32 * sizeof(float));
    }
}

static void solve_is_forward_substitution(void **state)
{
    (void)state;
    enum { BLOCK = C * GDN_PAIR };
    static float scaled[C * GDN_PANEL], scaled_wanted[C * GDN_PANEL];
    for (int t = 0; t < num_tables; t++) {
        for (int rows = 8; rows <= C; rows += 8) {
            const int cols = rows % 16 ? 16 : 32;
            fill(lower, BIG);
            for (int i = 0; i < BIG; i++) {
                lower[i] *= 0.1f;
            }
            fill(out, BIG);
            fill(row_scale, C);
            double x[C][32];
            for (int i = 0; i < rows; i++) {
                for (int c = 0; c < cols; c++) {
                    x[i][c] = (double)out[i * GDN_PANEL + c];
                    for (int j = 0; j < i; j++) {
                        x[i][c] += (double)lower[i / B * BLOCK + j * GDN_PAIR + i % B] * x[j][c];
                    }
                    wanted[i * GDN_PANEL + c] = (float)x[i][c];
                    scaled_wanted[i * GDN_PANEL + c] = (float)((double)row_scale[i] * x[i][c]);
                }
            }
            tables[t]->solve(rows, cols, lower, BLOCK, out, row_scale, scaled);
            for (int i = 0; i < rows; i++) {
                const int at = i * GDN_PANEL;
                require_close("solve", tables[t], out + at, wanted + at, cols, 1e-5);
                require_close("solve, scaled", tables[t], scaled + at, scaled_wanted + at, cols, 1e-5);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_every_shape),       cmocka_unit_test(products_of_packed_keys),
        cmocka_unit_test(products_of_the_callers_rows),  cmocka_unit_test(bits_depend_on_no_neighbour),
        cmocka_unit_test(solve_is_forward_substitution),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
