/* Head counts, maps and sizes that other implementations took and got wrong. */
#include "suite.h"

#include <math.h>
#include <string.h>

/* Entry 13: h mod Hk where h / ratio is meant, or the reverse. q head j is e_j, row i of S0 is i + 1, nothing is written. */
static void head_maps_are_not_confused(void **unused)
{
    (void)unused;
    static const double want[2][6] = {{1, 1, 1, 2, 2, 2}, {1, 2, 1, 2, 1, 2}};
    for (int decode = 0; decode < 2; decode++) {
        for (gdn_head_map map = GDN_HEAD_MAP_GROUPED; map <= GDN_HEAD_MAP_TILED; map++) {
            const case_spec spec = {.label = "coded heads",
                                    .seed = 1001,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 2,
                                    .num_v_heads = 6,
                                    .head_k_dim = 16,
                                    .length = 1,
                                    .head_map = map,
                                    .beta_form = GDN_BETA_LOGIT,
                                    .betas = BETAS_CONSTANT,
                                    .gates = GATES_CONSTANT};
            test_case c;
            case_build(&c, &spec);
            for (int32_t k = 0; k < 16; k++) {
                case_put(&c, CASE_Q, 0, 0, k, k == 0);
                case_put(&c, CASE_Q, 0, 1, k, k == 1);
                for (int32_t head = 0; head < 6; head++) {
                    for (int32_t v = 0; v < 16; v++) {
                        case_put_state(&c, CASE_STATE, 0, head, v, k, k + 1);
                    }
                }
            }
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            for (int32_t head = 0; head < 6; head++) {
                assert_true(case_output(&c, 0, head, 5) / (double)c.problem.scale == want[map][head]);
            }
            case_free(&c);
        }
    }
}

