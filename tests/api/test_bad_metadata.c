/* Wrong contents: sequence bounds, slots, checkpoints, token counts, gates. A host checks them before anything is written; a
 * device (CUDA) checks them itself, skips the bad row, and gdn_plan_check reports. */
#include "formats.h"
#include "spoil.h"

#include <math.h>

#define PUT_INDEX(operand, i, x) format_store_index(GDN_DTYPE_I64, case_before(&c, operand), i, x)

static void sequence_bounds(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 0, 1), bad, "cu_seqlens", "1");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 0, -1), bad, "cu_seqlens", "-1");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 1, -1), bad, "cu_seqlens", "-1");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 1, 11), bad, "cu_seqlens", "");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 3, 21), bad, "cu_seqlens", "21");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 3, 4), bad, "cu_seqlens", "4");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CU_SEQLENS, 3, INT64_MAX), bad, "cu_seqlens", "");
    SPOIL_CONTENTS(build_pool_case, c.problem.max_seqlen = 9, bad, "cu_seqlens", "10");
    NO_COMPLAINTS(complaints);
}

static void slots_out_of_range_or_in_conflict(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT, conflict = GDN_ERROR_SLOT_CONFLICT;
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_READ_SLOTS, 1, 6), bad, "read_slots", "6");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_WRITE_SLOTS, 2, 6), bad, "write_slots", "6");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_READ_SLOTS, 0, INT64_MAX), bad, "read_slots", "");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_WRITE_SLOTS, 1, 3), conflict, "slot", "3");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_WRITE_SLOTS, 1, 2), conflict, "slot", "2");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_READ_SLOTS, 2, 4), conflict, "slot", "4");
    SPOIL_CONTENTS(build_decode_case, PUT_INDEX(CASE_READ_SLOTS, 1, 9), bad, "read_slots", "9");
    SPOIL_CONTENTS(build_decode_case, PUT_INDEX(CASE_TOKEN_SLOTS, 1, 9), bad, "token_slots", "9");
    SPOIL_CONTENTS(build_decode_case, PUT_INDEX(CASE_WRITE_SLOTS, 0, 4), conflict, "slot", "4");
    SPOIL_CONTENTS(build_decode_case, PUT_INDEX(CASE_TOKEN_SLOTS, 2, 6), conflict, "slot", "6");
    SPOIL_CONTENTS(build_decode_case, PUT_INDEX(CASE_TOKEN_SLOTS, 0, 2), conflict, "slot", "2");
    NO_COMPLAINTS(complaints);
}

static void checkpoints_out_of_order(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_POSITIONS, 0, 0), bad, "checkpoint", "0");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_POSITIONS, 1, 6), bad, "checkpoint", "6");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_POSITIONS, 1, 2), bad, "checkpoint", "2");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_OFFSETS, 0, 1), bad, "checkpoint",
                   test_backend_is_host() ? "offsets[0]: 1" : "");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_OFFSETS, 1, 4), bad, "checkpoint", "");
    SPOIL_CONTENTS(build_pool_case, PUT_INDEX(CASE_CHECKPOINT_OFFSETS, 3, 6), bad, "checkpoint", "6");
    NO_COMPLAINTS(complaints);
}

static void gates_out_of_range(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    for (int form = 0; form < 2; form++) {
        static const double wrong[2][3] = {{1e-3, 0.9, INFINITY}, {-1e-6, 1.0001, INFINITY}};
        for (int i = 0; i < 3; i++) {
            const case_spec spec = {.label = form ? "linear gate out of range" : "log gate above 0",
                                    .seed = 94,
                                    .num_k_heads = 2,
                                    .length = TOKENS,
                                    .gate_form = form ? GDN_GATE_DECAY : GDN_GATE_LOG_DECAY};
            test_case c;
            case_build(&c, &spec);
            c.problem.check = 1;
            case_put(&c, CASE_GATE, 13, 1, 0, wrong[form][i]);
            staged_case stage;
            REQUIRE_OK(stage_open(&stage, test_context(), &c));
            const expectation want = {bad, "gate", "13", true};
            complaints += judge_refusal(&stage, &want);
            stage_close(&stage);
            case_free(&c);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void num_tokens_out_of_range(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_CONTENTS(build_decode_case, format_store_index(GDN_DTYPE_I32, case_before(&c, CASE_NUM_TOKENS), 1, 3), bad,
                   "num_tokens", "3");
    SPOIL_CONTENTS(build_decode_case, format_store_index(GDN_DTYPE_I32, case_before(&c, CASE_NUM_TOKENS), 2, -1), bad,
                   "num_tokens", "-1");
    NO_COMPLAINTS(complaints);
}

/* More slots than are sorted on the stack: every pair that meets is found, none that does not. */
static void one_conflict_among_many_slots_is_found(void **unused)
{
    (void)unused;
    enum { MANY = 300 };
    static int64_t read[MANY], write[MANY];
    static const int64_t spoiled[][2] = {{0, MANY - 1}, {MANY - 1, 0}, {150, 151}};
    for (int n = 0; n < MANY; n++) {
        read[n] = 2 * ((n * 7) % MANY);
        write[n] = read[n] + 1;
    }
    int complaints = 0;
    for (size_t i = 0; i <= COUNT_OF(spoiled); i++) {
        const case_spec spec = {.label = "300 sequences",
                                .seed = 96,
                                .num_k_heads = 1,
                                .head_k_dim = 16,
                                .length = 1,
                                .num_seqs = MANY,
                                .state_form = GDN_STATE_POOL,
                                .num_slots = 2 * MANY,
                                .read_slots = read,
                                .write_slots = write};
        test_case c;
        case_build(&c, &spec);
        if (i == COUNT_OF(spoiled)) {
            complaints += check_built_case(test_context(), &c);
        } else {
            c.problem.check = 1;
            PUT_INDEX(CASE_WRITE_SLOTS, spoiled[i][0], read[spoiled[i][1]]);
            staged_case stage;
            REQUIRE_OK(stage_open(&stage, test_context(), &c));
            const expectation want = {GDN_ERROR_SLOT_CONFLICT, "slot", "", true};
            complaints += judge_refusal(&stage, &want);
            stage_close(&stage);
        }
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequence_bounds),
        cmocka_unit_test(slots_out_of_range_or_in_conflict),
        cmocka_unit_test(one_conflict_among_many_slots_is_found),
        cmocka_unit_test(checkpoints_out_of_order),
        cmocka_unit_test(gates_out_of_range),
        cmocka_unit_test(num_tokens_out_of_range),
    };
    return RUN_SUITE("bad metadata", tests);
}
