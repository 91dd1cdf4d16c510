/* The l2 norm of q and k: where eps goes, vectors of zeros, squares that underflow. */
#include "suite.h"

#include <math.h>

/* One token from nothing with beta = 1 and q = k = (size, 0, ...): o = scale length^2 v. Returns the length the call
 * gave the vector. */
static double normalised_length(double size, gdn_qk_norm norm, gdn_dtype dtype, bool decode, double *rounded)
{
    const case_spec spec = {.label = "short vectors",
                            .seed = 1101,
                            .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                            .num_k_heads = 1,
                            .head_k_dim = 16,
                            .length = 1,
                            .dtype = dtype,
                            .no_initial_state = true,
                            .qk_norm = norm,
                            .betas = BETAS_CONSTANT,
                            .beta = 1};
    test_case c;
    case_build(&c, &spec);
    for (int32_t d = 0; d < 16; d++) {
        case_put(&c, CASE_Q, 0, 0, d, d == 0 ? size : 0);
        case_put(&c, CASE_K, 0, 0, d, d == 0 ? size : 0);
        case_put(&c, CASE_V, 0, 0, d, 1);
    }
    *rounded = case_get(&c, CASE_K, 0, 0, 0);
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    const double o = case_output(&c, 0, 0, 3);
    case_free(&c);
    return sqrt(o / 0.25);
}

/* Entry 35. */
static void eps_is_where_the_option_says(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        double size;
        double length = normalised_length(1e-3, GDN_QK_NORM_RSQRT, GDN_DTYPE_F32, decode, &size);
        assert_true(fabs(length - 0.70711) < 1e-5);
        length = normalised_length(3e-4, GDN_QK_NORM_RSQRT, GDN_DTYPE_F32, decode, &size);
        assert_true(fabs(length - 0.28735) < 1e-5);
        length = normalised_length(1e-3, GDN_QK_NORM_EPS_OUTSIDE, GDN_DTYPE_F32, decode, &size);
        assert_true(fabs(length - 0.999001) < 1e-5);
    }
}

/* Entry 39: an fp16 element of 1e-4 squares to 1e-8, which fp16 does not have. */
static void squares_do_not_underflow_in_16_bits(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        double size;
        const double length = normalised_length(1e-4, GDN_QK_NORM_RSQRT, GDN_DTYPE_F16, decode, &size);
        assert_true(fabs(length - size / sqrt(size * size + 1e-6)) < 1e-3 * length);
    }
    const case_spec spec = {.label = "128 elements of 1e-4 in fp16",
                            .seed = 1102,
                            .num_k_heads = 1,
                            .head_k_dim = 128,
                            .length = 3,
                            .dtype = GDN_DTYPE_F16,
                            .qk_norm = GDN_QK_NORM_RSQRT};
    test_case c;
    case_build(&c, &spec);
    for (int64_t t = 0; t < 3; t++) {
        for (int32_t d = 0; d < 128; d++) {
            case_put(&c, CASE_Q, t, 0, d, 1e-4);
            case_put(&c, CASE_K, t, 0, d, 1e-4);
        }
    }
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    case_free(&c);
}

/* Entry 39: k = 0 writes nothing and only decays; q = 0 reads exactly 0. Without eps, too, where a length of 0 is divided by. */
static void zeros_are_harmless(bool decode, gdn_qk_norm norm, float eps)
{
    const case_spec spec = {.label = "k = 0 and q = 0",
                            .seed = 1103,
                            .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                            .num_k_heads = 1,
                            .length = 66,
                            .tokens_per_row = 16,
                            .qk_norm = norm,
                            .qk_norm_eps = eps};
    test_case c;
    case_build(&c, &spec);
    static const int64_t zero_k[] = {0, 5}, zero_q[] = {3, 5};
    for (int i = 0; i < 2; i++) {
        for (int32_t d = 0; d < 32; d++) {
            case_put(&c, CASE_K, zero_k[i], 0, d, 0);
            case_put(&c, CASE_Q, zero_q[i], 0, d, 0);
        }
    }
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    for (int i = 0; i < 2; i++) {
        for (int32_t d = 0; d < 32; d++) {
            assert_true(case_output(&c, zero_q[i], 0, d) == 0);
        }
    }
    case_free(&c);
}

