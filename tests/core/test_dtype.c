/* Conversions over every 16-bit pattern and every tie, against the tests' own decoder and rounder. */
#include "check.h"
#include "dtype.h"
#include "formats.h"
#include "numeric.h"
#include "random.h"

#include <math.h>
#include <string.h>

static const gdn_dtype narrow[] = {GDN_DTYPE_BF16, GDN_DTYPE_F16};

static void every_16_bit_pattern_widens_exactly(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT_OF(narrow); i++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const uint16_t pattern = (uint16_t)bits;
            float wide;
            REQUIRE_OK(gdn_convert(&wide, GDN_DTYPE_F32, &pattern, narrow[i], 1));
            const double want = format_decode(narrow[i], &pattern, 0);
            if (isnan(want)) {
                assert_true(isnan(wide));
                assert_int_equal(signbit(wide) != 0, pattern >> 15);
            } else {
                assert_true((double)wide == want && !signbit(wide) == !signbit(want));
            }
        }
    }
}

static void every_16_bit_pattern_survives_a_round_trip(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT_OF(narrow); i++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const uint16_t pattern = (uint16_t)bits;
            float wide;
            uint16_t back;
            REQUIRE_OK(gdn_convert(&wide, GDN_DTYPE_F32, &pattern, narrow[i], 1));
            REQUIRE_OK(gdn_convert(&back, narrow[i], &wide, GDN_DTYPE_F32, 1));
            if (isnan(wide)) {
                float again;
                REQUIRE_OK(gdn_convert(&again, GDN_DTYPE_F32, &back, narrow[i], 1));
                assert_true(isnan(again));
            } else {
                assert_int_equal(back, pattern);
            }
        }
    }
}

static void assert_rounds_as_the_tests_do(gdn_dtype dtype, float x)
{
    uint16_t got, want;
    REQUIRE_OK(gdn_convert(&got, dtype, &x, GDN_DTYPE_F32, 1));
    format_encode(dtype, &want, 0, (double)x);
    if (isnan(x)) {
        assert_true(isnan(format_decode(dtype, &got, 0)));
    } else if (got != want) {
        fail_msg("%s of %a: %04x, should be %04x", gdn_dtype_name(dtype), (double)x, got, want);
    }
}

/* Between each two neighbours: the tie itself, and the float32 values on either side of it. */
static void every_tie_goes_to_even(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT_OF(narrow); i++) {
        const uint32_t infinity = narrow[i] == GDN_DTYPE_BF16 ? 0x7f80 : 0x7c00;
        for (uint32_t bits = 0; bits < infinity; bits++) {
            const uint16_t low = (uint16_t)bits, high = (uint16_t)(bits + 1);
            const double a = format_decode(narrow[i], &low, 0);
            /* Past the largest finite value the neighbour would be one more step away. */
            const double b = high == infinity ? a + (a - format_decode(narrow[i], &(uint16_t){(uint16_t)(low - 1)}, 0))
                                              : format_decode(narrow[i], &high, 0);
            const float tie = (float)((a + b) / 2);
            for (int sign = -1; sign <= 1; sign += 2) {
                const float x = (float)sign * tie;
                assert_rounds_as_the_tests_do(narrow[i], x);
                assert_rounds_as_the_tests_do(narrow[i], nextafterf(x, 0));
                assert_rounds_as_the_tests_do(narrow[i], nextafterf(x, (float)sign * INFINITY));
            }
        }
    }
}

static void random_floats_round_to_nearest(void **unused)
{
    (void)unused;
    test_random random = random_stream(201, 0);
    for (int i = 0; i < 1000000; i++) {
        const float x = gdn_float_of_bits((uint32_t)random_bits(&random));
        assert_rounds_as_the_tests_do(GDN_DTYPE_BF16, x);
        assert_rounds_as_the_tests_do(GDN_DTYPE_F16, x);
    }
}

