/* Laws of the recurrence: they need no reference. */
#include "slices.h"
#include "suite.h"

#include <math.h>
#include <string.h>

static case_spec base_spec(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 61,
                       .num_k_heads = 2,
                       .num_v_heads = 4,
                       .head_k_dim = 32,
                       .head_v_dim = 48,
                       .state_size = 1,
                       .gates = GATES_SMALL};
}

static void run(test_case *c)
{
    assert_int_equal(case_run(test_context(), c, NULL), GDN_OK);
}

/* o and the state are linear in (v, S0): powers of two scale exactly, sums to rounding. */
static void outputs_are_linear_in_v_and_the_initial_state(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("x");
    spec.length = 150;
    test_case x, y, sum, twice;
    case_build(&x, &spec);
    case_build(&sum, &spec);
    case_build(&twice, &spec);
    case_build(&y, &spec);
    test_random random = random_stream(62, 0);
    for (int64_t t = 0; t < 150; t++) {
        for (int32_t head = 0; head < 4; head++) {
            for (int32_t d = 0; d < 48; d++) {
                const double a = case_get(&x, CASE_V, t, head, d), b = (float)random_normal(&random);
                case_put(&y, CASE_V, t, head, d, b);
                case_put(&sum, CASE_V, t, head, d, a + b);
                case_put(&twice, CASE_V, t, head, d, 2 * a);
            }
        }
    }
    for (int32_t head = 0; head < 4; head++) {
        for (int32_t v = 0; v < 48; v++) {
            for (int32_t k = 0; k < 32; k++) {
                const float a =
                    ((const float *)case_before(&x, CASE_STATE))[case_state_index(&x, CASE_STATE, 0, head, v, k)];
                const double b = (float)random_normal(&random);
                case_put_state(&y, CASE_STATE, 0, head, v, k, b);
                case_put_state(&sum, CASE_STATE, 0, head, v, k, a + b);
                case_put_state(&twice, CASE_STATE, 0, head, v, k, 2 * (double)a);
            }
        }
    }
    run(&x);
    run(&y);
    run(&sum);
    run(&twice);
    double worst = 0, largest = 0;
    for (int64_t t = 0; t < 150; t++) {
        for (int32_t head = 0; head < 4; head++) {
            for (int32_t d = 0; d < 48; d++) {
                const double parts = case_output(&x, t, head, d) + case_output(&y, t, head, d);
                worst = fmax(worst, fabs(parts - case_output(&sum, t, head, d)));
                largest = fmax(largest, fabs(parts));
                assert_true(case_output(&twice, t, head, d) == 2 * case_output(&x, t, head, d));
            }
        }
    }
    assert_true(largest > 0.1);
    assert_true(worst <= 1e-5 * largest);
    case_free(&x);
    case_free(&y);
    case_free(&sum);
    case_free(&twice);
}

static void a_prefill_in_two_calls_is_one_prefill(void **unused)
{
    (void)unused;
    static const int64_t totals[] = {2, 5, 63, 64, 65, 66, 128, 129, 200};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(totals); i++) {
        const int64_t total = totals[i], splits[] = {1, total - 1, 64, total / 2};
        case_spec spec = base_spec("whole");
        spec.length = total;
        test_case whole;
        case_build(&whole, &spec);
        run(&whole);
        for (size_t s = 0; s < COUNT_OF(splits); s++) {
            if (splits[s] < 1 || splits[s] >= total) {
                continue;
            }
            char label[64];
            snprintf(label, sizeof(label), "%d tokens in two calls, %d first", (int)total, (int)splits[s]);
            spec.label = label;
            test_case first, second;
            spec.length = splits[s];
            case_build(&first, &spec);
            spec.length = total - splits[s];
            case_build(&second, &spec);
            copy_tokens(&first, 0, &whole, 0, splits[s]);
            copy_tokens(&second, 0, &whole, splits[s], total - splits[s]);
            run(&first);
            carry_state(&second, 0, &first, 0);
            run(&second);
            complaints += close_outputs(&first, 0, &whole, 0, splits[s]);
            complaints += close_outputs(&second, 0, &whole, splits[s], total - splits[s]);
            complaints += close_state(&second, CASE_FINAL_STATE, 0, &whole, CASE_FINAL_STATE, 0);
            case_free(&first);
            case_free(&second);
        }
        case_free(&whole);
    }
    NO_COMPLAINTS(complaints);
}

