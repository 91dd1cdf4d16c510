/* Packing of q, k and v: normalised, converted, from any strides, zeros past a chunk's end, nothing read there. */
#include "cpu_fixture.h"

#include "numeric.h"

enum { H = 2, HV = 4, K = 19, V = 24, C = 16 };

static const int64_t lengths[] = {16, 0, 21, 1};

/* A padded array of tokens; rows that belong to no token are NaN. */
static void *padded(test_random *random, const gdn_layout *layout, int64_t tokens, int32_t heads, int32_t dim,
                    int64_t *bytes)
{
    const size_t size = gdn_dtype_size(layout->dtype);
    *bytes = (tokens + 1) * layout->token_stride * (int64_t)size;
    unsigned char *const data = malloc((size_t)*bytes);
    REQUIRE(data != NULL);
    memset(data, 0xff, (size_t)*bytes);
    for (int64_t t = 0; t < tokens; t++) {
        for (int32_t h = 0; h < heads; h++) {
            for (int32_t d = 0; d < dim; d++) {
                gdn_store_element(data, layout->dtype, t * layout->token_stride + h * layout->head_stride + d,
                                  (float)random_normal(random));
            }
        }
    }
    return data;
}

static double factor_of(const gdn_problem *problem, const double *row, int32_t dim)
{
    double sum = 0;
    for (int32_t d = 0; d < dim; d++) {
        sum += row[d] * row[d];
    }
    const double eps = (double)problem->qk_norm_eps;
    switch (problem->qk_norm) {
    case GDN_QK_NORM_RSQRT:
        return 1 / sqrt(sum + eps);
    case GDN_QK_NORM_EPS_OUTSIDE:
        return 1 / (sqrt(sum) + eps);
    case GDN_QK_NORM_NONE:
        break;
    }
    return 1;
}

static void check_pack(gdn_pack_source source, gdn_dtype dtype, gdn_qk_norm norm, float eps)
{
    fixture_wave f;
    fixture_wave_open(&f, H, HV, K, V, C, COUNT_OF(lengths), lengths);
    const int32_t heads = source == GDN_PACK_V ? HV : H;
    const int32_t dim = source == GDN_PACK_V ? V : K;
    const gdn_layout layout = {.dtype = dtype, .token_stride = heads * (dim + 2) + 3, .head_stride = dim + 2};
    f.problem.qk_norm = norm;
    f.problem.qk_norm_eps = eps;
    f.problem.q = f.problem.k = f.problem.v = layout;
    test_random random = random_stream(9, 1);
    int64_t bytes;
    void *const data = padded(&random, &layout, f.args.total_tokens, heads, dim, &bytes);
    f.args.q = source == GDN_PACK_Q ? data : NULL;
    f.args.k = source == GDN_PACK_K ? data : NULL;
    f.args.v = source == GDN_PACK_V ? data : NULL;
    float *const dst = fixture_poisoned((int64_t)f.wave.num_slots * heads * C * dim);
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_pack(device, &f.run, &f.wave, source, dst));
    fixture_close(device);

    for (int32_t slot = 0; slot < f.wave.num_slots; slot++) {
        const gdn_chunk *const chunk = &f.wave.chunks[slot];
        for (int32_t h = 0; h < heads; h++) {
            for (int32_t i = 0; i < C; i++) {
                double row[32] = {0};
                for (int32_t d = 0; d < dim && i < chunk->length; d++) {
                    row[d] = (double)gdn_load_element(
                        data, dtype, (chunk->token + i) * layout.token_stride + h * layout.head_stride + d);
                }
                const double factor = source == GDN_PACK_V ? 1 : factor_of(&f.problem, row, dim);
                for (int32_t d = 0; d < dim; d++) {
                    const double want = i < chunk->length ? row[d] * factor : 0;
                    const double got = (double)dst[(((int64_t)slot * heads + h) * C + i) * dim + d];
                    if (!(fabs(got - want) <= 4e-7 * fabs(want))) {
                        fail_msg("slot %d head %d row %d place %d: %.9g, must be %.9g", slot, h, i, d, got, want);
                    }
                }
            }
        }
    }
    free(data);
    free(dst);
    fixture_wave_close(&f);
}

static void every_source_type_and_norm(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        check_pack(GDN_PACK_Q, dtypes[i], GDN_QK_NORM_NONE, 1e-6f);
        check_pack(GDN_PACK_Q, dtypes[i], GDN_QK_NORM_RSQRT, 1e-6f);
        check_pack(GDN_PACK_K, dtypes[i], GDN_QK_NORM_EPS_OUTSIDE, 1e-6f);
        check_pack(GDN_PACK_K, dtypes[i], GDN_QK_NORM_RSQRT, 3.0f);
        check_pack(GDN_PACK_V, dtypes[i], GDN_QK_NORM_RSQRT, 1e-6f); /* v is never normalised */
    }
}

static void a_row_of_zeros_stays_zeros(void **unused)
{
    (void)unused;
    static const gdn_qk_norm norms[] = {GDN_QK_NORM_RSQRT, GDN_QK_NORM_EPS_OUTSIDE};
    static const float epsilons[] = {1e-6f, 1e-19f};
    gdn_device *const device = fixture_open(1, GDN_BLAS_OFF);
    for (size_t i = 0; i < 4; i++) {
        const int64_t length = 3;
        fixture_wave f;
        fixture_wave_open(&f, 1, 1, K, V, C, 1, &length);
        f.problem.qk_norm = norms[i / 2];
        f.problem.qk_norm_eps = epsilons[i % 2];
        const float zeros[3 * K] = {0};
        float dst[C * K];
        memset(dst, 0xff, sizeof(dst));
        f.args.k = zeros;
        REQUIRE_OK(gdn_cpu_pack(device, &f.run, &f.wave, GDN_PACK_K, dst));
        for (size_t j = 0; j < COUNT_OF(dst); j++) {
            assert_true(dst[j] == 0.0f);
        }
        fixture_wave_close(&f);
    }
    fixture_close(device);
}

/* Rows of an equal-length batch that lie apart. */
static void an_equal_length_batch_has_a_row_stride(void **unused)
{
    (void)unused;
    const int64_t batch[] = {18, 18};
    fixture_wave f;
    fixture_wave_open(&f, 1, 1, 4, 4, C, 2, batch);
    f.problem.cu_seqlens_dtype = GDN_DTYPE_NONE;
    f.args.cu_seqlens = NULL;
    f.problem.v.row_stride = 100;
    float data[200];
    for (int i = 0; i < 200; i++) {
        data[i] = (float)i;
    }
    f.args.v = data;
    float dst[4 * C * 4];
    gdn_device *const device = fixture_open(1, GDN_BLAS_OFF);
    assert_int_equal(f.wave.num_slots, 4);
    REQUIRE_OK(gdn_cpu_pack(device, &f.run, &f.wave, GDN_PACK_V, dst));
    fixture_close(device);
    for (int row = 0; row < 2; row++) {
        for (int t = 0; t < 18; t++) {
            assert_true(dst[((row * 2 + t / C) * C + t % C) * 4 + 1] == (float)(row * 100 + t * 4 + 1));
        }
    }
    fixture_wave_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_type_and_norm),
        cmocka_unit_test(a_row_of_zeros_stays_zeros),
        cmocka_unit_test(an_equal_length_batch_has_a_row_stride),
    };
    return cmocka_run_group_tests_name("cpu_norm_pack", tests, NULL, NULL);
}
