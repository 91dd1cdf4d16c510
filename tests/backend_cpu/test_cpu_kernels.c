/* The micro-kernels of every instruction set this machine has, against their plain twins and against double. */
#include "check.h"
#include "random.h"

#include "cpu_isa.h"
#include "kernels/kernels.h"
#include "numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TABLES = 3, C = GDN_MAX_CHUNK, B = GDN_TOKEN_BLOCK, BIG = 64 * 1024 };

static const gdn_cpu_kernels *tables[MAX_TABLES];
static int num_tables;
static const gdn_cpu_kernels *const twin = &gdn_cpu_kernels_scalar;

static int find_tables(void **state)
{
    (void)state;
    tables[num_tables++] = twin;
#if defined(__x86_64__)
    if (gdn_cpu_isa_best() >= GDN_CPU_ISA_AVX2) {
        tables[num_tables++] = &gdn_cpu_kernels_avx2;
    }
    if (gdn_cpu_isa_best() >= GDN_CPU_ISA_AVX512) {
        tables[num_tables++] = &gdn_cpu_kernels_avx512;
    }
#elif defined(__aarch64__)
    tables[num_tables++] = &gdn_cpu_kernels_neon;
#endif
    return 0;
}

static test_random source;

static void fill(float *x, int count)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)random_normal(&source);
    }
}

/* |x - y| within `bound` of 1 + the largest |y|. */
static void require_close(const char *what, const gdn_cpu_kernels *kernels, const float *x, const float *y, int count,
                          double bound)
{
    double largest = 1.0;
    for (int i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)y[i]));
    }
    for (int i = 0; i < count; i++) {
        if (!(fabs((double)x[i] - (double)y[i]) <= bound * largest)) {
            fail_msg("%s.%s: element %d is %.9g, must be %.9g", kernels->name, what, i, (double)x[i], (double)y[i]);
        }
    }
}

static void require_same(const char *what, const gdn_cpu_kernels *kernels, const void *x, const void *y, size_t bytes)
{
    if (memcmp(x, y, bytes) != 0) {
        fail_msg("%s.%s: the bits differ", kernels->name, what);
    }
}

/* ------------------------------------------------------------------------------------- Products */

/* What product_rows says, in double. */
static void product_in_double(const gdn_product *p, float *out)
{
    for (int i = 0; i < p->rows && i < p->out_rows; i++) {
        for (int c = 0; c < p->cols; c++) {
            double sum = 0.0;
            for (int j = 0; j < p->depth; j++) {
                sum += (double)p->a[j * p->lda + i / B * p->a_block + i % B] * (double)p->b[j * p->ldb + c];
            }
            sum *= p->scale ? (double)p->scale[i] : 1.0;
            for (int j = 0; p->lower && j <= i && j < p->lower_depth; j++) {
                sum += (double)p->lower[j * p->lower_ld + i / B * p->lower_block + i % B] *
                       (double)p->lower_b[j * GDN_PANEL + c];
            }
            if (p->add && i < p->add_rows) {
                sum += (double)p->add_scale[i * p->add_scale_step] *
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
                            .ldb = 37,
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
                        tables[t]->product(&p);
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
                .ldb = GDN_PANEL,
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
                .ask = add,
                .ask_rows = n,
                .ask_bytes = 96,
                .ask_step = LD * 4,
            };
            memset(out, 0xff, sizeof(out));
            memset(wanted, 0xff, sizeof(wanted));
            tables[t]->product_rows(&p);
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

/* A row's bits must not depend on how many rows there are, nor a column's on how many columns: prefixes, tails and
 * V blocks rely on it. */
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
            .ldb = 32,
            .out_dtype = GDN_DTYPE_F32,
            .out_rows = 64,
            .out = wanted,
            .ldo = 32,
        };
        tables[t]->product(&p);
        p.out = out;
        for (p.rows = 8; p.rows < 64; p.rows += 8) {
            p.out_rows = p.rows;
            tables[t]->product(&p);
            require_same("product", tables[t], out, wanted, (size_t)p.rows * 32 * sizeof(float));
            p.cols = 16;
            p.b = b + 16;
            tables[t]->product(&p);
            for (int i = 0; i < p.rows; i++) {
                require_same("product", tables[t], out + i * 32, wanted + i * 32 + 16, 16 * sizeof(float));
            }
            p.cols = 32;
            p.b = b;
        }
    }
}

