/* Padded rows: slots of -1, rows past cu_seqlens[N], rows that only fill up a batch. */
#include "slices.h"
#include "suite.h"

#include <string.h>

/* The row n of a pooled call alone must give the same bits. */
static int compare_alone(const test_case *c, int64_t n, int64_t slot)
{
    const int64_t length = case_length(c, n);
    case_spec spec = c->spec;
    spec.label = "alone";
    spec.lengths = &length;
    spec.num_seqs = 1;
    spec.read_slots = &slot;
    test_case alone;
    case_build(&alone, &spec);
    copy_head_parameters(&alone, c);
    copy_tokens(&alone, 0, c, case_first_token(c, n), length);
    copy_initial_state(&alone, 0, c, n);
    const int failed = case_run(test_context(), &alone, NULL) != GDN_OK;
    const int complaints = failed + same_sequence(&alone, 0, c, n);
    case_free(&alone);
    return complaints;
}

/* Entry 7: a slot of -1 multiplied into an offset. The pool's guard before slot 0 is 4 KiB. */
static void negative_slots_are_no_offsets(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        for (int wide = 0; wide < 2; wide++) {
            const case_spec spec = {.label = decode ? "slots 2 -1 0 -1, decode" : "slots 2 -1 0 -1, prefill",
                                    .seed = 901,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 2,
                                    .lengths = LENGTHS(70, 70, 70, 70),
                                    .num_seqs = 4,
                                    .slots_dtype = wide ? GDN_DTYPE_I64 : GDN_DTYPE_I32,
                                    .state_form = GDN_STATE_POOL,
                                    .in_place = true,
                                    .num_slots = 3,
                                    .read_slots = SLOTS(2, -1, 0, -1)};
            test_case c;
            case_build(&c, &spec);
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            if (!decode) {
                NO_COMPLAINTS(compare_alone(&c, 0, 2) + compare_alone(&c, 2, 0));
            }
            case_free(&c);
        }
    }
}

static void batches_of_nothing_but_padding(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "every slot negative",
                                .seed = 902,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 2,
                                .lengths = LENGTHS(70, 1, 0),
                                .num_seqs = 3,
                                .state_form = GDN_STATE_POOL,
                                .in_place = true,
                                .read_slots = SLOTS(-1, INT64_MIN, -7)};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* A row is skipped where either of its slots is negative. */
static void a_negative_write_slot_skips_the_row(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "write slots 3 -1 5",
                                .seed = 906,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 2,
                                .lengths = LENGTHS(20, 0, 3),
                                .num_seqs = 3,
                                .state_form = GDN_STATE_POOL,
                                .read_slots = SLOTS(0, 1, 2),
                                .write_slots = SLOTS(3, -1, 5)};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 8: -1 turned into slot 0, which is somebody's. 64 steps with loud padding rows. */
static void padding_does_not_share_slot_zero(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "one live row of three",
                      .seed = 903,
                      .operation = GDN_OPERATION_DECODE,
                      .num_k_heads = 2,
                      .num_seqs = 3,
                      .state_form = GDN_STATE_POOL,
                      .in_place = true,
                      .read_slots = SLOTS(0, -1, -1)};
    test_case batch, alone;
    case_build(&batch, &spec);
    spec.label = "the live row alone";
    spec.num_seqs = 1;
    spec.num_slots = 7;
    case_build(&alone, &spec);
    copy_initial_state(&alone, 0, &batch, 0);
    copy_tokens(&alone, 0, &batch, 0, 1);
    for (int64_t row = 1; row < 3; row++) {
        copy_tokens(&batch, row, &batch, 0, 1);
        for (int32_t head = 0; head < 2; head++) {
            for (int32_t d = 0; d < 32; d++) {
                case_put(&batch, CASE_V, row, head, d, 1e3);
            }
        }
    }
    staged_case one, three;
    REQUIRE_OK(stage_open(&one, test_context(), &alone));
    REQUIRE_OK(stage_open(&three, test_context(), &batch));
    for (int i = 0; i < 64; i++) {
        REQUIRE_OK(i == 0 ? stage_run(&one) : stage_run_again(&one));
        REQUIRE_OK(i == 0 ? stage_run(&three) : stage_run_again(&three));
        assert_int_equal(stage_collect(&one) + stage_collect(&three), 0);
        NO_COMPLAINTS(same_sequence(&alone, 0, &batch, 0));
    }
    stage_close(&one);
    stage_close(&three);
    case_free(&batch);
    case_free(&alone);
}

/* Entry 43: rows that no token owns keep every bit, whatever fill them. */
static void rows_past_the_last_token_keep_their_bits(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "1024 rows, 700 tokens",
                            .seed = 904,
                            .num_k_heads = 2,
                            .lengths = LENGTHS(300, 100, 300),
                            .num_seqs = 3,
                            .extra_tokens = 324,
                            .state_form = GDN_STATE_POOL,
                            .in_place = true,
                            .read_slots = SLOTS(0, -1, 1)};
    NO_COMPLAINTS(check_case(&spec));
}

/* Entry 50: several -1 are not duplicates. (Duplicates are in api/test_bad_metadata.c.) */
static void many_negative_slots_are_no_conflict(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "slots -1 -1 5 -1 -1",
                            .seed = 905,
                            .num_k_heads = 2,
                            .lengths = LENGTHS(5, 5, 5, 5, 5),
                            .num_seqs = 5,
                            .state_form = GDN_STATE_POOL,
                            .in_place = true,
                            .read_slots = SLOTS(-1, -1, 5, -1, -1)};
    NO_COMPLAINTS(check_case(&spec));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negative_slots_are_no_offsets),
        cmocka_unit_test(batches_of_nothing_but_padding),
        cmocka_unit_test(a_negative_write_slot_skips_the_row),
        cmocka_unit_test(padding_does_not_share_slot_zero),
        cmocka_unit_test(rows_past_the_last_token_keep_their_bits),
        cmocka_unit_test(many_negative_slots_are_no_conflict),
    };
    return RUN_SUITE("padding", tests);
}
