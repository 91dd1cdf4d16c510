/* What is not a product, of every instruction set this machine has, against the plain twins and double. */
#include "kernel_tables.h"

#include "numeric.h"

static float a[BIG], out[BIG], wanted[BIG];

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

static void transposes(void **state)
{
    (void)state;
    float scale[80];
    fill(a, BIG);
    fill(scale, 80);
    for (int t = 0; t < num_tables; t++) {
        for (int rows = 16; rows <= 80; rows += 16) {
            for (int cols = 16; cols <= 48; cols += 16) {
                for (int scaled = 0; scaled < 2; scaled++) {
                    tables[t]->transpose(rows, cols, a, 50, scaled ? scale : NULL, out, 83);
                    for (int i = 0; i < rows; i++) {
                        for (int c = 0; c < cols; c++) {
                            const float x = a[i * 50 + c];
                            assert_true(out[c * 83 + i] == (scaled ? scale[i] * x : x));
                        }
                    }
                }
            }
        }
    }
}

static void norms(void **state)
{
    (void)state;
    enum { ROWS = 5, K = 80, LD = 96 };
    fill(a, ROWS * LD);
    memset(a + 2 * LD, 0, K * sizeof(float)); /* a zero vector stays one: its factor is finite */
    for (int t = 0; t < num_tables; t++) {
        for (int norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
            float factor[ROWS];
            tables[t]->norm_factors((gdn_qk_norm)norm, 1e-6f, 0.3f, ROWS, K, a, LD, factor);
            for (int i = 0; i < ROWS; i++) {
                double sum = 0.0;
                for (int c = 0; c < K; c++) {
                    sum += (double)a[i * LD + c] * (double)a[i * LD + c];
                }
                const double exact = norm == GDN_QK_NORM_NONE    ? 0.3
                                     : norm == GDN_QK_NORM_RSQRT ? 0.3 / sqrt(sum + (double)1e-6f)
                                                                 : 0.3 / (sqrt(sum) + (double)1e-6f);
                assert_true(fabs((double)factor[i] - exact) <= 1e-6 * exact);
            }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_mild_and_violent_decay),
        cmocka_unit_test(exp_over_its_range),
        cmocka_unit_test(conversions_are_exact),
        cmocka_unit_test(transposes),
        cmocka_unit_test(norms),
        cmocka_unit_test(gates_where_factors_meet_their_limits),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
