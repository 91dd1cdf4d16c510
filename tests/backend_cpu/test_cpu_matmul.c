/* Batched products: against sums in double, by BLAS and by the plain loops, and equal bits for any thread count. */
#include "cpu_fixture.h"

typedef struct shape {
    int32_t m, n, k;
} shape;

/* Edges of the register tile (4 x 8), of the column blocks (64), of the panel depth (256), and the usual products. */
static const shape shapes[] = {{1, 1, 1},   {4, 8, 16},   {3, 7, 5},      {5, 9, 257}, {64, 128, 128}, {128, 128, 64},
                               {64, 64, 1}, {1, 200, 64}, {100, 65, 300}, {17, 63, 2}, {2, 64, 1024}};

static double element(const float *data, int64_t ld, bool transposed, int64_t i, int64_t j)
{
    return (double)(transposed ? data[j * ld + i] : data[i * ld + j]);
}

/* Worst |C - reference| over the sum of magnitudes, over the whole of one product. */
static double worst_error(const gdn_matmul *p, const float *a, const float *b, const float *before, const float *c)
{
    double worst = 0;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            double size = 1e-30;
            for (int64_t l = 0; l < p->k; l++) {
                const double term =
                    element(a, p->a.ld, p->transpose_a, i, l) * element(b, p->b.ld, p->transpose_b, l, j);
                sum += term;
                size += fabs(term);
            }
            sum *= (double)p->alpha;
            size *= fabs((double)p->alpha);
            if (p->beta != 0.0f) {
                sum += (double)p->beta * (double)before[i * p->c.ld + j];
                size += fabs((double)p->beta * (double)before[i * p->c.ld + j]);
            }
            const double error = fabs(sum - (double)c[i * p->c.ld + j]) / size;
            worst = error <= worst ? worst : error; /* NaN stays */
        }
    }
    return worst;
}

static void products_agree_with_double(void **state)
{
    gdn_device *const device = fixture_open(2, *(const gdn_blas *)*state);
    test_random random = random_stream(1, 1);
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        for (int form = 0; form < 8; form++) {
            const int32_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k;
            const bool ta = form & 1, tb = form & 2, add = form & 4;
            gdn_matmul p = {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb};
            p.alpha = add ? -1.0f : 0.75f;
            p.beta = add ? 1.0f : 0.0f;
            p.batch[0] = p.batch[1] = p.batch[2] = 1;
            /* Rows further apart than they are long. */
            p.a.ld = (ta ? m : k) + 3;
            p.b.ld = (tb ? k : n) + 1;
            p.c.ld = n + 2;
            float *const a = fixture_normal(&random, p.a.ld * (ta ? k : m));
            float *const b = fixture_normal(&random, p.b.ld * (tb ? n : k));
            float *const before = fixture_normal(&random, p.c.ld * m);
            float *const c = fixture_poisoned(p.c.ld * m); /* NaN where beta is 0: C is not read */
            if (add) {
                memcpy(c, before, (size_t)(p.c.ld * m) * sizeof(float));
            }
            float *const gaps = fixture_poisoned(p.c.ld * m);
            memcpy(gaps, c, (size_t)(p.c.ld * m) * sizeof(float));
            p.a.data = a;
            p.b.data = b;
            p.c.data = c;
            REQUIRE_OK(gdn_cpu_matmul(device, NULL, &p));
            const double error = worst_error(&p, a, b, before, c);
            if (!(error < 2e-6)) {
                fail_msg("m %d n %d k %d form %d: error %g", m, n, k, form, error);
            }
            for (int64_t i = 0; i < m; i++) {
                assert_memory_equal(c + i * p.c.ld + n, gaps + i * p.c.ld + n, 2 * sizeof(float));
            }
            free(a);
            free(b);
            free(before);
            free(c);
            free(gaps);
        }
    }
    fixture_close(device);
}

