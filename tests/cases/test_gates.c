/* Gates that overflowed, cancelled or vanished in other implementations. */
#include "slices.h"
#include "suite.h"

#include <math.h>
#include <string.h>

static void zero_gates(test_case *c)
{
    for (int64_t t = 0; t < c->total_tokens; t++) {
        for (int32_t head = 0; head < c->problem.num_v_heads; head++) {
            case_put_log_decay(c, t, head, 0);
        }
    }
}

/* Entry 1: a decay ratio split into two factors overflows where 15, 31 or 63 steps of it pass exp's range. */
static void split_decay_factors_overflow(void **unused)
{
    (void)unused;
    static const double decays[] = {-1.38, -1.42, -2.84, -2.88, -5.90, -5.93, -20, -80};
    for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
        const case_spec spec = {.label = "constant gates either side of overflow",
                                .seed = 501,
                                .adversarial = true,
                                .num_k_heads = 8,
                                .head_k_dim = test_is_small() ? 32 : 128,
                                .length = 192,
                                .gate_form = form,
                                .gates = GATES_CONSTANT,
                                .gate = -1,
                                .betas = BETAS_CONSTANT,
                                .beta = 0.5,
                                .state_size = 1};
        test_case c;
        case_build(&c, &spec);
        for (int64_t t = 0; t < 192; t++) {
            for (int32_t head = 0; head < 8; head++) {
                case_put_log_decay(&c, t, head, decays[head]);
            }
        }
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
    }
}

/* Entry 4: a tiny positive decay passes a guard against zero and overflows its reciprocal. */
static void tiny_decay_has_no_reciprocal(void **unused)
{
    (void)unused;
    for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
        case_spec spec = {.label = "every alpha 1e-12",
                          .seed = 502,
                          .num_k_heads = 2,
                          .length = 96,
                          .gate_form = form,
                          .gates = GATES_CONSTANT,
                          .gate = log(1e-12),
                          .state_size = 1};
        test_case c;
        case_build(&c, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        /* Nothing older survives: o_t = scale beta (q.k) v. */
        for (int64_t t = 1; t < 96; t++) {
            for (int32_t head = 0; head < 2; head++) {
                double dot = 0, norm = 0;
                for (int32_t d = 0; d < 32; d++) {
                    dot += case_get(&c, CASE_Q, t, head, d) * case_get(&c, CASE_K, t, head, d);
                    norm = fmax(norm, fabs(case_get(&c, CASE_V, t, head, d)));
                }
                const double factor = (double)c.problem.scale * case_get(&c, CASE_BETA, t, head, 0);
                for (int32_t d = 0; d < 32; d++) {
                    const double want = factor * dot * case_get(&c, CASE_V, t, head, d);
                    assert_true(fabs(case_output(&c, t, head, d) - want) <= 1e-6 * factor * norm);
                }
            }
        }
        case_free(&c);

        spec.label = "one token of -100 among -1e-3";
        spec.gate = -1e-3;
        case_build(&c, &spec);
        case_put_log_decay(&c, 20, 0, -100);
        case_put_log_decay(&c, 20, 1, -100);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
    }
}

/* Entry 14: alpha = 0 makes the prefix sum -inf, and -inf - -inf is NaN. It is a restart instead. */
static void a_zero_decay_is_a_restart(void **unused)
{
    (void)unused;
    static const int64_t resets[] = {0, 17, 63, 64, 65, 129};
    static const double depths[] = {-2968, -3e38, -INFINITY};
    for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
        for (size_t d = 0; d < COUNT_OF(depths); d++) {
            case_spec spec = {.label = "resets",
                              .seed = 503,
                              .num_k_heads = 2,
                              .length = 130,
                              .gate_form = form,
                              .gates = GATES_CONSTANT,
                              .gate = -0.05,
                              .state_size = 1};
            test_case c;
            case_build(&c, &spec);
            for (size_t i = 0; i < COUNT_OF(resets); i++) {
                case_put_log_decay(&c, resets[i], 0, depths[d]);
                case_put_log_decay(&c, resets[i], 1, depths[d]);
            }
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            for (size_t i = 0; i < COUNT_OF(resets); i++) {
                test_case fresh;
                spec.label = "a fresh run from the reset";
                spec.length = 130 - resets[i];
                spec.no_initial_state = true;
                case_build(&fresh, &spec);
                copy_head_parameters(&fresh, &c);
                copy_tokens(&fresh, 0, &c, resets[i], spec.length);
                NO_COMPLAINTS(check_built_case(test_context(), &fresh));
                NO_COMPLAINTS(close_outputs(&fresh, 0, &c, resets[i], spec.length));
                case_free(&fresh);
            }
            case_free(&c);
        }
    }
}

