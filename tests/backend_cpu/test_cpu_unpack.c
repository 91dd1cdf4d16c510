/* Rows of O to the caller's o: rounded, at any strides, and nothing beside the tokens' own elements. */
#include "cpu_fixture.h"

#include "numeric.h"

enum { HV = 3, V = 10, C = 8 };

static const int64_t lengths[] = {8, 13, 0, 2};

static void check_unpack(gdn_dtype dtype)
{
    fixture_wave f;
    fixture_wave_open(&f, 1, HV, 4, V, C, COUNT_OF(lengths), lengths);
    f.problem.o = (gdn_layout){.dtype = dtype, .token_stride = HV * (V + 1) + 2, .head_stride = V + 1};
    const int64_t elements = (f.args.total_tokens + 1) * f.problem.o.token_stride;
    const size_t size = gdn_dtype_size(dtype);
    unsigned char *const o = malloc((size_t)elements * size);
    unsigned char *const want = malloc((size_t)elements * size);
    REQUIRE(o != NULL && want != NULL);
    memset(o, 0xab, (size_t)elements * size);
    memset(want, 0xab, (size_t)elements * size);
    test_random random = random_stream(10, 1);
    float *const O = fixture_normal(&random, (int64_t)f.wave.num_slots * HV * C * V);
    O[0] = NAN;
    O[1] = INFINITY;
    f.args.o = o;
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_unpack(device, &f.run, &f.wave, O));
    fixture_close(device);
    for (int32_t slot = 0; slot < f.wave.num_slots; slot++) {
        const gdn_chunk *const chunk = &f.wave.chunks[slot];
        for (int32_t i = 0; i < HV * chunk->length * V; i++) {
            const int32_t d = i % V, t = i / V % chunk->length, h = i / V / chunk->length;
            gdn_store_element(want, dtype,
                              (chunk->token + t) * f.problem.o.token_stride + h * f.problem.o.head_stride + d,
                              O[(((int64_t)slot * HV + h) * C + t) * V + d]);
        }
    }
    assert_memory_equal(o, want, (size_t)elements * size);
    free(o);
    free(want);
    free(O);
    fixture_wave_close(&f);
}

static void every_type(void **unused)
{
    (void)unused;
    check_unpack(GDN_DTYPE_F32);
    check_unpack(GDN_DTYPE_BF16);
    check_unpack(GDN_DTYPE_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
    };
    return cmocka_run_group_tests_name("cpu_unpack", tests, NULL, NULL);
}
