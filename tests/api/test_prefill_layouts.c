/* Every option of the prefill call that changes where things lie: strides, alignment, state forms, slots,
 * cu_seqlens. Values are judged by the recurrence; a view's bits equal the dense call's. */
#include "suite.h"

#include <string.h>

static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};

/* Runs both and compares bits wherever the plan took the same implementation for both. */
static int compare_with_dense(const case_spec *spec)
{
    case_spec dense_spec = *spec;
    dense_spec.operands = OPERANDS_DENSE;
    dense_spec.states = dense_spec.finals = STATES_VK;
    dense_spec.label = "its dense copy";
    test_case view, dense;
    case_build(&view, spec);
    case_build(&dense, &dense_spec);
    int complaints = check_built_case(test_context(), &view);
    if (case_run(test_context(), &dense, NULL) != GDN_OK) {
        complaints++;
    }
    char view_name[64], dense_name[64];
    case_implementation(test_context(), &view, view_name);
    case_implementation(test_context(), &dense, dense_name);
    if (complaints == 0 && strcmp(view_name, dense_name) == 0) {
        complaints += same_results(&view, &dense);
    }
    case_free(&view);
    case_free(&dense);
    return complaints;
}

static void strided_operands_equal_dense_ones(void **unused)
{
    (void)unused;
    static const int64_t tokens[] = {1, 9, 63, 64, 65, 130};
    static const int32_t heads[][2] = {{2, 2}, {2, 6}};
    int complaints = 0;
    for (operand_style style = OPERANDS_PACKED; style <= OPERANDS_PACKED_WITH_OUTPUT; style++) {
        for (size_t t = 0; t < COUNT_OF(tokens); t++) {
            for (size_t h = 0; h < COUNT_OF(heads); h++) {
                for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
                    if (test_is_small() && io != (t + h) % 3) {
                        continue;
                    }
                    char label[96];
                    snprintf(label, sizeof(label), "operand style %d, %d tokens, heads %d/%d, io %s", (int)style,
                             (int)tokens[t], heads[h][0], heads[h][1], gdn_dtype_name(dtypes[io]));
                    const case_spec spec = {.label = label,
                                            .seed = 31,
                                            .num_k_heads = heads[h][0],
                                            .num_v_heads = heads[h][1],
                                            .head_k_dim = 32,
                                            .head_v_dim = 16,
                                            .dtype = dtypes[io],
                                            .gate_dtype = dtypes[io],
                                            .beta_dtype = dtypes[io],
                                            .gate_form = GDN_GATE_RAW,
                                            .beta_form = GDN_BETA_LOGIT,
                                            .operands = style,
                                            .length = tokens[t],
                                            .extra_tokens = 3};
                    complaints += compare_with_dense(&spec);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void broadcast_heads_are_strides_of_zero(void **unused)
{
    (void)unused;
    const case_spec spec = {
        .label = "one gate for all heads", .seed = 32, .num_k_heads = 4, .num_v_heads = 4, .length = 70};
    test_case c;
    case_build(&c, &spec);
    c.problem.gate.head_stride = 0;
    c.problem.beta.head_stride = 0;
    c.problem.k.head_stride = 0;
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    case_free(&c);
}

static void equal_length_batches(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (operand_style style = OPERANDS_DENSE; style <= OPERANDS_PADDED; style++) {
        for (int64_t length = 1; length <= 130; length = length == 1 ? 64 : length + 33) {
            char label[96];
            snprintf(label, sizeof(label), "equal lengths of %d, operand style %d", (int)length, (int)style);
            const case_spec spec = {.label = label,
                                    .seed = 33,
                                    .num_k_heads = 2,
                                    .num_v_heads = 4,
                                    .equal_length = true,
                                    .length = length,
                                    .num_seqs = 3,
                                    .operands = style};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void dense_states_in_every_layout(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (state_style in = STATES_VK; in <= STATES_SHIFTED; in++) {
        for (state_style out = STATES_VK; out <= STATES_SHIFTED; out++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                char label[96];
                snprintf(label, sizeof(label), "states style %d to %d%s", (int)in, (int)out,
                         in_place ? ", in place" : "");
                const case_spec spec = {.label = label,
                                        .seed = 34,
                                        .num_k_heads = 2,
                                        .num_v_heads = 4,
                                        .head_k_dim = 32,
                                        .head_v_dim = 48,
                                        .lengths = LENGTHS(65, 0, 3),
                                        .num_seqs = 3,
                                        .states = in,
                                        .finals = out,
                                        .in_place = in_place};
                complaints += compare_with_dense(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void dense_states_that_are_not_there(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int initial = 0; initial < 2; initial++) {
        for (int final = 0; final < 2; final++) {
            char label[96];
            snprintf(label, sizeof(label), "initial states %s, final states %s", initial ? "given" : "NULL",
                     final ? "wanted" : "NULL");
            const case_spec spec = {.label = label,
                                    .seed = 35,
                                    .num_k_heads = 2,
                                    .lengths = LENGTHS(65, 0, 3),
                                    .num_seqs = 3,
                                    .no_initial_state = !initial,
                                    .no_final_state = !final,
                                    .has_initial_state = initial ? FLAGS(1, 0, 0) : NULL};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void pools_by_slots(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (state_style style = STATES_VK; style <= STATES_SHIFTED; style++) {
        for (int wide = 0; wide < 2; wide++) {
            for (int policy = 0; policy < 4; policy++) {
                for (size_t state = 0; state < COUNT_OF(dtypes); state++) {
                    if (test_is_small() && state != (size_t)(policy + wide) % 3) {
                        continue;
                    }
                    static const char *const policies[] = {"in place", "other slots", "not written",
                                                           "the same slots in another array"};
                    char label[96];
                    snprintf(label, sizeof(label), "pool style %d, slots %s, %s, %s states", (int)style,
                             wide ? "i64" : "i32", policies[policy], gdn_dtype_name(dtypes[state]));
                    const case_spec spec = {.label = label,
                                            .seed = 36,
                                            .num_k_heads = 2,
                                            .head_k_dim = 16,
                                            .head_v_dim = 32,
                                            .lengths = LENGTHS(65, 0, 3, 1),
                                            .num_seqs = 4,
                                            .state_form = GDN_STATE_POOL,
                                            .state_dtype = dtypes[state],
                                            .states = style,
                                            .slots_dtype = wide ? GDN_DTYPE_I64 : GDN_DTYPE_I32,
                                            .cu_dtype = wide ? GDN_DTYPE_I32 : GDN_DTYPE_I64,
                                            .in_place = policy == 0,
                                            .no_write_slots = policy == 2,
                                            .num_slots = 11,
                                            .read_slots = SLOTS(7, 2, 0, 5),
                                            .write_slots = policy == 3 ? SLOTS(7, 2, 0, 5) : SLOTS(10, 3, 1, 9),
                                            .has_initial_state = FLAGS(1, 1, 0, 255)};
                    complaints += check_case(&spec);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void sequences_share_a_slot_they_only_read(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "one prefix state for three sequences",
                            .seed = 37,
                            .num_k_heads = 2,
                            .lengths = LENGTHS(65, 4, 0),
                            .num_seqs = 3,
                            .state_form = GDN_STATE_POOL,
                            .read_slots = SLOTS(1, 1, 1),
                            .write_slots = SLOTS(0, 2, 3)};
    NO_COMPLAINTS(check_case(&spec));
}

static void maxima_above_the_run_change_nothing(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "exact maxima",
                      .seed = 38,
                      .num_k_heads = 2,
                      .num_v_heads = 4,
                      .lengths = LENGTHS(65, 0, 200),
                      .num_seqs = 3};
    test_case exact, roomy;
    case_build(&exact, &spec);
    spec.label = "roomy maxima";
    spec.spare_seqs = 5;
    spec.spare_tokens = 1000;
    case_build(&roomy, &spec);
    int complaints = check_built_case(test_context(), &exact) + check_built_case(test_context(), &roomy);
    complaints += same_results(&exact, &roomy);
    case_free(&exact);
    case_free(&roomy);
    NO_COMPLAINTS(complaints);
}

static void calls_of_no_sequences_and_of_no_tokens(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "no tokens", .seed = 39, .num_k_heads = 2, .lengths = LENGTHS(0, 0), .num_seqs = 2};
    NO_COMPLAINTS(check_case(&spec));

    spec.label = "no sequences";
    spec.lengths = LENGTHS(5, 6);
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    stage.prefill.num_seqs = 0;
    REQUIRE_OK(stage_run(&stage));
    assert_int_equal(stage_collect(&stage), 0);
    assert_int_equal(judge_nothing_written(&c), 0);
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strided_operands_equal_dense_ones),
        cmocka_unit_test(broadcast_heads_are_strides_of_zero),
        cmocka_unit_test(equal_length_batches),
        cmocka_unit_test(dense_states_in_every_layout),
        cmocka_unit_test(dense_states_that_are_not_there),
        cmocka_unit_test(pools_by_slots),
        cmocka_unit_test(sequences_share_a_slot_they_only_read),
        cmocka_unit_test(maxima_above_the_run_change_nothing),
        cmocka_unit_test(calls_of_no_sequences_and_of_no_tokens),
    };
    return RUN_SUITE("prefill layouts", tests);
}