/* The raw gate's own extremes: A_log 5 with a 20 (-2968), and a of 3e38. */
static void saturated_raw_gates_are_resets(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "A_log 5, a 20 and 3e38",
                            .seed = 504,
                            .num_k_heads = 2,
                            .length = 130,
                            .gate_form = GDN_GATE_RAW,
                            .no_dt_bias = true,
                            .gates = GATES_CONSTANT,
                            .gate = -0.05,
                            .state_size = 1};
    test_case c;
    case_build(&c, &spec);
    ((float *)case_before(&c, CASE_A_LOG))[0] = ((float *)case_before(&c, CASE_A_LOG))[1] = 5;
    for (int64_t t = 0; t < 130; t++) {
        for (int32_t head = 0; head < 2; head++) {
            case_put_log_decay(&c, t, head, -0.05);
        }
    }
    case_put(&c, CASE_GATE, 17, 0, 0, 20);
    case_put(&c, CASE_GATE, 64, 0, 0, 3e38);
    case_put(&c, CASE_GATE, 65, 1, 0, 3e38);
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    case_free(&c);
}

/* Entry 16: the chunk-end factor rebuilt as a product of two, one of which underflows. */
static void a_hard_first_token_wipes_only_what_came_before(void **unused)
{
    (void)unused;
    static const int64_t period[] = {16, 32, 64, 128};
    for (size_t i = 0; i < COUNT_OF(period); i++) {
        for (int two = 0; two < 2; two++) {
            const case_spec spec = {.label = "hard decay at each chunk's start",
                                    .seed = 505,
                                    .num_k_heads = 2,
                                    .length = 260,
                                    .gates = GATES_CONSTANT,
                                    .state_size = 1};
            test_case c;
            case_build(&c, &spec);
            for (int64_t t = 0; t < 260; t += period[i]) {
                case_put_log_decay(&c, t, 0, two ? -60 : -95);
                if (two) {
                    case_put_log_decay(&c, t + 1, 0, -60);
                }
            }
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            case_free(&c);
        }
    }
}

/* Entry 16: after one token of -1e4 or more, a float32 prefix sum has lost the -0.01 steps that follow. */
static void one_huge_decay_does_not_blur_the_next_tokens(void **unused)
{
    (void)unused;
    static const double depths[] = {-104, -1e3, -1e4, -1e5, -1e6, -1e30};
    for (size_t i = 0; i < COUNT_OF(depths); i++) {
        const case_spec spec = {.label = "one huge decay, then -0.01",
                                .seed = 506,
                                .num_k_heads = 2,
                                .length = 130,
                                .gates = GATES_CONSTANT,
                                .gate = -0.01,
                                .state_size = 1};
        test_case c;
        case_build(&c, &spec);
        for (int64_t t = 3; t < 130; t += 41) {
            case_put_log_decay(&c, t, 0, depths[i]);
        }
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
    }
}

/* Entry 38: an exp wrapper that altered the g = 0 case. Exactly no decay is as accurate as nearly none. */
static void no_decay_at_all_is_exact(void **unused)
{
    (void)unused;
    for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
        case_spec spec = {.label = "every gate 0",
                          .seed = 507,
                          .num_k_heads = 2,
                          .head_k_dim = 64,
                          .length = 300,
                          .gate_form = form,
                          .gates = GATES_CONSTANT,
                          .state_size = 1};
        test_case c;
        case_build(&c, &spec);
        zero_gates(&c);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
        spec.label = "half the gates 0";
        spec.gates = GATES_MIXED_ZEROS;
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 40: alpha 0.9 through every form of the gate is the same call. */
static void gate_forms_agree(void **unused)
{
    (void)unused;
    test_case c[3];
    for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
        const case_spec spec = {.label = "alpha 0.9",
                                .seed = 508,
                                .num_k_heads = 2,
                                .length = 100,
                                .gate_form = form,
                                .gates = GATES_CONSTANT,
                                .gate = log(0.9),
                                .state_size = 1};
        case_build(&c[form], &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c[form]));
        NO_COMPLAINTS(close_outputs(&c[form], 0, &c[0], 0, 100));
    }
    for (int i = 0; i < 3; i++) {
        case_free(&c[i]);
    }
}

/* Entry 61: a and b in 16 bits cost their own rounding and nothing after it: the reference decodes the same bits. */
static void narrow_gate_inputs_are_widened_before_the_gate(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_BF16, GDN_DTYPE_F16};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        const case_spec spec = {.label = "gates in 16 bits over 1024 tokens",
                                .seed = 509,
                                .num_k_heads = 2,
                                .length = test_is_small() ? 200 : 1024,
                                .dtype = dtypes[i],
                                .gate_dtype = dtypes[i],
                                .beta_dtype = dtypes[i],
                                .gate_form = GDN_GATE_RAW,
                                .beta_form = GDN_BETA_LOGIT,
                                .gates = GATES_CONSTANT,
                                .gate = -0.003,
                                .state_size = 1};
        NO_COMPLAINTS(check_case(&spec));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_decay_factors_overflow),
        cmocka_unit_test(tiny_decay_has_no_reciprocal),
        cmocka_unit_test(a_zero_decay_is_a_restart),
        cmocka_unit_test(saturated_raw_gates_are_resets),
        cmocka_unit_test(a_hard_first_token_wipes_only_what_came_before),
        cmocka_unit_test(one_huge_decay_does_not_blur_the_next_tokens),
        cmocka_unit_test(no_decay_at_all_is_exact),
        cmocka_unit_test(gate_forms_agree),
        cmocka_unit_test(narrow_gate_inputs_are_widened_before_the_gate),
    };
    return RUN_SUITE("gates", tests);
}