static void solve_is_forward_substitution(void **state)
{
    (void)state;
    enum { BLOCK = C * GDN_PAIR };
    for (int t = 0; t < num_tables; t++) {
        for (int rows = 8; rows <= C; rows += 8) {
            const int cols = rows % 16 ? 16 : 32;
            fill(lower, BIG);
            for (int i = 0; i < BIG; i++) {
                lower[i] *= 0.1f;
            }
            fill(out, BIG);
            double x[C][32];
            for (int i = 0; i < rows; i++) {
                for (int c = 0; c < cols; c++) {
                    x[i][c] = (double)out[i * 33 + c];
                    for (int j = 0; j < i; j++) {
                        x[i][c] += (double)lower[i / B * BLOCK + j * GDN_PAIR + i % B] * x[j][c];
                    }
                    wanted[i * 33 + c] = (float)x[i][c];
                }
            }
            tables[t]->solve(rows, cols, lower, BLOCK, out, 33);
            for (int i = 0; i < rows; i++) {
                require_close("solve", tables[t], out + i * 33, wanted + i * 33, cols, 1e-5);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------- Elementwise */

static void masks_of_mild_and_violent_decay(void **state)
{
    (void)state;
    const double decays[] = {0.0, -1e-4, -0.05, -1.4, -5.93, -20.0, -104.0};
    float high[C], low[C], beta[C];
    fill(a, C * GDN_PAIR);
    for (int t = 0; t < num_tables; t++) {
        for (size_t d = 0; d < COUNT_OF(decays); d++) {
            double G[C], sum = 0.0;
            for (int i = 0; i < C; i++) {
                sum += i == 21 ? -104.0 : decays[d] * random_uniform(&source);
                G[i] = sum;
                high[i] = (float)sum;
                low[i] = (float)(sum - (double)high[i]);
                beta[i] = (float)random_uniform(&source);
            }
            for (int first = 0; first < C; first += B) {
                const int rows = first + B;
                tables[t]->decay_mask(rows, first, high, low, beta, a, out);
                for (int j = 0; j < rows; j++) {
                    for (int c = 0; c < B; c++) {
                        const int i = first + c, at = j * GDN_PAIR + c;
                        const double D = i >= j ? exp(G[i] - G[j]) : 0.0;
                        wanted[at] = i > j ? (float)(-(double)beta[i] * D * (double)a[at]) : 0.0f;
                        wanted[at + B] = i >= j ? (float)(D * (double)a[at + B]) : 0.0f;
                        /* relative, to x's own rounding: e^-60 must be right, too, down to where float32 flushes */
                        const double x = i >= j ? G[i] - G[j] : 0.0;
                        const double bound = (1e-6 - 1.2e-7 * x) * fabs((double)wanted[at + B]) + 1e-37;
                        if (!(fabs((double)out[at + B] - (double)wanted[at + B]) <= bound)) {
                            fail_msg("%s.decay_mask: P[%d][%d] is %g, must be %g", tables[t]->name, i, j,
                                     (double)out[at + B], (double)wanted[at + B]);
                        }
                    }
                }
                require_close("decay_mask", tables[t], out, wanted, rows * GDN_PAIR, 2e-6);
            }
        }
    }
}

static void exp_over_its_range(void **state)
{
    (void)state;
    float x[BIG / 16], y[BIG / 16];
    const int count = (int)COUNT_OF(x);
    for (int t = 0; t < num_tables; t++) {
        for (int i = 0; i < count; i++) {
            x[i] = i < 8 ? (float[]){0.0f, -0.0f, -1e-38f, -87.0f, -88.5f, -104.0f, -1e30f, -1e-7f}[i]
                         : (float)(-90.0 * random_uniform(&source));
        }
        tables[t]->exp(count, x, y);
        for (int i = 0; i < count; i++) {
            const double e = exp((double)x[i]);
            assert_true(fabs((double)y[i] - e) <= 2.5e-7 * e + 1.3e-38);
        }
        for (int i = 0; i < B; i++) {
            x[i] = NAN;
        }
        tables[t]->exp(B, x, y);
        assert_true(isnan(y[0]) && isnan(y[B - 1]));
    }
}

/* Values whose rounding, range or payload is special, among random ones. */
static void conversions_are_exact(void **state)
{
    (void)state;
    const uint32_t special[] = {0x00000000, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                                0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x477fefff, 0x477ff000, 0x38800000,
                                0x387fffff, 0x33000000, 0x33000001, 0x33800000, 0x3f801000, 0x3f803000, 0xff7f8000};
    float x[512];
    uint16_t narrow[512], narrow_wanted[512];
    for (int i = 0; i < 512; i++) {
        x[i] = i < (int)COUNT_OF(special) ? gdn_float_of_bits(special[i])
                                          : (float)(random_normal(&source) * exp(20.0 * random_normal(&source)));
    }
    const gdn_dtype dtypes[] = {GDN_DTYPE_BF16, GDN_DTYPE_F16};
    for (int t = 0; t < num_tables; t++) {
        for (int d = 0; d < 2; d++) {
            tables[t]->store_rows(dtypes[d], 8, 64, x, 64, narrow, 64);
            twin->store_rows(dtypes[d], 8, 64, x, 64, narrow_wanted, 64);
            for (int i = 0; i < 512; i++) {
                const float back = gdn_load_element(narrow, dtypes[d], i);
                if (isnan(x[i]) ? !isnan(back) : narrow[i] != narrow_wanted[i]) {
                    fail_msg("%s.store_rows %s: %a becomes %04x, must be %04x", tables[t]->name,
                             gdn_dtype_name(dtypes[d]), (double)x[i], narrow[i], narrow_wanted[i]);
                }
            }
            for (uint32_t first = 0; first < 65536; first += 512) { /* every value there is */
                for (int i = 0; i < 512; i++) {
                    narrow[i] = (uint16_t)(first + (uint32_t)i);
                }
                tables[t]->load_rows(dtypes[d], 4, 128, narrow, 128, out, 128);
                twin->load_rows(dtypes[d], 4, 128, narrow, 128, wanted, 128);
                for (int i = 0; i < 512; i++) {
                    assert_true(isnan(wanted[i]) ? isnan(out[i])
                                                 : gdn_bits_of_float(out[i]) == gdn_bits_of_float(wanted[i]));
                }
            }
        }
    }
}

static void transposes_and_norms(void **state)
{
    (void)state;
    fill(a, BIG);
    for (int t = 0; t < num_tables; t++) {
        for (int rows = 16; rows <= 80; rows += 16) {
            for (int cols = 16; cols <= 48; cols += 16) {
                tables[t]->transpose(rows, cols, a, 50, out, 83);
                for (int i = 0; i < rows; i++) {
                    for (int c = 0; c < cols; c++) {
                        assert_true(out[c * 83 + i] == a[i * 50 + c]);
                    }
                }
            }
        }
        for (int norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
            memcpy(out, a, 5 * 96 * sizeof(float));
            memset(out + 2 * 96, 0, 80 * sizeof(float)); /* a zero vector stays one */
            memcpy(wanted, out, 5 * 96 * sizeof(float));
            for (int i = 0; i < 5; i++) {
                double sum = 0.0;
                for (int c = 0; c < 80; c++) {
                    sum += (double)wanted[i * 96 + c] * (double)wanted[i * 96 + c];
                }
                const double factor = norm == GDN_QK_NORM_NONE    ? 0.3
                                      : norm == GDN_QK_NORM_RSQRT ? 0.3 / sqrt(sum + (double)1e-6f)
                                                                  : 0.3 / (sqrt(sum) + (double)1e-6f);
                for (int c = 0; c < 80; c++) {
                    wanted[i * 96 + c] = (float)((double)wanted[i * 96 + c] * factor);
                }
            }
            tables[t]->normalize_rows((gdn_qk_norm)norm, 1e-6f, 0.3f, 5, 80, out, 96);
            require_close("normalize_rows", tables[t], out, wanted, 5 * 96, 1e-6);
        }
    }
}

/* (A_log, a + dt_bias) -> alpha, where a product of the two factors would be 0 * inf or overflow. */
static void gates_where_factors_meet_their_limits(void **state)
{
    (void)state;
    const double table[][3] = {{100, -200, 1}, {90, -90, 0.36787944}, {8, -10, 0.87342596}, {5, 20, 0},
                               {0, -100, 1},   {-INFINITY, 3, 1},     {0, 0, 0.5},          {-3, 30, 0.22456010}};
    for (int t = 0; t < num_tables; t++) {
        for (size_t i = 0; i < COUNT_OF(table); i++) {
            const gdn_gate_terms terms = {.gate_form = GDN_GATE_RAW, .A_log = table[i][0], .dt_bias = 1.0};
            double gate[3] = {table[i][1] - 1.0, table[i][1] - 1.0, table[i][1] - 1.0}, beta[3] = {0.1, 0.2, 0.3};
            tables[t]->gates(&terms, 3, gate, beta, gate, beta);
            for (int j = 0; j < 3; j++) {
                assert_true(fabs(exp(gate[j]) - table[i][2]) < 1e-5 && gate[j] >= -104.0);
            }
        }
        for (double A_log = -200.0; A_log <= 120.0; A_log += 7.3) {
            double gate[C], beta[C];
            for (int i = 0; i < C; i++) {
                gate[i] = i == 0 ? 3e38 : -300.0 + 10.0 * i;
                beta[i] = 2.0 * i - 60.0;
            }
            const gdn_gate_terms terms = {
                .gate_form = GDN_GATE_RAW, .beta_form = GDN_BETA_LOGIT, .A_log = A_log, .beta_scale = 2.0};
            double g[C], sigmoid[C];
            tables[t]->gates(&terms, C, gate, beta, g, sigmoid);
            for (int i = 0; i < C; i++) {
                const double log_softplus = gate[i] < -30.0  ? gate[i]
                                            : gate[i] > 30.0 ? log(gate[i])
                                                             : log(log1p(exp(gate[i])));
                const double exact = fmax(-exp(A_log + log_softplus), -104.0);
                assert_true(fabs(g[i] - exact) <= 2e-8 * fabs(exact) + 1e-300);
                assert_true(fabs(sigmoid[i] - 2.0 / (1.0 + exp(-beta[i]))) < 1e-12);
            }
        }
        const gdn_gate_terms linear = {.gate_form = GDN_GATE_DECAY};
        double alpha[4] = {0.0, 1.0, 0.25, NAN}, one[4] = {1, 1, 1, 1};
        tables[t]->gates(&linear, 4, alpha, one, alpha, one);
        assert_true(alpha[0] == -104.0 && fabs(alpha[1]) < 1e-14 && fabs(alpha[2] - log(0.25)) < 1e-14 &&
                    isnan(alpha[3]));
    }
}

/* ---------------------------------------------------------------------------------------- Decode */

static void decode_steps(void **state)
{
    (void)state;
    for (int t = 0; t < num_tables; t++) {
        for (int K = 16; K <= 144; K += 32) {
            for (int kv = 0; kv < 2; kv++) {
                for (int count = 16; count <= (kv ? 64 : 16); count += 16) {
                    const int rows = kv ? K : count, cols = kv ? count : K;
                    float k[144], q[144], v[64], o[64], o_wanted[64];
                    fill(k, K);
                    fill(q, K);
                    fill(v, count);
                    fill(a, BIG);
                    gdn_decode_step s = {
                        .count = count,
                        .head_k_dim = K,
                        .k = k,
                        .q = q,
                        .alpha = 0.875f,
                        .beta = 0.4f,
                        .qk = twin->dot(K, q, k),
                        .scale = 0.3f,
                        .v = v,
                        .o = o,
                        .src = a,
                        .src_stride = cols + 3,
                        .dst = out,
                        .dst_stride = cols + 5,
                    };
                    memset(out, 0xff, sizeof(out));
                    memset(wanted, 0xff, sizeof(wanted));
                    (kv ? tables[t]->decode_kv : tables[t]->decode_vk)(&s);
                    s.dst = wanted;
                    s.o = o_wanted;
                    (kv ? twin->decode_kv : twin->decode_vk)(&s);
                    require_close("decode o", tables[t], o, o_wanted, count, 2e-6);
                    for (int r = 0; r < rows; r++) {
                        require_close("decode", tables[t], out + r * s.dst_stride, wanted + r * s.dst_stride, cols,
                                      2e-6);
                        require_same("decode", tables[t], out + r * s.dst_stride + cols,
                                     wanted + r * s.dst_stride + cols, 5 * sizeof(float));
                    }
                    /* in place is the same */
                    s.dst = a;
                    s.dst_stride = s.src_stride;
                    (kv ? tables[t]->decode_kv : tables[t]->decode_vk)(&s);
                    for (int r = 0; r < rows; r++) {
                        require_same("decode in place", tables[t], a + r * (cols + 3), out + r * (cols + 5),
                                     (size_t)cols * sizeof(float));
                    }
                }
            }
        }
    }
}

static void a_limit_lowers_and_never_raises(void **state)
{
    (void)state;
    const gdn_cpu_isa best = gdn_cpu_isa_best();
    assert_int_equal(gdn_cpu_isa_within(NULL), best);
    assert_int_equal(gdn_cpu_isa_within("scalar"), GDN_CPU_ISA_SCALAR);
    assert_true(gdn_cpu_isa_within("avx512") <= best);
    assert_true(gdn_cpu_isa_within("avx2") <= GDN_CPU_ISA_AVX2);
    assert_true(gdn_cpu_isa_within("neon") <= GDN_CPU_ISA_NEON);
}

int main(void)
{
    source = random_stream(20261129, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_every_shape),
        cmocka_unit_test(products_of_the_callers_rows),
        cmocka_unit_test(bits_depend_on_no_neighbour),
        cmocka_unit_test(solve_is_forward_substitution),
        cmocka_unit_test(masks_of_mild_and_violent_decay),
        cmocka_unit_test(exp_over_its_range),
        cmocka_unit_test(conversions_are_exact),
        cmocka_unit_test(transposes_and_norms),
        cmocka_unit_test(gates_where_factors_meet_their_limits),
        cmocka_unit_test(decode_steps),
        cmocka_unit_test(a_limit_lowers_and_never_raises),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
