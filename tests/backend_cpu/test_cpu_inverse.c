/* The inverse of I + L: against substitution in double, and bounded where keys repeat. */
#include "cpu_fixture.h"

/* Row i of the inverse of I + L, in double. */
static void invert_in_double(const float *L, int32_t C, double *A)
{
    for (int32_t i = 0; i < C; i++) {
        for (int32_t c = 0; c < C; c++) {
            double sum = i == c;
            for (int32_t j = c; j < i; j++) {
                sum -= (double)L[i * C + j] * A[j * C + c];
            }
            A[i * C + c] = c > i ? 0 : sum;
        }
    }
}

typedef enum keys { KEYS_RANDOM, KEYS_EQUAL, KEYS_NEARLY_EQUAL } keys;

/* L_ij = beta k_i.k_j of unit keys, one matrix; garbage on and above the diagonal, which is not to be read. */
static void fill_L(test_random *random, int32_t C, keys kind, double beta, float *L)
{
    enum { K = 32 };
    static double key[256][K];
    for (int32_t i = 0; i < C; i++) {
        double norm = 0;
        for (int32_t d = 0; d < K; d++) {
            key[i][d] = kind == KEYS_RANDOM ? random_normal(random)
                                            : 1 + (kind == KEYS_EQUAL ? 0 : 1e-3 * random_normal(random));
            norm += key[i][d] * key[i][d];
        }
        for (int32_t d = 0; d < K; d++) {
            key[i][d] /= sqrt(norm);
        }
    }
    for (int32_t i = 0; i < C; i++) {
        for (int32_t j = 0; j < C; j++) {
            double dot = 0;
            for (int32_t d = 0; d < K; d++) {
                dot += key[i][d] * key[j][d];
            }
            L[i * C + j] = j < i ? (float)(beta * dot) : NAN;
        }
    }
}

static void check(int32_t C, keys kind, double beta, double bound)
{
    enum { COUNT = 3 };
    test_random random = random_stream(4, (uint64_t)C);
    float *const L = fixture_poisoned((int64_t)COUNT * C * C);
    float *const A = fixture_poisoned((int64_t)COUNT * C * C);
    double *const reference = malloc((size_t)C * (size_t)C * sizeof(double));
    REQUIRE(reference != NULL);
    for (int n = 0; n < COUNT; n++) {
        fill_L(&random, C, kind, beta, L + n * C * C);
    }
    memcpy(A, L, (size_t)COUNT * (size_t)C * (size_t)C * sizeof(float));
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_inverse(device, NULL, A, COUNT, C));
    for (int n = 0; n < COUNT; n++) {
        invert_in_double(L + n * C * C, C, reference);
        for (int32_t i = 0; i < C * C; i++) {
            /* Every entry of these inverses is at most 2 in size, so the error is absolute. */
            const double error = fabs((double)A[n * C * C + i] - reference[i]);
            if (!(error <= bound)) {
                fail_msg("C %d keys %d beta %g: (%d, %d) is %g, must be %g", C, (int)kind, beta, i / C, i % C,
                         (double)A[n * C * C + i], reference[i]);
            }
        }
    }
    free(L);
    free(A);
    free(reference);
    fixture_close(device);
}

static void inverse_agrees_with_double(void **unused)
{
    (void)unused;
    static const int32_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 128, 255, 256};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        check(sizes[i], KEYS_RANDOM, 0.5, 1e-6);
        check(sizes[i], KEYS_RANDOM, 2, 3e-6);
    }
}

/* The powers of L reach binomials of C here; a series or repeated squaring returns garbage. */
static void repeated_keys_stay_bounded(void **unused)
{
    (void)unused;
    static const int32_t sizes[] = {32, 64, 128, 256};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        check(sizes[i], KEYS_EQUAL, 0.835, 1e-6);
        check(sizes[i], KEYS_EQUAL, 1, 1e-6);
        check(sizes[i], KEYS_EQUAL, 2, 1e-4);
        check(sizes[i], KEYS_NEARLY_EQUAL, 1, 1e-6);
    }
}

static void bits_do_not_depend_on_the_thread_count(void **unused)
{
    (void)unused;
    enum { C = 64, COUNT = 23 };
    test_random random = random_stream(5, 1);
    float *const L = fixture_poisoned((int64_t)COUNT * C * C);
    float *const first = fixture_poisoned((int64_t)COUNT * C * C);
    float *const A = fixture_poisoned((int64_t)COUNT * C * C);
    for (int n = 0; n < COUNT; n++) {
        fill_L(&random, C, KEYS_RANDOM, 1, L + n * C * C);
    }
    const size_t bytes = (size_t)COUNT * C * C * sizeof(float);
    for (size_t i = 0; i < COUNT_OF(fixture_threads); i++) {
        gdn_device *const device = fixture_open(fixture_threads[i], GDN_BLAS_OFF);
        memcpy(A, L, bytes);
        REQUIRE_OK(gdn_cpu_inverse(device, NULL, A, COUNT, C));
        if (i == 0) {
            memcpy(first, A, bytes);
        }
        assert_memory_equal(first, A, bytes);
        fixture_close(device);
    }
    free(L);
    free(first);
    free(A);
}

static void larger_chunks_than_any_are_refused(void **unused)
{
    (void)unused;
    gdn_device *const device = fixture_open(1, GDN_BLAS_OFF);
    float x = 0;
    assert_int_equal(gdn_cpu_inverse(device, NULL, &x, 1, 257), GDN_ERROR_INTERNAL);
    fixture_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inverse_agrees_with_double),
        cmocka_unit_test(repeated_keys_stay_bounded),
        cmocka_unit_test(bits_do_not_depend_on_the_thread_count),
        cmocka_unit_test(larger_chunks_than_any_are_refused),
    };
    return cmocka_run_group_tests_name("cpu_inverse", tests, NULL, NULL);
}
