/* The fused CPU implementations as the plans choose them: every instruction set of this machine takes the same calls,
 * each judged by the float64 recurrence, over lengths, dims, groups and layouts that divide nothing. */
#include "fused_contexts.h"

static int every_length(gdn_context *context, const char *isa)
{
    int complaints = 0;
    const int64_t longest = test_is_small() ? 70 : 140;
    for (int64_t length = 1; length <= longest; length += test_is_small() ? 3 : 1) {
        char label[64];
        snprintf(label, sizeof(label), "%s, %d tokens", isa, (int)length);
        complaints += check_on(context, &(case_spec){.label = label,
                                                     .seed = (uint64_t)length,
                                                     .num_v_heads = 2,
                                                     .num_k_heads = 1,
                                                     .head_k_dim = 32,
                                                     .head_v_dim = 48,
                                                     .length = length,
                                                     .gates = GATES_CONSTANT,
                                                     .gate = -0.05});
    }
    return complaints;
}

static int dims_and_groups(gdn_context *context, const char *isa)
{
    static const int32_t dims[][2] = {{16, 16}, {16, 80},  {48, 16},   {64, 64},   {80, 112},
                                      {96, 32}, {112, 48}, {128, 128}, {144, 176}, {256, 256}};
    static const int32_t heads[][2] = {{1, 1}, {1, 3}, {2, 6}, {3, 3}, {2, 16}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        const size_t h = i % COUNT_OF(heads);
        char label[64];
        snprintf(label, sizeof(label), "%s, K %d, V %d, heads %d/%d", isa, (int)dims[i][0], (int)dims[i][1],
                 (int)heads[h][0], (int)heads[h][1]);
        complaints += check_on(context, &(case_spec){.label = label,
                                                     .seed = i,
                                                     .num_k_heads = heads[h][0],
                                                     .num_v_heads = heads[h][1],
                                                     .head_k_dim = dims[i][0],
                                                     .head_v_dim = dims[i][1],
                                                     .head_map = (gdn_head_map)(i % 2),
                                                     .lengths = LENGTHS(33, 0, 77, 1),
                                                     .num_seqs = 4,
                                                     .gates = GATES_SMALL});
    }
    return complaints;
}

static int regimes_and_chunks(gdn_context *context, const char *isa)
{
    int complaints = 0;
    for (int regime = 0; regime < NUM_GATE_REGIMES; regime++) {
        for (int32_t chunk = 1; chunk <= 1000; chunk = chunk * 3 + 4) { /* 1, 7, 25, 79, 241, 727 */
            char label[64];
            snprintf(label, sizeof(label), "%s, regime %d, chunk %d", isa, regime, (int)chunk);
            complaints += check_on(context, &(case_spec){.label = label,
                                                         .seed = (uint64_t)(chunk + regime),
                                                         .head_k_dim = 64,
                                                         .length = 200,
                                                         .chunk_size = chunk,
                                                         .gates = (gate_regime)regime,
                                                         .gate = -1.42,
                                                         .keys = (key_regime)(chunk % 3),
                                                         .betas = chunk % 2 ? BETAS_CONSTANT : BETAS_STANDARD,
                                                         .beta = 1.0,
                                                         .adversarial = true});
        }
    }
    return complaints;
}

static int types_and_layouts(gdn_context *context, const char *isa)
{
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    int complaints = 0;
    for (int i = 0; i < 3; i++) {
        for (int operands = OPERANDS_DENSE; operands <= OPERANDS_SHIFTED; operands++) {
            for (int states = STATES_VK; states <= STATES_SHIFTED; states++) {
                char label[64];
                snprintf(label, sizeof(label), "%s, %s, operands %d, states %d", isa, gdn_dtype_name(dtypes[i]),
                         operands, states);
                complaints += check_on(context, &(case_spec){.label = label,
                                                             .seed = (uint64_t)(operands * 10 + states),
                                                             .num_k_heads = 2,
                                                             .num_v_heads = 4,
                                                             .head_v_dim = 80,
                                                             .lengths = LENGTHS(40, 19),
                                                             .num_seqs = 2,
                                                             .dtype = dtypes[i],
                                                             .state_dtype = dtypes[(i + states) % 3],
                                                             .final_dtype = dtypes[operands % 3],
                                                             .operands = (operand_style)operands,
                                                             .states = (state_style)states,
                                                             .finals = (state_style)((states + 1) % 4),
                                                             .qk_norm = (gdn_qk_norm)(operands % 3)});
            }
        }
    }
    return complaints;
}

static int checkpoints(gdn_context *context, const char *isa)
{
    int complaints = 0;
    for (int32_t interval = 1; interval <= 70; interval = interval * 2 + 1) {
        char label[64];
        snprintf(label, sizeof(label), "%s, checkpoints every %d", isa, (int)interval);
        complaints += check_on(context, &(case_spec){.label = label,
                                                     .seed = (uint64_t)interval,
                                                     .num_v_heads = 2,
                                                     .lengths = LENGTHS(100, 5, 63),
                                                     .num_seqs = 3,
                                                     .checkpoint_form = GDN_CHECKPOINT_EVERY,
                                                     .checkpoint_interval = interval});
    }
    return complaints;
}

static int decode_rows(gdn_context *context, const char *isa)
{
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    int complaints = 0;
    for (int32_t tokens = 1; tokens <= 16; tokens++) {
        for (int states = STATES_VK; states <= STATES_PADDED; states++) {
            char label[64];
            snprintf(label, sizeof(label), "%s, decode of %d tokens, states %d", isa, (int)tokens, states);
            const case_spec spec = {.label = label,
                                    .seed = (uint64_t)tokens,
                                    .operation = GDN_OPERATION_DECODE,
                                    .num_k_heads = 2,
                                    .num_v_heads = 4,
                                    .head_k_dim = 80,
                                    .head_v_dim = 144,
                                    .num_seqs = 3,
                                    .tokens_per_row = tokens,
                                    .dtype = dtypes[tokens % 3],
                                    .state_dtype = dtypes[(tokens + states) % 3],
                                    .states = (state_style)states,
                                    .finals = (state_style)states,
                                    .state_form = GDN_STATE_POOL,
                                    .gate_form = (gdn_gate_form)(tokens % 3),
                                    .qk_norm = GDN_QK_NORM_RSQRT};
            complaints += check_on(context, &spec);
        }
    }
    return complaints;
}

static void lengths_1_to_140(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(every_length));
}

static void dims_and_head_groups(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(dims_and_groups));
}

static void gate_regimes_and_chunk_hints(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(regimes_and_chunks));
}

static void types_strides_and_state_layouts(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(types_and_layouts));
}

static void checkpoints_of_every_interval(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(checkpoints));
}

static void decode_of_1_to_16_tokens(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(each_isa(decode_rows));
}

int main(void)
{
    if (!test_backend_is_host()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_1_to_140),
        cmocka_unit_test(dims_and_head_groups),
        cmocka_unit_test(gate_regimes_and_chunk_hints),
        cmocka_unit_test(types_strides_and_state_layouts),
        cmocka_unit_test(checkpoints_of_every_interval),
        cmocka_unit_test(decode_of_1_to_16_tokens),
    };
    return RUN_SUITE("cpu_fused", tests);
}