/* Entry 44: tile shapes that cover only some sizes. Every size is right or refused; on the generic path, right. */
static void every_head_size_is_right(void **unused)
{
    (void)unused;
    static const int32_t k_dims[] = {1, 8, 16, 32, 48, 64, 80, 96, 100, 128, 160, 192, 256};
    static const int32_t v_dims[] = {1, 16, 32, 64, 100, 128, 256};
    int complaints = 0;
    for (size_t k = 0; k < COUNT_OF(k_dims); k++) {
        for (size_t v = 0; v < COUNT_OF(v_dims); v++) {
            if (test_is_small() && (k + v) % 3 != 0) {
                continue;
            }
            char label[64];
            snprintf(label, sizeof(label), "dims %d x %d", k_dims[k], v_dims[v]);
            const case_spec spec = {.label = label,
                                    .seed = 1002,
                                    .num_k_heads = 1,
                                    .num_v_heads = 2,
                                    .head_k_dim = k_dims[k],
                                    .head_v_dim = v_dims[v],
                                    .length = 70};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void the_largest_head_sizes_are_right(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "1024 x 1024",
                                .seed = 1003,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 1,
                                .head_k_dim = 1024,
                                .length = test_is_small() ? 3 : 67};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 45: K / 32 by integer division leaves the last dims out. Changing only those changes the output. */
static void trailing_dims_are_not_dropped(void **unused)
{
    (void)unused;
    static const int32_t dims[] = {33, 48, 65, 100};
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        const case_spec spec = {.label = "trailing dims",
                                .seed = 1004,
                                .num_k_heads = 1,
                                .head_k_dim = dims[i],
                                .head_v_dim = 16,
                                .length = 70};
        test_case plain, changed;
        case_build(&plain, &spec);
        case_build(&changed, &spec);
        for (int64_t t = 0; t < 70; t++) {
            for (int32_t d = dims[i] / 32 * 32; d < dims[i]; d++) {
                case_put(&changed, CASE_Q, t, 0, d, -case_get(&plain, CASE_Q, t, 0, d));
                case_put(&changed, CASE_K, t, 0, d, 0.5 * case_get(&plain, CASE_K, t, 0, d));
            }
        }
        NO_COMPLAINTS(check_built_case(test_context(), &plain) + check_built_case(test_context(), &changed));
        assert_true(case_output(&plain, 69, 0, 3) != case_output(&changed, 69, 0, 3));
        case_free(&plain);
        case_free(&changed);
    }
}

/* Entry 47: the default scale is by the key dim; 1 and 0 are scales, not "unset". */
static void the_scale_is_by_the_key_dim(void **unused)
{
    (void)unused;
    static const int32_t dims[][2] = {{64, 128}, {128, 64}};
    static const float scales[] = {-1, 1, 0};
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        for (size_t s = 0; s < COUNT_OF(scales); s++) {
            for (int decode = 0; decode < 2; decode++) {
                const case_spec spec = {.label = "q = k = e_0, v = 1",
                                        .seed = 1005,
                                        .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                        .num_k_heads = 1,
                                        .head_k_dim = dims[i][0],
                                        .head_v_dim = dims[i][1],
                                        .length = 1,
                                        .no_initial_state = true,
                                        .has_scale = scales[s] >= 0,
                                        .scale = scales[s],
                                        .betas = BETAS_CONSTANT,
                                        .beta = 1};
                test_case c;
                case_build(&c, &spec);
                for (int32_t d = 0; d < dims[i][0]; d++) {
                    case_put(&c, CASE_Q, 0, 0, d, d == 0);
                    case_put(&c, CASE_K, 0, 0, d, d == 0);
                }
                for (int32_t d = 0; d < dims[i][1]; d++) {
                    case_put(&c, CASE_V, 0, 0, d, 1);
                }
                NO_COMPLAINTS(check_built_case(test_context(), &c));
                const double want = scales[s] >= 0 ? (double)scales[s] : 1 / sqrt(dims[i][0]);
                assert_true(fabs(case_output(&c, 0, 0, 9) - want) <= 1e-7);
                case_free(&c);
            }
        }
    }
}

/* Entry 73: a loop over key heads computes only the first of the value heads. */
static void every_value_head_is_computed(void **unused)
{
    (void)unused;
    static const int32_t heads[][2] = {{2, 4}, {16, 48}, {16, 64}};
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        for (int decode = 0; decode < 2; decode++) {
            const case_spec spec = {.label = "more value heads than key heads",
                                    .seed = 1006,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = heads[i][0],
                                    .num_v_heads = heads[i][1],
                                    .head_k_dim = 16,
                                    .length = 70};
            NO_COMPLAINTS(check_case(&spec));
        }
    }
}

/* Entry 74: work groups that no head count divides. */
static void threads_and_heads_need_not_divide(void **unused)
{
    (void)unused;
    static const int32_t heads[] = {1, 3, 5, 7, 48};
    int complaints = 0;
    for (int32_t threads = 1; threads <= 17; threads += test_is_small() ? 4 : 1) {
        gdn_context *context = test_context_with_threads(threads);
        for (size_t i = 0; i < COUNT_OF(heads); i++) {
            for (int decode = 0; decode < 2; decode++) {
                const case_spec spec = {.label = "threads against heads",
                                        .seed = 1007,
                                        .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                        .num_k_heads = heads[i],
                                        .head_k_dim = 16,
                                        .length = 66,
                                        .num_seqs = 2};
                test_case c;
                case_build(&c, &spec);
                complaints += check_built_case(context, &c);
                case_free(&c);
            }
        }
        gdn_context_destroy(&context);
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_maps_are_not_confused),        cmocka_unit_test(every_head_size_is_right),
        cmocka_unit_test(the_largest_head_sizes_are_right),  cmocka_unit_test(trailing_dims_are_not_dropped),
        cmocka_unit_test(the_scale_is_by_the_key_dim),       cmocka_unit_test(every_value_head_is_computed),
        cmocka_unit_test(threads_and_heads_need_not_divide),
    };
    return RUN_SUITE("heads", tests);
}
