/* Every option of the decode and verify call. */
#include "suite.h"

#include <string.h>

static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};

static void dtypes_tokens_and_heads(void **unused)
{
    (void)unused;
    const int32_t heads[][2] = {{1, 1}, {2, 6}, {test_is_small() ? 4 : 16, test_is_small() ? 8 : 32}};
    static const int32_t tokens[] = {1, 2, 3, 8, 16};
    int complaints = 0;
    for (size_t h = 0; h < COUNT_OF(heads); h++) {
        for (size_t t = 0; t < COUNT_OF(tokens); t++) {
            for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
                for (size_t state = 0; state < COUNT_OF(dtypes); state++) {
                    char label[96];
                    snprintf(label, sizeof(label), "decode: heads %d/%d, %d tokens, io %s, states %s", heads[h][0],
                             heads[h][1], tokens[t], gdn_dtype_name(dtypes[io]), gdn_dtype_name(dtypes[state]));
                    const case_spec spec = {.label = label,
                                            .seed = 51,
                                            .operation = GDN_OPERATION_DECODE,
                                            .num_k_heads = heads[h][0],
                                            .num_v_heads = heads[h][1],
                                            .head_k_dim = 32,
                                            .head_v_dim = 48,
                                            .tokens_per_row = tokens[t],
                                            .num_seqs = 3,
                                            .dtype = dtypes[io],
                                            .state_dtype = dtypes[state],
                                            .spare_seqs = 2};
                    complaints += check_case(&spec);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void head_dims(void **unused)
{
    (void)unused;
    static const int32_t dims[] = {1, 3, 16, 33, 64, 100, 128, 256};
    int complaints = 0;
    for (size_t k = 0; k < COUNT_OF(dims); k++) {
        for (size_t v = 0; v < COUNT_OF(dims); v++) {
            char label[96];
            snprintf(label, sizeof(label), "decode: dims %d x %d", dims[k], dims[v]);
            const case_spec spec = {.label = label,
                                    .seed = 52,
                                    .operation = GDN_OPERATION_DECODE,
                                    .num_v_heads = 2,
                                    .head_k_dim = dims[k],
                                    .head_v_dim = dims[v],
                                    .tokens_per_row = 2,
                                    .num_seqs = 2};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void gates_beta_norms_and_maps(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (gdn_gate_form gate = GDN_GATE_LOG_DECAY; gate <= GDN_GATE_RAW; gate++) {
        for (gdn_beta_form beta = GDN_BETA_VALUE; beta <= GDN_BETA_LOGIT; beta++) {
            for (gdn_qk_norm norm = GDN_QK_NORM_NONE; norm <= GDN_QK_NORM_EPS_OUTSIDE; norm++) {
                for (gate_regime regime = 0; regime < NUM_GATE_REGIMES; regime++) {
                    char label[96];
                    snprintf(label, sizeof(label), "decode: gate form %d, beta form %d, norm %d, regime %d", (int)gate,
                             (int)beta, (int)norm, (int)regime);
                    const case_spec spec = {.label = label,
                                            .seed = 53,
                                            .operation = GDN_OPERATION_DECODE,
                                            .num_k_heads = 2,
                                            .num_v_heads = 6,
                                            .head_map = (gdn_head_map)((int)norm % 2),
                                            .head_v_dim = 16,
                                            .tokens_per_row = 4,
                                            .num_seqs = 3,
                                            .gate_form = gate,
                                            .gates = regime,
                                            .gate = -5,
                                            .beta_form = beta,
                                            .beta_scale = beta == GDN_BETA_LOGIT ? 2.0f : 1.0f,
                                            .qk_norm = norm,
                                            .has_scale = regime % 2 == 1,
                                            .scale = 0.3f};
                    complaints += check_case(&spec);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void strided_operands_and_states(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (operand_style style = OPERANDS_DENSE; style <= OPERANDS_PACKED_WITH_OUTPUT; style++) {
        for (state_style states = STATES_VK; states <= STATES_SHIFTED; states++) {
            for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
                char label[96];
                snprintf(label, sizeof(label), "decode: operand style %d, state style %d, io %s", (int)style,
                         (int)states, gdn_dtype_name(dtypes[io]));
                const case_spec spec = {.label = label,
                                        .seed = 54,
                                        .operation = GDN_OPERATION_DECODE,
                                        .num_k_heads = 2,
                                        .num_v_heads = 4,
                                        .head_k_dim = 32,
                                        .head_v_dim = 16,
                                        .tokens_per_row = 3,
                                        .num_seqs = 3,
                                        .dtype = dtypes[io],
                                        .gate_dtype = dtypes[io],
                                        .beta_dtype = dtypes[io],
                                        .operands = style,
                                        .states = states,
                                        .finals = (state_style)((states + 1) % 4)};
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void rows_with_fewer_tokens(void **unused)
{
    (void)unused;
    static const int32_t num_tokens[] = {0, 1, 5, 3};
    int complaints = 0;
    for (int pool = 0; pool < 2; pool++) {
        const case_spec spec = {.label = pool ? "num_tokens, pool" : "num_tokens, dense states",
                                .seed = 55,
                                .operation = GDN_OPERATION_DECODE,
                                .num_k_heads = 2,
                                .num_v_heads = 4,
                                .tokens_per_row = 5,
                                .num_tokens = num_tokens,
                                .num_seqs = 4,
                                .state_form = pool ? GDN_STATE_POOL : GDN_STATE_DENSE};
        complaints += check_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

static void pools_by_slots(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int wide = 0; wide < 2; wide++) {
        for (int policy = 0; policy < 3; policy++) {
            for (size_t state = 0; state < COUNT_OF(dtypes); state++) {
                char label[96];
                snprintf(label, sizeof(label), "decode pool: slots %s, policy %d, %s states", wide ? "i64" : "i32",
                         policy, gdn_dtype_name(dtypes[state]));
                const case_spec spec = {.label = label,
                                        .seed = 56,
                                        .operation = GDN_OPERATION_DECODE,
                                        .num_k_heads = 2,
                                        .tokens_per_row = 2,
                                        .num_seqs = 5,
                                        .state_form = GDN_STATE_POOL,
                                        .state_dtype = dtypes[state],
                                        .states = STATES_PADDED,
                                        .slots_dtype = wide ? GDN_DTYPE_I64 : GDN_DTYPE_I32,
                                        .in_place = policy == 0,
                                        .no_write_slots = policy == 2,
                                        .num_slots = 11,
                                        .read_slots = SLOTS(7, 2, -1, 0, 5),
                                        .write_slots = SLOTS(10, -3, 4, 1, 9),
                                        .has_initial_state = FLAGS(1, 1, 1, 0, 7)};
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Verification of drafted tokens: the state after each token is kept, and an accepted prefix is committed by reading
 * that slot in the next call. */
static void token_slots_keep_the_state_after_each_token(void **unused)
{
    (void)unused;
    static const int64_t slots[] = {3, -1, 4, 5, 6, 7, -1, -1, 8, 9, 10, 11};
    static const int32_t num_tokens[] = {4, 3, 2};
    int complaints = 0;
    for (int finals = 0; finals < 2; finals++) {
        for (size_t state = 0; state < COUNT_OF(dtypes); state++) {
            char label[96];
            snprintf(label, sizeof(label), "token slots, %s states%s", gdn_dtype_name(dtypes[state]),
                     finals ? " and write slots" : "");
            const case_spec spec = {.label = label,
                                    .seed = 57,
                                    .operation = GDN_OPERATION_DECODE,
                                    .num_k_heads = 2,
                                    .num_v_heads = 4,
                                    .tokens_per_row = 4,
                                    .num_tokens = num_tokens,
                                    .num_seqs = 3,
                                    .state_form = GDN_STATE_POOL,
                                    .state_dtype = dtypes[state],
                                    .num_slots = 16,
                                    .read_slots = SLOTS(0, 1, 2),
                                    .write_slots = SLOTS(12, 13, 14),
                                    .no_write_slots = !finals,
                                    .token_slots = slots};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void a_row_may_store_over_the_slot_it_read(void **unused)
{
    (void)unused;
    static const int64_t slots[] = {3, 4, 0, 5, 1, 6};
    const case_spec spec = {.label = "a token slot is the read slot",
                            .seed = 58,
                            .operation = GDN_OPERATION_DECODE,
                            .num_k_heads = 2,
                            .tokens_per_row = 3,
                            .num_seqs = 2,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 9,
                            .read_slots = SLOTS(0, 1),
                            .write_slots = SLOTS(7, 8),
                            .token_slots = slots};
    NO_COMPLAINTS(check_case(&spec));
}

static void a_call_of_no_rows(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "no rows", .seed = 59, .operation = GDN_OPERATION_DECODE, .num_seqs = 2};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    stage.decode.num_rows = 0;
    REQUIRE_OK(stage_run(&stage));
    assert_int_equal(stage_collect(&stage), 0);
    assert_int_equal(judge_nothing_written(&c), 0);
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_tokens_and_heads),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(gates_beta_norms_and_maps),
        cmocka_unit_test(strided_operands_and_states),
        cmocka_unit_test(rows_with_fewer_tokens),
        cmocka_unit_test(pools_by_slots),
        cmocka_unit_test(token_slots_keep_the_state_after_each_token),
        cmocka_unit_test(a_row_may_store_over_the_slot_it_read),
        cmocka_unit_test(a_call_of_no_rows),
    };
    return RUN_SUITE("decode options", tests);
}
