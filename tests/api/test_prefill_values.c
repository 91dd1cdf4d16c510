/* Every option of the prefill call that changes what is computed: dtypes, heads, dims, gates, beta, norms, scale,
 * chunk size, segments, numerics. Each result is judged by the float64 recurrence. */
#include "suite.h"

#include <string.h>

static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};

/* The caller sets the three lengths. */
static case_spec base_spec(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 11,
                       .num_k_heads = test_is_small() ? 1 : 2,
                       .num_v_heads = test_is_small() ? 2 : 4,
                       .head_k_dim = test_is_small() ? 16 : 32,
                       .head_v_dim = 48,
                       .num_seqs = 3};
}

static void dtypes_of_inputs_and_states(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 130};
    int complaints = 0;
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        for (size_t state = 0; state < COUNT_OF(dtypes); state++) {
            for (int narrow_gates = 0; narrow_gates < 2; narrow_gates++) {
                char label[96];
                snprintf(label, sizeof(label), "io %s, states %s, gates %s", gdn_dtype_name(dtypes[io]),
                         gdn_dtype_name(dtypes[state]), narrow_gates ? "as io" : "f32");
                case_spec spec = base_spec(label);
                spec.lengths = lengths;
                spec.dtype = dtypes[io];
                spec.state_dtype = dtypes[state];
                spec.final_dtype = dtypes[(state + 1) % 3];
                spec.gate_dtype = spec.beta_dtype = narrow_gates ? dtypes[io] : GDN_DTYPE_F32;
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void gate_forms_in_every_regime(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 200};
    int complaints = 0;
    for (gate_regime regime = 0; regime < NUM_GATE_REGIMES; regime++) {
        for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
            char label[96];
            snprintf(label, sizeof(label), "gate form %d, regime %d", (int)form, (int)regime);
            case_spec spec = base_spec(label);
            spec.lengths = lengths;
            spec.gate_form = form;
            spec.gates = regime;
            spec.gate = -0.05;
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void constant_gates_from_none_to_total(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 200};
    static const double decays[] = {0, -1e-4, -1e-2, -0.5, -5, -20};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(decays); i++) {
        for (gdn_gate_form form = GDN_GATE_LOG_DECAY; form <= GDN_GATE_RAW; form++) {
            char label[96];
            snprintf(label, sizeof(label), "gate form %d, log decay %g", (int)form, decays[i]);
            case_spec spec = base_spec(label);
            spec.lengths = lengths;
            spec.gate_form = form;
            spec.gates = GATES_CONSTANT;
            spec.gate = decays[i];
            spec.state_size = 1;
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void beta_forms(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 130};
    static const double betas[] = {-1, 0, 0.001, 1, 1.5, 2};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(betas); i++) {
        for (gdn_beta_form form = GDN_BETA_VALUE; form <= GDN_BETA_LOGIT; form++) {
            char label[96];
            snprintf(label, sizeof(label), "beta form %d, beta %g", (int)form, betas[i]);
            case_spec spec = base_spec(label);
            spec.lengths = lengths;
            spec.beta_form = form;
            spec.beta_scale = form == GDN_BETA_LOGIT ? 2.0f : 1.0f;
            spec.betas = betas[i] < 0 ? BETAS_STANDARD : BETAS_CONSTANT;
            spec.beta = betas[i];
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void raw_gates_without_dt_bias(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("no dt_bias");
    spec.lengths = LENGTHS(70, 1, 130);
    spec.gate_form = GDN_GATE_RAW;
    spec.no_dt_bias = true;
    NO_COMPLAINTS(check_case(&spec));
}

static void norms_of_q_and_k(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 130};
    static const float epsilons[] = {1e-12f, 1e-6f, 0.5f};
    int complaints = 0;
    for (gdn_qk_norm norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
        for (size_t e = 0; e < COUNT_OF(epsilons); e++) {
            for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
                char label[96];
                snprintf(label, sizeof(label), "norm %d, eps %g, io %s", (int)norm, (double)epsilons[e],
                         gdn_dtype_name(dtypes[io]));
                case_spec spec = base_spec(label);
                spec.lengths = lengths;
                spec.qk_norm = norm;
                spec.qk_norm_eps = epsilons[e];
                spec.dtype = dtypes[io];
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void scales_are_taken_as_given(void **unused)
{
    (void)unused;
    const int64_t lengths[] = {test_is_small() ? 37 : 70, 1, test_is_small() ? 67 : 130};
    static const float scales[] = {0.0f, 1.0f, 0.1f, -0.5f, 1e-20f, 1e6f};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        char label[96];
        snprintf(label, sizeof(label), "scale %g", (double)scales[i]);
        case_spec spec = base_spec(label);
        spec.lengths = lengths;
        spec.has_scale = true;
        spec.scale = scales[i];
        complaints += check_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

static void head_counts_ratios_and_maps(void **unused)
{
    (void)unused;
    static const int32_t heads[][2] = {{1, 1},  {3, 3},  {1, 2}, {2, 4}, {2, 6},
                                       {3, 12}, {2, 16}, {1, 8}, {5, 5}, {7, 7}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        for (gdn_head_map map = GDN_HEAD_MAP_GROUPED; map <= GDN_HEAD_MAP_TILED; map++) {
            for (size_t io = 0; io < 2; io++) {
                char label[96];
                snprintf(label, sizeof(label), "heads %d/%d, map %d, io %s", heads[i][0], heads[i][1], (int)map,
                         gdn_dtype_name(dtypes[io]));
                const case_spec spec = {.label = label,
                                        .seed = 5 + i,
                                        .num_k_heads = heads[i][0],
                                        .num_v_heads = heads[i][1],
                                        .head_k_dim = 16,
                                        .head_v_dim = 24,
                                        .dtype = dtypes[io],
                                        .head_map = map,
                                        .length = 75};
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void model_head_dims(void **unused)
{
    (void)unused;
    static const int32_t dims[][2] = {{64, 64}, {128, 128}, {128, 64}, {64, 128}, {256, 256}, {60, 60}, {100, 100}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
            char label[96];
            snprintf(label, sizeof(label), "dims %d x %d, io %s", dims[i][0], dims[i][1], gdn_dtype_name(dtypes[io]));
            const case_spec spec = {.label = label,
                                    .seed = 3 + i,
                                    .num_k_heads = 1,
                                    .num_v_heads = 2,
                                    .head_k_dim = dims[i][0],
                                    .head_v_dim = dims[i][1],
                                    .dtype = dtypes[io],
                                    .qk_norm = GDN_QK_NORM_RSQRT,
                                    .gate_form = GDN_GATE_RAW,
                                    .beta_form = GDN_BETA_LOGIT,
                                    .length = test_is_small() ? 67 : 200};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void chunk_size_hints(void **unused)
{
    (void)unused;
    static const int32_t hints[] = {1,  2,  3,  7,   8,   15,  16,  17,  31,  32,  33,    48,
                                    63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 100000};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(hints); i++) {
        char label[96];
        snprintf(label, sizeof(label), "chunk size hint %d", hints[i]);
        const case_spec spec = {.label = label,
                                .seed = 21,
                                .num_k_heads = 1,
                                .num_v_heads = 2,
                                .head_k_dim = 24,
                                .head_v_dim = 16,
                                .chunk_size = hints[i],
                                .state_size = 1,
                                .gates = GATES_SMALL,
                                .lengths = LENGTHS(300, 5, 65),
                                .num_seqs = 3};
        complaints += check_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

static void segments_of_one_sequence(void **unused)
{
    (void)unused;
    static const int32_t segments[] = {1, 2, 3, 7, 64};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(segments); i++) {
        char label[96];
        snprintf(label, sizeof(label), "%d segments", segments[i]);
        const case_spec spec = {.label = label,
                                .seed = 22,
                                .num_k_heads = 1,
                                .num_v_heads = 2,
                                .head_k_dim = 32,
                                .num_segments = segments[i],
                                .state_size = 1,
                                .gates = GATES_SMALL,
                                .lengths = LENGTHS(700, 65),
                                .num_seqs = 2};
        complaints += check_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

/* Products rounded below float32 are only ever done where they were asked for; where they cannot be, the plan
 * refuses rather than answer something else. */
static void numerics_are_honoured_or_refused(void **unused)
{
    (void)unused;
    for (gdn_numerics numerics = GDN_NUMERICS_DEFAULT; numerics <= GDN_NUMERICS_BF16; numerics++) {
        const case_spec spec = {
            .label = "numerics", .seed = 23, .num_k_heads = 1, .num_v_heads = 2, .numerics = numerics, .length = 130};
        test_case c;
        case_build(&c, &spec);
        gdn_plan *plan = NULL;
        const gdn_status status = gdn_plan_create(&plan, test_context(), &c.problem);
        if (status == GDN_OK) {
            NO_COMPLAINTS(check_built_case(test_context(), &c));
        } else {
            assert_true(numerics > GDN_NUMERICS_FP32);
            assert_int_equal(status, GDN_ERROR_UNSUPPORTED);
            assert_non_null(strstr(gdn_last_error(), "products"));
        }
        gdn_plan_destroy(&plan);
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_of_inputs_and_states),
        cmocka_unit_test(gate_forms_in_every_regime),
        cmocka_unit_test(constant_gates_from_none_to_total),
        cmocka_unit_test(beta_forms),
        cmocka_unit_test(raw_gates_without_dt_bias),
        cmocka_unit_test(norms_of_q_and_k),
        cmocka_unit_test(scales_are_taken_as_given),
        cmocka_unit_test(head_counts_ratios_and_maps),
        cmocka_unit_test(model_head_dims),
        cmocka_unit_test(chunk_size_hints),
        cmocka_unit_test(segments_of_one_sequence),
        cmocka_unit_test(numerics_are_honoured_or_refused),
    };
    return RUN_SUITE("prefill values", tests);
}
