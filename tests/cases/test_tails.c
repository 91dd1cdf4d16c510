/* Lengths that fill no chunk: what the rows past a sequence's end must not do. */
#include "slices.h"
#include "suite.h"

#include <math.h>
#include <string.h>

/* One reference for all lengths: checkpoints after every token of the longest. */
static void sweep(const case_spec *base, int64_t longest, int64_t stride)
{
    case_spec spec = *base;
    spec.length = longest;
    spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
    spec.checkpoint_interval = 1;
    test_case whole;
    case_build(&whole, &spec);
    reference_result ref = reference_of(&whole);
    const int64_t state = (int64_t)spec.num_v_heads * whole.problem.head_v_dim * whole.problem.head_k_dim;
    int complaints = 0;
    for (int64_t length = 1; length <= longest; length += stride) {
        char label[64];
        snprintf(label, sizeof(label), "%s: %d tokens", base->label, (int)length);
        case_spec part = *base;
        part.label = label;
        part.length = length;
        part.extra_tokens = 3; /* full of NaN */
        test_case c;
        case_build(&c, &part);
        copy_head_parameters(&c, &whole);
        copy_tokens(&c, 0, &whole, 0, length);
        copy_initial_state(&c, 0, &whole, 0);
        if (case_run(test_context(), &c, NULL) != GDN_OK) {
            complaints++;
            case_free(&c);
            continue;
        }
        reference_result prefix = {.num_rows = 1,
                                   .num_tokens = length + 3,
                                   .o = ref.o,
                                   .token_written = (bool[512]){false},
                                   .state = ref.checkpoints + (length - 1) * state,
                                   .row_done = (bool[]){true},
                                   .o_terms = ref.o_terms,
                                   .state_terms = ref.checkpoint_terms + (length - 1) * spec.num_v_heads};
        memset(prefix.token_written, 1, (size_t)length);
        complaints += judge_case(&c, &prefix);
        case_free(&c);
    }
    reference_free(&ref);
    case_free(&whole);
    NO_COMPLAINTS(complaints);
}

/* Entries 5, 20 and 21: every length from 1 to 260, o and every element of the final state. */
static void every_length_has_its_own_last_row(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "standard gates",
                            .seed = 701,
                            .num_k_heads = 1,
                            .num_v_heads = 2,
                            .head_k_dim = 32,
                            .head_v_dim = 48,
                            .gate_form = GDN_GATE_RAW,
                            .beta_form = GDN_BETA_LOGIT,
                            .qk_norm = GDN_QK_NORM_RSQRT,
                            .state_size = 1};
    sweep(&spec, 260, test_is_small() ? 7 : 1);
}

/* Entry 5: the last row's prefix sum read at index C - 1, where a padded tail holds 0. */
static void tail_rows_do_not_decay_state(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "g -0.05",
                      .seed = 702,
                      .num_k_heads = 2,
                      .num_v_heads = 2,
                      .head_k_dim = 16,
                      .gates = GATES_CONSTANT,
                      .gate = -0.05,
                      .state_size = 1};
    sweep(&spec, 130, test_is_small() ? 7 : 1);
    /* 5 tokens that write nothing: the old state times exp(-0.25). */
    spec.length = 5;
    spec.betas = BETAS_CONSTANT;
    test_case c;
    case_build(&c, &spec);
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    const float before = ((const float *)case_before(&c, CASE_STATE))[0];
    assert_true(fabs(case_state_after(&c, CASE_FINAL_STATE, 0, 0, 0, 0) / (double)before - 0.7788008) < 1e-6);
    case_free(&c);
}

/* Entry 17: rows past the end are zero before bias and softplus, and softplus(0 + bias) is a gate. */
static void a_bias_does_not_open_padding_gates(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {5, 69};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const case_spec spec = {.label = "dt_bias 1, A_log -4, a 0",
                                .seed = 703,
                                .num_k_heads = 2,
                                .length = lengths[i],
                                .gate_form = GDN_GATE_RAW,
                                .beta_form = GDN_BETA_LOGIT,
                                .state_size = 1};
        test_case c;
        case_build(&c, &spec);
        for (int32_t head = 0; head < 2; head++) {
            ((float *)case_before(&c, CASE_A_LOG))[head] = -4;
            ((float *)case_before(&c, CASE_DT_BIAS))[head] = 1;
            for (int64_t t = 0; t < lengths[i]; t++) {
                case_put(&c, CASE_GATE, t, head, 0, 0);
            }
        }
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
    }
}

/* Entry 20: the chunk-end decay taken from each thread's own row scales some columns wrongly. */
static void the_chunk_end_decay_is_one_number(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {64, 70, 128, 200};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const case_spec spec = {.label = "g -0.1",
                                .seed = 704,
                                .num_k_heads = 2,
                                .head_k_dim = 64,
                                .length = lengths[i],
                                .gates = GATES_CONSTANT,
                                .gate = -0.1,
                                .state_size = 1};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 22: scratch sized by tokens and written by whole chunks. The runner gives exactly the workspace asked for,
 * guards it, and fills it with NaN. */
static void scratch_is_sized_by_whole_chunks(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int64_t length = 289; length <= 301; length++) {
        const case_spec spec = {.label = "289..301 tokens",
                                .seed = 705,
                                .num_k_heads = 1,
                                .num_v_heads = 3,
                                .head_k_dim = 48,
                                .length = length};
        complaints += check_case(&spec);
    }
    for (int64_t length = 1; length <= 40; length++) {
        const case_spec spec = {
            .label = "1..40 tokens", .seed = 706, .num_k_heads = 1, .num_v_heads = 3, .length = length};
        complaints += check_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

/* Entry 6: decay misplaced in W agrees where S0 = 0 or g = 0. Both are non-zero here, over several chunks. */
static void decay_belongs_in_both_wy_factors(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {64, 200};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const case_spec spec = {.label = "S0 and small decay",
                                .seed = 707,
                                .num_k_heads = 2,
                                .num_v_heads = 4,
                                .head_k_dim = 64,
                                .length = lengths[i],
                                .gates = GATES_SMALL,
                                .state_size = 1};
        NO_COMPLAINTS(check_case(&spec));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_has_its_own_last_row),  cmocka_unit_test(tail_rows_do_not_decay_state),
        cmocka_unit_test(a_bias_does_not_open_padding_gates), cmocka_unit_test(the_chunk_end_decay_is_one_number),
        cmocka_unit_test(scratch_is_sized_by_whole_chunks),   cmocka_unit_test(decay_belongs_in_both_wy_factors),
    };
    return RUN_SUITE("tails", tests);
}