/* A batch of outer x k heads x heads of each, with an operand shared by the last and another reached through an index. */
static void batches_share_index_and_leave_out(void **state)
{
    gdn_device *const device = fixture_open(3, *(const gdn_blas *)*state);
    test_random random = random_stream(2, 1);
    const int32_t m = 6, n = 70, k = 10;
    const int64_t H = 3, r = 2, outer = 4, slots = 5;
    const int32_t index[] = {4, -1, 0, 2};
    float *const a = fixture_normal(&random, slots * H * m * k);
    float *const b = fixture_normal(&random, outer * H * r * k * n);
    float *const c = fixture_poisoned(slots * H * r * m * n);
    const gdn_matmul p = {
        .m = m,
        .n = n,
        .k = k,
        .alpha = 1.0f,
        .batch = {outer, H, r},
        .a = {.data = a, .ld = k, .stride = {H * m * k, m * k, 0}, .outer_index = index},
        .b = {.data = b, .ld = n, .stride = {H * r * k * n, r * k * n, k * n}},
        .c = {.data = c, .ld = n, .stride = {H * r * m * n, r * m * n, m * n}, .outer_index = index},
    };
    REQUIRE_OK(gdn_cpu_matmul(device, NULL, &p));
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t from = -1;
        for (int64_t i = 0; i < outer; i++) {
            from = index[i] == slot ? i : from;
        }
        for (int64_t h = 0; h < H * r; h++) {
            const float *const result = c + (slot * H * r + h) * m * n;
            if (from < 0) {
                for (int64_t i = 0; i < (int64_t)m * n; i++) {
                    REQUIRE(isnan(result[i]));
                }
                continue;
            }
            assert_true(worst_error(&p, a + (slot * H + h / r) * m * k, b + (from * H * r + h) * k * n, NULL, result) <
                        2e-6);
        }
    }
    free(a);
    free(b);
    free(c);
    fixture_close(device);
}

static void bits_do_not_depend_on_the_thread_count(void **state)
{
    test_random random = random_stream(3, 1);
    const int32_t m = 64, n = 200, k = 128;
    const int64_t batch = 11;
    float *const a = fixture_normal(&random, batch * m * k);
    float *const b = fixture_normal(&random, batch * k * n);
    float *const first = fixture_poisoned(batch * m * n);
    float *const c = fixture_poisoned(batch * m * n);
    for (size_t i = 0; i < COUNT_OF(fixture_threads); i++) {
        gdn_device *const device = fixture_open(fixture_threads[i], *(const gdn_blas *)*state);
        const gdn_matmul p = {
            .m = m,
            .n = n,
            .k = k,
            .alpha = 1.0f,
            .batch = {batch, 1, 1},
            .a = {.data = a, .ld = k, .stride = {m * k}},
            .b = {.data = b, .ld = n, .stride = {k * n}},
            .c = {.data = i == 0 ? first : c, .ld = n, .stride = {m * n}},
        };
        REQUIRE_OK(gdn_cpu_matmul(device, NULL, &p));
        if (i > 0) {
            assert_memory_equal(first, c, (size_t)(batch * m * n) * sizeof(float));
        }
        fixture_close(device);
    }
    free(a);
    free(b);
    free(first);
    free(c);
}

static void a_stride_past_32_bits_is_refused(void **state)
{
    gdn_device *const device = fixture_open(1, *(const gdn_blas *)*state);
    float x = 1;
    const gdn_matmul p = {.m = 1,
                          .n = 1,
                          .k = 1,
                          .batch = {1, 1, 1},
                          .a = {.data = &x, .ld = INT64_C(1) << 32},
                          .b = {.data = &x, .ld = 1},
                          .c = {.data = &x, .ld = 1}};
    assert_int_equal(gdn_cpu_matmul(device, NULL, &p), GDN_ERROR_INTERNAL);
    fixture_close(device);
}

int main(void)
{
    static gdn_blas blas = GDN_BLAS_AUTO, plain = GDN_BLAS_OFF;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(products_agree_with_double, &blas),
        cmocka_unit_test_prestate(products_agree_with_double, &plain),
        cmocka_unit_test_prestate(batches_share_index_and_leave_out, &blas),
        cmocka_unit_test_prestate(batches_share_index_and_leave_out, &plain),
        cmocka_unit_test_prestate(bits_do_not_depend_on_the_thread_count, &blas),
        cmocka_unit_test_prestate(bits_do_not_depend_on_the_thread_count, &plain),
        cmocka_unit_test_prestate(a_stride_past_32_bits_is_refused, &plain),
    };
    return cmocka_run_group_tests_name("cpu_matmul", tests, NULL, NULL);
}
