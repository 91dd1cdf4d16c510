/* What a token, a head or a sequence may touch: the past never changes, NaN stays where it is. */
#include "slices.h"
#include "suite.h"

#include <math.h>
#include <string.h>

/* Entry 19: a decay split around an anchor that moves with later gates changes the past. */
static void future_edits_leave_the_past_alone(void **unused)
{
    (void)unused;
    static const int64_t edits[] = {1, 7, 15, 16, 17, 40, 63, 64, 100, 129};
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16};
    int complaints = 0;
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        const case_spec spec = {.label = "before the edit",
                                .seed = 1301,
                                .num_k_heads = 2,
                                .num_v_heads = 4,
                                .length = 130,
                                .dtype = dtypes[io],
                                .gates = GATES_SMALL,
                                .state_size = 1};
        test_case plain;
        case_build(&plain, &spec);
        assert_int_equal(case_run(test_context(), &plain, NULL), GDN_OK);
        for (size_t i = 0; i < COUNT_OF(edits); i++) {
            test_case edited;
            case_spec other = spec;
            other.label = "after the edit";
            other.seed = 1302;
            case_build(&edited, &other);
            copy_tokens(&edited, 0, &plain, 0, edits[i]);
            copy_initial_state(&edited, 0, &plain, 0);
            for (int64_t t = edits[i]; t < 130; t++) {
                for (int32_t head = 0; head < 4; head++) {
                    case_put_log_decay(&edited, t, head, -4);
                }
            }
            assert_int_equal(case_run(test_context(), &edited, NULL), GDN_OK);
            complaints += same_outputs(&plain, 0, &edited, 0, edits[i]);
            case_free(&edited);
        }
        case_free(&plain);
    }
    NO_COMPLAINTS(complaints);
}

/* Poison in one head of one sequence, in each kind of input. */
static void nan_stays_in_its_head_and_sequence(void **unused)
{
    (void)unused;
    static const case_operand inputs[] = {CASE_Q, CASE_K, CASE_V, CASE_GATE, CASE_BETA};
    static const double poisons[] = {NAN, INFINITY};
    int complaints = 0;
    for (int decode = 0; decode < 2; decode++) {
        for (size_t i = 0; i < COUNT_OF(inputs); i++) {
            for (size_t p = 0; p < COUNT_OF(poisons); p++) {
                if (poisons[p] > 0 && inputs[i] >= CASE_GATE) {
                    continue; /* out of range: refused */
                }
                case_spec spec = {.label = "clean",
                                  .seed = 1303,
                                  .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                  .num_k_heads = 4,
                                  .lengths = LENGTHS(70, 70, 70),
                                  .tokens_per_row = 3,
                                  .num_seqs = 3};
                test_case clean, poisoned;
                case_build(&clean, &spec);
                spec.label = "poisoned";
                case_build(&poisoned, &spec);
                const int64_t token = case_first_token(&poisoned, 1) + 1;
                case_put(&poisoned, inputs[i], token, 2, 0, poisons[p]);
                assert_int_equal(case_run(test_context(), &clean, NULL), GDN_OK);
                assert_int_equal(case_run(test_context(), &poisoned, NULL), GDN_OK);
                complaints += same_sequence(&clean, 0, &poisoned, 0) + same_sequence(&clean, 2, &poisoned, 2);
                for (int64_t t = 0; t < case_length(&clean, 1); t++) {
                    const int64_t at = case_first_token(&clean, 1) + t;
                    for (int32_t head = 0; head < 4; head++) {
                        for (int32_t d = 0; d < 32; d++) {
                            /* A chunk is one product: its earlier tokens meet the NaN as 0 * NaN. */
                            const bool hit = head == 2 && (!decode || at >= token);
                            if (!hit && case_output(&clean, at, head, d) != case_output(&poisoned, at, head, d)) {
                                complaints++;
                                fprintf(stderr, "input %d: token %d head %d was poisoned by head 2\n", (int)inputs[i],
                                        (int)t, head);
                                head = 4;
                                t = 1000;
                                break;
                            }
                        }
                    }
                }
                /* And it does show where it is. */
                assert_true(inputs[i] == CASE_V || !isfinite(case_output(&poisoned, token, 2, 5)));
                case_free(&clean);
                case_free(&poisoned);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Trap 7: rows past a sequence's end belong to the next; NaN there must not leak back through a masked product. */
static void a_poisoned_next_sequence_does_not_leak_back(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {1, 5, 17, 63, 64, 65, 100};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const int64_t both[] = {lengths[i], 70};
        case_spec spec = {.label = "followed by NaN", .seed = 1304, .num_k_heads = 2, .lengths = both, .num_seqs = 2};
        test_case c, alone;
        case_build(&c, &spec);
        for (int64_t t = lengths[i]; t < lengths[i] + 70; t++) {
            for (int32_t head = 0; head < 2; head++) {
                for (int32_t d = 0; d < 32; d++) {
                    case_put(&c, CASE_Q, t, head, d, NAN);
                    case_put(&c, CASE_K, t, head, d, NAN);
                    case_put(&c, CASE_V, t, head, d, NAN);
                }
                case_put(&c, CASE_GATE, t, head, 0, NAN);
                case_put(&c, CASE_BETA, t, head, 0, NAN);
            }
        }
        assert_int_equal(case_run(test_context(), &c, NULL), GDN_OK);
        spec.label = "alone";
        spec.num_seqs = 1;
        case_build(&alone, &spec);
        copy_tokens(&alone, 0, &c, 0, lengths[i]);
        copy_initial_state(&alone, 0, &c, 0);
        assert_int_equal(case_run(test_context(), &alone, NULL), GDN_OK);
        complaints += same_sequence(&alone, 0, &c, 0);
        case_free(&c);
        case_free(&alone);
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(future_edits_leave_the_past_alone),
        cmocka_unit_test(nan_stays_in_its_head_and_sequence),
        cmocka_unit_test(a_poisoned_next_sequence_does_not_leak_back),
    };
    return RUN_SUITE("locality", tests);
}