static void vectors_of_zeros_are_harmless(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        for (gdn_qk_norm norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
            zeros_are_harmless(decode, norm, 1e-6f);
            zeros_are_harmless(decode, norm, -1);
        }
    }
}

static void tokens_of_nothing_but_zeros(void **unused)
{
    (void)unused;
    static const float eps[] = {1e-6f, -1};
    for (gdn_qk_norm norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
        for (size_t i = 0; i < COUNT_OF(eps); i++) {
            const case_spec spec = {.label = "all zeros",
                                    .seed = 1104,
                                    .num_k_heads = 1,
                                    .length = 70,
                                    .qk_norm = norm,
                                    .qk_norm_eps = eps[i]};
            test_case c;
            case_build(&c, &spec);
            for (int64_t t = 0; t < 70; t++) {
                for (int32_t d = 0; d < 32; d++) {
                    case_put(&c, CASE_Q, t, 0, d, 0);
                    case_put(&c, CASE_K, t, 0, d, 0);
                    case_put(&c, CASE_V, t, 0, d, 0);
                }
            }
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            case_free(&c);
        }
    }
}

/* Up to 1e18 the square of a length is a float32. */
static void long_vectors_normalise(void **unused)
{
    (void)unused;
    static const double sizes[] = {1e4, 1e10, 1e17};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        double size;
        const double length = normalised_length(sizes[i], GDN_QK_NORM_RSQRT, GDN_DTYPE_F32, false, &size);
        assert_true(fabs(length - 1) < 1e-6);
    }
}

/* Past 1.8e19 it is not: such a vector counts as infinitely long, and becomes 0. */
static void vectors_past_float32_become_zero(void **unused)
{
    (void)unused;
    for (int which = 0; which < 4; which++) {
        const bool decode = which % 2 != 0;
        const int32_t dim = which < 2 ? 32 : 128;
        for (gdn_qk_norm norm = GDN_QK_NORM_RSQRT; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
            const case_spec spec = {.label = "|k| = 3e38 and |q| = 1e30",
                                    .seed = 1105,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 1,
                                    .head_k_dim = dim,
                                    .length = 66,
                                    .tokens_per_row = 16,
                                    .qk_norm = norm};
            test_case zero, longest;
            case_build(&zero, &spec);
            case_build(&longest, &spec);
            for (int32_t d = 0; d < dim; d++) {
                case_put(&zero, CASE_K, 2, 0, d, 0);
                case_put(&zero, CASE_Q, 7, 0, d, 0);
                case_put(&longest, CASE_K, 2, 0, d, d < 4 ? 3e38 : 1);
                case_put(&longest, CASE_Q, 7, 0, d, 1e30);
            }
            NO_COMPLAINTS(check_built_case(test_context(), &zero));
            assert_int_equal(case_run(test_context(), &longest, NULL), GDN_OK);
            NO_COMPLAINTS(close_outputs(&longest, 0, &zero, 0, decode ? 16 : 66));
            NO_COMPLAINTS(close_state(&longest, CASE_FINAL_STATE, 0, &zero, CASE_FINAL_STATE, 0));
            case_free(&zero);
            case_free(&longest);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eps_is_where_the_option_says),  cmocka_unit_test(squares_do_not_underflow_in_16_bits),
        cmocka_unit_test(vectors_of_zeros_are_harmless), cmocka_unit_test(tokens_of_nothing_but_zeros),
        cmocka_unit_test(long_vectors_normalise),        cmocka_unit_test(vectors_past_float32_become_zero),
    };
    return RUN_SUITE("norms", tests);
}