static void overflow_gives_infinity_and_nan_stays_nan(void **unused)
{
    (void)unused;
    static const uint32_t patterns[] = {0x7f800001, 0xff800001, 0x7fc00000, 0x7f80ffff, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        for (size_t n = 0; n < COUNT_OF(narrow); n++) {
            const float x = gdn_float_of_bits(patterns[i]);
            uint16_t bits;
            REQUIRE_OK(gdn_convert(&bits, narrow[n], &x, GDN_DTYPE_F32, 1));
            assert_true(isnan(format_decode(narrow[n], &bits, 0)));
            assert_int_equal(bits >> 15, patterns[i] >> 31);
        }
    }
    const float large[] = {65519.996f, 65520.0f, -1e9f, 3.4e38f, 3.3961776e38f};
    uint16_t f16[5], bf16[5];
    REQUIRE_OK(gdn_convert(f16, GDN_DTYPE_F16, large, GDN_DTYPE_F32, 5));
    REQUIRE_OK(gdn_convert(bf16, GDN_DTYPE_BF16, large, GDN_DTYPE_F32, 5));
    assert_int_equal(f16[0], 0x7bff);
    assert_int_equal(f16[1], 0x7c00);
    assert_int_equal(f16[2], 0xfc00);
    assert_int_equal(f16[3], 0x7c00);
    assert_int_equal(bf16[3], 0x7f80);
}

static void conversions_between_the_16_bit_types_round_once(void **unused)
{
    (void)unused;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint16_t pattern = (uint16_t)bits;
        for (size_t i = 0; i < 2; i++) {
            uint16_t got, want;
            REQUIRE_OK(gdn_convert(&got, narrow[1 - i], &pattern, narrow[i], 1));
            const double x = format_decode(narrow[i], &pattern, 0);
            format_encode(narrow[1 - i], &want, 0, x);
            assert_true(isnan(x) ? isnan(format_decode(narrow[1 - i], &got, 0)) : got == want);
        }
    }
}

static void sizes_and_names(void **unused)
{
    (void)unused;
    static const struct {
        gdn_dtype dtype;
        size_t size;
        const char *name;
        bool real, index;
    } table[] = {{GDN_DTYPE_NONE, 0, "none", false, false},  {GDN_DTYPE_F32, 4, "f32", true, false},
                 {GDN_DTYPE_BF16, 2, "bf16", true, false},   {GDN_DTYPE_F16, 2, "f16", true, false},
                 {GDN_DTYPE_I32, 4, "i32", false, true},     {GDN_DTYPE_I64, 8, "i64", false, true},
                 {GDN_DTYPE_U8, 1, "u8", false, false},      {(gdn_dtype)7, 0, "unknown", false, false},
                 {(gdn_dtype)-1, 0, "unknown", false, false}};
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        assert_int_equal(gdn_dtype_size(table[i].dtype), table[i].size);
        assert_string_equal(gdn_dtype_name(table[i].dtype), table[i].name);
        assert_int_equal(gdn_dtype_is_float(table[i].dtype), table[i].real);
        assert_int_equal(gdn_dtype_is_index(table[i].dtype), table[i].index);
    }
}

static void refused_conversions_write_nothing(void **unused)
{
    (void)unused;
    float from = 1, to = 7;
    assert_int_equal(gdn_convert(&to, GDN_DTYPE_I32, &from, GDN_DTYPE_F32, 1), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "dst_dtype: i32"));
    assert_int_equal(gdn_convert(&to, GDN_DTYPE_F32, &from, (gdn_dtype)77, 1), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "77"));
    assert_int_equal(gdn_convert(&to, GDN_DTYPE_F32, &from, GDN_DTYPE_F32, -1), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "count: -1"));
    assert_int_equal(gdn_convert(NULL, GDN_DTYPE_F32, &from, GDN_DTYPE_F32, 1), GDN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(gdn_convert(&to, GDN_DTYPE_F32, NULL, GDN_DTYPE_F32, 1), GDN_ERROR_INVALID_ARGUMENT);
    assert_true(to == 7);
    REQUIRE_OK(gdn_convert(NULL, GDN_DTYPE_F32, NULL, GDN_DTYPE_F32, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_pattern_widens_exactly),
        cmocka_unit_test(every_16_bit_pattern_survives_a_round_trip),
        cmocka_unit_test(every_tie_goes_to_even),
        cmocka_unit_test(random_floats_round_to_nearest),
        cmocka_unit_test(overflow_gives_infinity_and_nan_stays_nan),
        cmocka_unit_test(conversions_between_the_16_bit_types_round_once),
        cmocka_unit_test(sizes_and_names),
        cmocka_unit_test(refused_conversions_write_nothing),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
