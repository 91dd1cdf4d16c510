/* Packed batches: empty members, uneven lengths, thousands of short sequences. CTest's timeout is the watchdog. */
#include "slices.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

/* Every sequence of a DENSE batch against a run of it alone. */
static int compare_each_alone(const test_case *batch)
{
    int complaints = 0;
    for (int64_t n = 0; n < batch->spec.num_seqs; n++) {
        const int64_t length = case_length(batch, n);
        case_spec spec = batch->spec;
        spec.label = "alone";
        spec.lengths = &length;
        spec.num_seqs = 1;
        spec.max_seqlen = 0;
        spec.in_place = false;
        test_case alone;
        case_build(&alone, &spec);
        copy_head_parameters(&alone, batch);
        copy_tokens(&alone, 0, batch, case_first_token(batch, n), length);
        if (!spec.no_initial_state) {
            copy_initial_state(&alone, 0, batch, n);
        }
        complaints += case_run(test_context(), &alone, NULL) != GDN_OK;
        complaints += same_sequence(&alone, 0, batch, n);
        case_free(&alone);
    }
    return complaints;
}

/* Entry 23: a role waits for a load that an empty sequence never issues. Its state passes through bit for bit. */
static void empty_members_end_and_pass_their_state_on(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {0, 5, 0, 0, 70, 0};
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int initial = 0; initial < 2; initial++) {
            const case_spec spec = {.label = "lengths 0 5 0 0 70 0",
                                    .seed = 1201,
                                    .num_k_heads = 2,
                                    .num_v_heads = 4,
                                    .lengths = lengths,
                                    .num_seqs = 6,
                                    .no_initial_state = !initial,
                                    .in_place = in_place && initial,
                                    .state_size = 1};
            test_case c;
            case_build(&c, &spec);
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            NO_COMPLAINTS(compare_each_alone(&c));
            case_free(&c);
        }
    }
}

/* An empty sequence's copy does not change a NaN's payload or a subnormal. */
static void empty_members_copy_bits(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    static const int64_t lengths[] = {0, 3, 0};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        for (int decode = 0; decode < 2; decode++) {
            static const int32_t num_tokens[] = {0, 3, 0};
            const case_spec spec = {.label = "copied bits",
                                    .seed = 1202,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 1,
                                    .head_k_dim = 16,
                                    .lengths = lengths,
                                    .tokens_per_row = 3,
                                    .num_tokens = num_tokens,
                                    .num_seqs = 3,
                                    .state_dtype = dtypes[i],
                                    .state_form = GDN_STATE_POOL};
            test_case c;
            case_build(&c, &spec);
            unsigned char *const slot = case_before(&c, CASE_STATE);
            const size_t bytes = gdn_dtype_size(dtypes[i]) * 16 * 16;
            test_random random = random_stream(1203, i);
            for (size_t b = 0; b < bytes; b++) {
                slot[b] = (unsigned char)random_bits(&random);
            }
            assert_int_equal(case_run(test_context(), &c, NULL), GDN_OK);
            if (memcmp(case_after(&c, CASE_STATE) + bytes, slot, bytes) != 0) {
                fail_msg("%s, %s states: the copy differs", decode ? "decode" : "prefill", gdn_dtype_name(dtypes[i]));
            }
            case_free(&c);
        }
    }
}

/* Entry 24: a batch that hung within 100 calls, with and without initial and final states. */
static void long_uneven_batches_do_not_hang(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {1238, 1199, 1240, 1216, 1187, 1203, 519};
    static const int64_t short_lengths[] = {38, 99, 40, 16, 87, 3, 19};
    for (int states = 0; states < 4; states++) {
        const case_spec spec = {.label = "seven uneven sequences",
                                .seed = 1204,
                                .num_k_heads = test_is_small() ? 2 : 6,
                                .head_k_dim = test_is_small() ? 16 : 32,
                                .lengths = test_is_small() ? short_lengths : lengths,
                                .num_seqs = 7,
                                .no_initial_state = (states & 1) == 0,
                                .no_final_state = (states & 2) == 0,
                                .state_size = 0};
        test_case c;
        case_build(&c, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, test_context(), &c));
        REQUIRE_OK(stage_run(&stage));
        for (int i = 0; i < 4; i++) {
            REQUIRE_OK(stage_run_again(&stage));
        }
        assert_int_equal(stage_collect(&stage), 0);
        stage_close(&stage);
        case_free(&c);
    }
}

/* Entry 41: N x Hv on a grid axis of 65,535. The batch is the same as its two halves. */
static void thousands_of_sequences_are_computed(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const int64_t seqs = test_is_small() ? 64 : 2050;
        case_spec spec = {.label = "2050 sequences of 32 heads",
                          .seed = 1205,
                          .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                          .num_k_heads = 16,
                          .num_v_heads = 32,
                          .head_k_dim = 16,
                          .length = decode ? 1 : 4,
                          .num_seqs = seqs,
                          .no_initial_state = true,
                          .no_final_state = true};
        test_case whole, half;
        case_build(&whole, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &whole));
        const int64_t tokens = spec.length;
        spec.label = "half of them";
        spec.num_seqs = seqs / 2;
        case_build(&half, &spec);
        copy_tokens(&half, 0, &whole, seqs / 2 * tokens, seqs / 2 * tokens);
        assert_int_equal(case_run(test_context(), &half, NULL), GDN_OK);
        int complaints = 0;
        for (int64_t n = 0; n < seqs / 2; n++) {
            complaints += same_sequence(&half, n, &whole, seqs / 2 + n);
        }
        NO_COMPLAINTS(complaints);
        case_free(&whole);
        case_free(&half);
    }
}

/* Entry 46: a grid bounded by the mean length leaves the long one short. */
static void one_long_sequence_among_short_ones_is_whole(void **unused)
{
    (void)unused;
    int64_t lengths[64];
    lengths[0] = test_is_small() ? 300 : 4096;
    for (int i = 1; i < 64; i++) {
        lengths[i] = 1;
    }
    case_spec spec = {.label = "4096 and 63 of 1",
                      .seed = 1206,
                      .num_k_heads = 1,
                      .lengths = lengths,
                      .num_seqs = 64,
                      .gates = GATES_SMALL};
    for (int hint = 0; hint < 2; hint++) {
        spec.max_seqlen = hint ? lengths[0] : 0;
        test_case c;
        case_build(&c, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        if (hint) {
            NO_COMPLAINTS(compare_each_alone(&c));
        }
        case_free(&c);
    }
    /* A hint that is too small is an error, never a short answer. */
    spec.max_seqlen = lengths[0] - 1;
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    assert_int_equal(stage_run(&stage), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "max_seqlen"));
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_members_end_and_pass_their_state_on),
        cmocka_unit_test(empty_members_copy_bits),
        cmocka_unit_test(long_uneven_batches_do_not_hang),
        cmocka_unit_test(thousands_of_sequences_are_computed),
        cmocka_unit_test(one_long_sequence_among_short_ones_is_whole),
    };
    return RUN_SUITE("varlen", tests);
}
