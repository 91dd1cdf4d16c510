/* States: stale, aliased, transposed, drifting, written too often or not at all. */
#include "slices.h"
#include "suite.h"

#include <math.h>
#include <string.h>

/* Fills the whole pool with one 32-bit pattern, as a recycled slot would hold. */
static void fill_pool(test_case *c, uint32_t pattern)
{
    for (size_t i = 0; i + 4 <= c->buffer[CASE_STATE].bytes; i += 4) {
        memcpy(c->buffer[CASE_STATE].before + i, &pattern, 4);
    }
}

/* Entry 25: a slot read before it is fully written. The runner checks that unrelated slots keep every bit. */
static void recycled_slots_are_not_read(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = decode ? "recycled slots, decode" : "recycled slots, prefill",
                                .seed = 801,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 2,
                                .lengths = LENGTHS(70, 33, 5),
                                .tokens_per_row = 3,
                                .num_seqs = 3,
                                .state_form = GDN_STATE_POOL,
                                .in_place = true,
                                .read_slots = SLOTS(1, 3, 5),
                                .has_initial_state = FLAGS(0, 1, 0)};
        test_case c, source;
        case_build(&source, &spec);
        case_build(&c, &spec);
        fill_pool(&c, 0x7FC0DEADu);
        copy_initial_state(&c, 1, &source, 1);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        case_free(&c);
        case_free(&source);
    }
}

/* Entry 26: one token was taken as proof that a state exists. */
static void a_new_sequence_of_one_token_starts_from_zero(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "one token, no initial state",
                                .seed = 802,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 1,
                                .length = 1,
                                .state_form = GDN_STATE_POOL,
                                .in_place = true,
                                .has_initial_state = FLAGS(0)};
        test_case c;
        case_build(&c, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        double dot = 0;
        for (int32_t d = 0; d < 32; d++) {
            dot += case_get(&c, CASE_Q, 0, 0, d) * case_get(&c, CASE_K, 0, 0, d);
        }
        const double beta = case_get(&c, CASE_BETA, 0, 0, 0);
        for (int32_t v = 0; v < 32; v++) {
            const double value = case_get(&c, CASE_V, 0, 0, v);
            assert_true(fabs(case_output(&c, 0, 0, v) - (double)c.problem.scale * beta * dot * value) <= 1e-6);
            assert_true(fabs(case_state_after(&c, CASE_STATE, 0, 0, v, 3) -
                             beta * case_get(&c, CASE_K, 0, 0, 3) * value) <= 1e-6);
        }
        case_free(&c);
    }
}

/* Entry 27: clearing the output first destroys an aliased input. Separate, aliased and pooled give the same bits. */
static void aliased_states_are_read_before_they_are_written(void **unused)
{
    (void)unused;
    case_spec spec = {
        .label = "states apart", .seed = 803, .num_k_heads = 2, .lengths = LENGTHS(70, 0, 5), .num_seqs = 3};
    test_case apart, same, pool;
    case_build(&apart, &spec);
    spec.label = "final states over initial ones";
    spec.in_place = true;
    case_build(&same, &spec);
    spec.label = "a pool in place";
    spec.state_form = GDN_STATE_POOL;
    spec.read_slots = SLOTS(4, 0, 2);
    case_build(&pool, &spec);
    for (int64_t n = 0; n < 3; n++) {
        copy_initial_state(&pool, n, &apart, n);
    }
    NO_COMPLAINTS(check_built_case(test_context(), &apart) + check_built_case(test_context(), &same) +
                  check_built_case(test_context(), &pool));
    NO_COMPLAINTS(same_results(&apart, &same) + same_results(&apart, &pool));
    case_free(&apart);
    case_free(&same);
    case_free(&pool);
}

/* Entry 28: with K = V a transposed state has the right shape. S0[k, v] = 100 k + v, nothing written, q = e_i reads
 * row i. */