static void prefill_is_repeated_decode(void **unused)
{
    (void)unused;
    static const int64_t totals[] = {1, 2, 5, 63, 64, 65, 129, 200};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(totals); i++) {
        case_spec spec = base_spec("prefill");
        spec.length = totals[i];
        test_case whole, step;
        case_build(&whole, &spec);
        run(&whole);
        spec.label = "decode";
        spec.operation = GDN_OPERATION_DECODE;
        case_build(&step, &spec);
        copy_initial_state(&step, 0, &whole, 0);
        for (int64_t t = 0; t < totals[i]; t++) {
            copy_tokens(&step, 0, &whole, t, 1);
            run(&step);
            complaints += close_outputs(&step, 0, &whole, t, 1);
            carry_state(&step, 0, &step, 0);
        }
        complaints += close_state(&step, CASE_FINAL_STATE, 0, &whole, CASE_FINAL_STATE, 0);
        case_free(&whole);
        case_free(&step);
    }
    NO_COMPLAINTS(complaints);
}

static void n_tokens_in_one_decode_call_are_n_calls(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    int complaints = 0;
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        for (int32_t tokens = 2; tokens <= GDN_MAX_DECODE_TOKENS; tokens++) {
            char label[64];
            snprintf(label, sizeof(label), "%d tokens in one call, io %s", tokens, gdn_dtype_name(dtypes[io]));
            case_spec spec = base_spec(label);
            spec.operation = GDN_OPERATION_DECODE;
            spec.dtype = dtypes[io];
            spec.tokens_per_row = tokens;
            spec.num_seqs = 2;
            test_case many, one;
            case_build(&many, &spec);
            run(&many);
            spec.label = "one token a call";
            spec.tokens_per_row = 1;
            case_build(&one, &spec);
            copy_initial_state(&one, 0, &many, 0);
            copy_initial_state(&one, 1, &many, 1);
            for (int64_t t = 0; t < tokens; t++) {
                copy_tokens(&one, 0, &many, t, 1);
                copy_tokens(&one, 1, &many, tokens + t, 1);
                run(&one);
                complaints += same_outputs(&one, 0, &many, t, 1) + same_outputs(&one, 1, &many, tokens + t, 1);
                carry_state(&one, 0, &one, 0);
                carry_state(&one, 1, &one, 1);
            }
            complaints += same_state(&one, CASE_FINAL_STATE, 0, &many, CASE_FINAL_STATE, 0);
            complaints += same_state(&one, CASE_FINAL_STATE, 1, &many, CASE_FINAL_STATE, 1);
            case_free(&many);
            case_free(&one);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void permuting_heads_permutes_outputs(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("heads in order");
    spec.num_k_heads = spec.num_v_heads = 3;
    spec.length = 100;
    test_case plain, turned;
    case_build(&plain, &spec);
    spec.label = "heads turned by one";
    case_build(&turned, &spec);
    for (int64_t t = 0; t < spec.length; t++) {
        for (int32_t head = 0; head < 3; head++) {
            const int32_t to = (head + 1) % 3;
            for (int32_t d = 0; d < 32; d++) {
                case_put(&turned, CASE_Q, t, to, d, case_get(&plain, CASE_Q, t, head, d));
                case_put(&turned, CASE_K, t, to, d, case_get(&plain, CASE_K, t, head, d));
            }
            for (int32_t d = 0; d < 48; d++) {
                case_put(&turned, CASE_V, t, to, d, case_get(&plain, CASE_V, t, head, d));
            }
            case_put(&turned, CASE_GATE, t, to, 0, case_get(&plain, CASE_GATE, t, head, 0));
            case_put(&turned, CASE_BETA, t, to, 0, case_get(&plain, CASE_BETA, t, head, 0));
        }
    }
    for (int32_t head = 0; head < 3; head++) {
        const size_t bytes = (size_t)plain.problem.state.head_stride * sizeof(float);
        memcpy(case_before(&turned, CASE_STATE) + (size_t)((head + 1) % 3) * bytes,
               case_before(&plain, CASE_STATE) + (size_t)head * bytes, bytes);
    }
    run(&plain);
    run(&turned);
    for (int64_t t = 0; t < spec.length; t++) {
        for (int32_t head = 0; head < 3; head++) {
            for (int32_t d = 0; d < 48; d++) {
                assert_true(case_output(&plain, t, head, d) == case_output(&turned, t, (head + 1) % 3, d));
            }
        }
    }
    case_free(&plain);
    case_free(&turned);
}

static void permuting_sequences_permutes_outputs(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {65, 1, 130, 0, 64}, turned_lengths[] = {64, 65, 1, 130, 0};
    case_spec spec = base_spec("sequences in order");
    spec.lengths = lengths;
    spec.num_seqs = 5;
    test_case plain, turned;
    case_build(&plain, &spec);
    spec.label = "sequences turned by one";
    spec.lengths = turned_lengths;
    case_build(&turned, &spec);
    for (int64_t n = 0; n < 5; n++) {
        const int64_t m = (n + 1) % 5;
        copy_tokens(&turned, case_first_token(&turned, m), &plain, case_first_token(&plain, n), lengths[n]);
        copy_initial_state(&turned, m, &plain, n);
    }
    run(&plain);
    run(&turned);
    int complaints = 0;
    for (int64_t n = 0; n < 5; n++) {
        complaints += same_sequence(&plain, n, &turned, (n + 1) % 5);
    }
    case_free(&plain);
    case_free(&turned);
    NO_COMPLAINTS(complaints);
}

static void beta_zero_leaves_only_decay(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("beta 0");
    spec.length = 130;
    spec.betas = BETAS_CONSTANT;
    spec.beta = 0;
    spec.gates = GATES_CONSTANT;
    spec.gate = -0x1p-7;
    test_case c;
    case_build(&c, &spec);
    run(&c);
    const double decay = exp(-130 * 0x1p-7);
    for (int32_t head = 0; head < 4; head++) {
        for (int32_t v = 0; v < 48; v++) {
            for (int32_t k = 0; k < 32; k++) {
                const float before =
                    ((const float *)case_before(&c, CASE_STATE))[case_state_index(&c, CASE_STATE, 0, head, v, k)];
                const double after = case_state_after(&c, CASE_FINAL_STATE, 0, head, v, k);
                assert_true(fabs(after - decay * (double)before) <= 1e-6 * fabs((double)before));
            }
        }
    }
    case_free(&c);
}

static void a_prefix_is_answered_as_the_whole_is(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("whole");
    spec.length = 260;
    test_case whole;
    case_build(&whole, &spec);
    run(&whole);
    int complaints = 0;
    for (int64_t length = 1; length < 260; length += length < 4 ? 1 : 21) {
        test_case prefix;
        spec.label = "prefix";
        spec.length = length;
        case_build(&prefix, &spec);
        copy_tokens(&prefix, 0, &whole, 0, length);
        copy_initial_state(&prefix, 0, &whole, 0);
        run(&prefix);
        complaints += close_outputs(&prefix, 0, &whole, 0, length);
        case_free(&prefix);
    }
    case_free(&whole);
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_linear_in_v_and_the_initial_state),
        cmocka_unit_test(a_prefill_in_two_calls_is_one_prefill),
        cmocka_unit_test(prefill_is_repeated_decode),
        cmocka_unit_test(n_tokens_in_one_decode_call_are_n_calls),
        cmocka_unit_test(permuting_heads_permutes_outputs),
        cmocka_unit_test(permuting_sequences_permutes_outputs),
        cmocka_unit_test(beta_zero_leaves_only_decay),
        cmocka_unit_test(a_prefix_is_answered_as_the_whole_is),
    };
    return RUN_SUITE("laws", tests);
}