static void square_states_are_not_transposed(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        for (state_style style = STATES_VK; style <= STATES_PADDED; style++) {
            const case_spec spec = {.label = "coded state",
                                    .seed = 804,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 1,
                                    .head_k_dim = 64,
                                    .length = 5,
                                    .tokens_per_row = 5,
                                    .gates = GATES_CONSTANT,
                                    .betas = BETAS_CONSTANT,
                                    .states = style,
                                    .finals = STATES_KV};
            test_case c;
            case_build(&c, &spec);
            for (int32_t k = 0; k < 64; k++) {
                for (int32_t v = 0; v < 64; v++) {
                    case_put_state(&c, CASE_STATE, 0, 0, v, k, 100 * k + v);
                }
                for (int64_t t = 0; t < 5; t++) {
                    case_put(&c, CASE_Q, t, 0, k, k == 11 * t + 3);
                }
            }
            NO_COMPLAINTS(check_built_case(test_context(), &c));
            for (int64_t t = 0; t < 5; t++) {
                for (int32_t v = 0; v < 64; v++) {
                    assert_true(case_output(&c, t, 0, v) == 0.125 * (double)(100 * (11 * t + 3) + v));
                }
            }
            assert_true(case_state_after(&c, CASE_FINAL_STATE, 0, 0, 9, 40) == 4009);
            case_free(&c);
        }
    }
}

/* Entry 28: prefill and decode agree on what a state is: 65 tokens of prefill and 3 of decode are 68 tokens. */
static void prefill_hands_its_state_to_decode(void **unused)
{
    (void)unused;
    static const int32_t dims[][2] = {{64, 64}, {64, 128}, {32, 48}};
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        case_spec spec = {.label = "68 tokens",
                          .seed = 805,
                          .num_k_heads = 1,
                          .num_v_heads = 2,
                          .head_k_dim = dims[i][0],
                          .head_v_dim = dims[i][1],
                          .length = 68,
                          .gates = GATES_SMALL};
        test_case whole, first, rest;
        case_build(&whole, &spec);
        spec.label = "65 tokens";
        spec.length = 65;
        case_build(&first, &spec);
        spec.label = "3 tokens of decode";
        spec.operation = GDN_OPERATION_DECODE;
        spec.tokens_per_row = 3;
        case_build(&rest, &spec);
        copy_tokens(&first, 0, &whole, 0, 65);
        copy_initial_state(&first, 0, &whole, 0);
        copy_tokens(&rest, 0, &whole, 65, 3);
        NO_COMPLAINTS(check_built_case(test_context(), &whole) + check_built_case(test_context(), &first));
        carry_state(&rest, 0, &first, 0);
        NO_COMPLAINTS(check_built_case(test_context(), &rest));
        NO_COMPLAINTS(close_outputs(&rest, 0, &whole, 65, 3) +
                      close_state(&rest, CASE_FINAL_STATE, 0, &whole, CASE_FINAL_STATE, 0));
        case_free(&whole);
        case_free(&first);
        case_free(&rest);
    }
}

/* n decode steps on a case of one row, its state carried in place in the backend's memory. */
static void decode_steps(test_case *c, int64_t steps)
{
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), c));
    REQUIRE_OK(stage_run(&stage));
    for (int64_t i = 1; i < steps; i++) {
        REQUIRE_OK(stage_run_again(&stage));
    }
    assert_int_equal(stage_collect(&stage), 0);
    stage_close(&stage);
}

/* Entry 29: a state stored through the input type stops at 0.25. q = k = e_0, v = 1, beta = 2^-10: 1 - (1 - beta)^n. */
static void small_writes_are_not_lost(void **unused)
{
    (void)unused;
    const int64_t steps = test_is_small() ? 300 : 8192;
    const double want = 1 - pow(1 - 0x1p-10, (double)steps);
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "beta 2^-10",
                                .seed = 806,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 1,
                                .head_k_dim = 16,
                                .length = steps,
                                .dtype = GDN_DTYPE_BF16,
                                .beta_form = GDN_BETA_LOGIT,
                                .gates = GATES_CONSTANT,
                                .betas = BETAS_CONSTANT,
                                .beta = 0x1p-10,
                                .state_form = GDN_STATE_POOL,
                                .in_place = true};
        test_case c;
        case_build(&c, &spec);
        for (int64_t t = 0; t < c.total_tokens; t++) {
            for (int32_t d = 0; d < 16; d++) {
                case_put(&c, CASE_Q, t, 0, d, d == 0);
                case_put(&c, CASE_K, t, 0, d, d == 0);
                case_put(&c, CASE_V, t, 0, d, 1);
            }
        }
        fill_pool(&c, 0);
        if (decode) {
            decode_steps(&c, steps);
        } else {
            NO_COMPLAINTS(check_built_case(test_context(), &c));
        }
        assert_true(fabs(case_state_after(&c, CASE_STATE, 0, 0, 7, 0) - want) <= 1e-4);
        case_free(&c);
    }
}

/* Entries 29 and 71: the error of the state does not grow with the number of calls. */
static void the_state_does_not_drift(void **unused)
{
    (void)unused;
    const int64_t steps = test_is_small() ? 200 : 4096;
    case_spec spec = {.label = "4096 tokens, g -1e-3",
                      .seed = 807,
                      .num_k_heads = 1,
                      .head_k_dim = 64,
                      .length = steps,
                      .gates = GATES_CONSTANT,
                      .gate = -1e-3,
                      .betas = BETAS_CONSTANT,
                      .beta = 0.1,
                      .state_size = 1};
    test_case whole, step;
    case_build(&whole, &spec);
    NO_COMPLAINTS(check_built_case(test_context(), &whole));
    spec.label = "4096 calls of one token";
    spec.operation = GDN_OPERATION_DECODE;
    spec.in_place = true;
    case_build(&step, &spec);
    copy_initial_state(&step, 0, &whole, 0);
    for (int64_t t = 0; t < steps; t++) {
        copy_tokens(&step, 0, &whole, t, 1);
        assert_int_equal(case_run(test_context(), &step, NULL), GDN_OK);
        copy_state_after(&step, 0, &step, CASE_FINAL_STATE, 0);
    }
    NO_COMPLAINTS(close_state(&step, CASE_FINAL_STATE, 0, &whole, CASE_FINAL_STATE, 0));
    case_free(&whole);
    case_free(&step);
}

/* Entry 51: an update of a padded pool must reach the caller's memory and not the gaps, which are judged byte by byte. */
static void padded_pools_are_updated_where_they_are(void **unused)
{
    (void)unused;
    for (int decode = 0; decode < 2; decode++) {
        const case_spec spec = {.label = "pool with gaps",
                                .seed = 808,
                                .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                .num_k_heads = 2,
                                .lengths = LENGTHS(70, 3),
                                .num_seqs = 2,
                                .state_form = GDN_STATE_POOL,
                                .states = STATES_PADDED,
                                .in_place = true};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 66: a path chosen by shape alone left the state unwritten. */
static void short_equal_lengths_write_their_states(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int64_t length = 1; length <= 8; length++) {
        for (int64_t seqs = 1; seqs <= 8; seqs++) {
            for (int has = 0; has < 2; has++) {
                const uint8_t flags[8] = {has, has, has, has, has, has, has, has};
                const case_spec spec = {.label = "short equal lengths",
                                        .seed = 809,
                                        .num_k_heads = 1,
                                        .num_v_heads = 2,
                                        .head_k_dim = 16,
                                        .length = length,
                                        .num_seqs = seqs,
                                        .equal_length = (length + seqs) % 2 == 0,
                                        .state_form = GDN_STATE_POOL,
                                        .has_initial_state = flags};
                complaints += check_case(&spec);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recycled_slots_are_not_read),
        cmocka_unit_test(a_new_sequence_of_one_token_starts_from_zero),
        cmocka_unit_test(aliased_states_are_read_before_they_are_written),
        cmocka_unit_test(square_states_are_not_transposed),
        cmocka_unit_test(prefill_hands_its_state_to_decode),
        cmocka_unit_test(small_writes_are_not_lost),
        cmocka_unit_test(the_state_does_not_drift),
        cmocka_unit_test(padded_pools_are_updated_where_they_are),
        cmocka_unit_test(short_equal_lengths_write_their_states),
    };
    return RUN_SUITE("states", tests);
}
