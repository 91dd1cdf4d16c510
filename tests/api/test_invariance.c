/* A sequence's bits depend on its own inputs, the options and the implementation; on nothing else: not on the batch
 * it is in, its slot, the thread count, nor on what ran before. */
#include "slices.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static case_spec base_spec(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 71,
                       .num_k_heads = 2,
                       .num_v_heads = 4,
                       .head_k_dim = 32,
                       .head_v_dim = 48,
                       .qk_norm = GDN_QK_NORM_RSQRT,
                       .gate_form = GDN_GATE_RAW,
                       .beta_form = GDN_BETA_LOGIT,
                       .state_size = 1};
}

static void run(test_case *c)
{
    assert_int_equal(case_run(test_context(), c, NULL), GDN_OK);
}

/* The sequence n of `batch` alone; freed by the caller. */
static void build_alone(test_case *alone, const test_case *batch, int64_t n, const int64_t *length)
{
    case_spec spec = base_spec("alone");
    spec.operation = batch->spec.operation;
    spec.dtype = batch->spec.dtype;
    spec.lengths = length;
    spec.tokens_per_row = batch->spec.tokens_per_row;
    spec.num_segments = batch->spec.num_segments;
    case_build(alone, &spec);
    copy_head_parameters(alone, batch);
    copy_tokens(alone, 0, batch, case_first_token(batch, n), *length);
    copy_initial_state(alone, 0, batch, n);
}

static void a_sequence_has_the_same_bits_alone_and_in_any_batch(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {2, 8, 62};
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16};
    int complaints = 0;
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            int64_t lengths[62];
            test_random random = random_stream(72, (uint64_t)sizes[i]);
            for (int64_t n = 0; n < sizes[i]; n++) {
                static const int64_t marked[] = {64, 65, 300, 1};
                lengths[n] = n < 4 ? marked[n] : random_index(&random, test_is_small() ? 20 : 90);
            }
            char label[64];
            snprintf(label, sizeof(label), "batch of %d, io %s", (int)sizes[i], gdn_dtype_name(dtypes[io]));
            case_spec spec = base_spec(label);
            spec.dtype = dtypes[io];
            spec.lengths = lengths;
            spec.num_seqs = sizes[i];
            test_case batch;
            case_build(&batch, &spec);
            run(&batch);
            for (int64_t n = 0; n < sizes[i] && n < 6; n++) {
                test_case alone;
                build_alone(&alone, &batch, n, &lengths[n]);
                run(&alone);
                complaints += same_sequence(&alone, 0, &batch, n);
                case_free(&alone);
            }
            case_free(&batch);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void a_decode_row_has_the_same_bits_alone_and_in_any_batch(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int64_t rows = 2; rows <= 64; rows *= 2) {
        const int64_t tokens = rows % 3 + 1;
        char label[64];
        snprintf(label, sizeof(label), "%d rows", (int)rows);
        case_spec spec = base_spec(label);
        spec.operation = GDN_OPERATION_DECODE;
        spec.tokens_per_row = (int32_t)tokens;
        spec.num_seqs = rows;
        test_case batch;
        case_build(&batch, &spec);
        run(&batch);
        for (int64_t n = 0; n < rows; n += rows / 2) {
            test_case alone;
            build_alone(&alone, &batch, n, &tokens);
            run(&alone);
            complaints += same_sequence(&alone, 0, &batch, n);
            case_free(&alone);
        }
        case_free(&batch);
    }
    NO_COMPLAINTS(complaints);
}

static void slot_numbers_change_no_bit(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("dense states");
    spec.lengths = LENGTHS(65, 3, 130);
    spec.num_seqs = 3;
    test_case dense, pool;
    case_build(&dense, &spec);
    spec.label = "slots in another order";
    spec.state_form = GDN_STATE_POOL;
    spec.num_slots = 40;
    spec.read_slots = SLOTS(39, 0, 17);
    spec.in_place = true;
    case_build(&pool, &spec);
    for (int64_t n = 0; n < 3; n++) {
        copy_initial_state(&pool, n, &dense, n);
    }
    run(&dense);
    run(&pool);
    const int complaints = same_results(&dense, &pool);
    case_free(&dense);
    case_free(&pool);
    NO_COMPLAINTS(complaints);
}

static int compare_thread_counts(const case_spec *spec)
{
    static const int32_t counts[] = {1, 2, 3, 7, 16};
    test_case first, c;
    case_build(&first, spec);
    case_build(&c, spec);
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        gdn_context *context = test_context_with_threads(counts[i]);
        test_case *const target = i == 0 ? &first : &c;
        complaints += case_run(context, target, NULL) != GDN_OK;
        if (i > 0) {
            complaints += same_results(&first, &c);
        }
        gdn_context_destroy(&context);
    }
    case_free(&first);
    case_free(&c);
    return complaints;
}

static void thread_counts_change_no_bit(void **unused)
{
    (void)unused;
    int complaints = 0;
    case_spec spec = base_spec("one long sequence");
    spec.length = test_is_small() ? 300 : 700;
    complaints += compare_thread_counts(&spec);
    spec.label = "one head, one sequence";
    spec.num_k_heads = spec.num_v_heads = 1;
    complaints += compare_thread_counts(&spec);
    spec = base_spec("many sequences");
    spec.lengths = LENGTHS(65, 1, 0, 130, 64, 7, 300);
    spec.num_seqs = 7;
    complaints += compare_thread_counts(&spec);
    spec.label = "many sequences, bf16";
    spec.dtype = GDN_DTYPE_BF16;
    complaints += compare_thread_counts(&spec);
    spec.label = "five heads, bf16";
    spec.num_k_heads = spec.num_v_heads = 5;
    complaints += compare_thread_counts(&spec);
    spec = base_spec("decode rows");
    spec.operation = GDN_OPERATION_DECODE;
    spec.num_seqs = 60;
    spec.tokens_per_row = 3;
    complaints += compare_thread_counts(&spec);
    NO_COMPLAINTS(complaints);
}

/* Answers of one implementation do not depend on what the workspace and outputs held, nor on the call before. */
static void repeated_calls_have_the_same_bits(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("first call");
    spec.lengths = LENGTHS(65, 3, 200);
    spec.num_seqs = 3;
    test_case first, again;
    case_build(&first, &spec);
    spec.label = "a later call";
    case_build(&again, &spec);
    run(&first);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &again));
    int complaints = 0;
    for (int i = 0; i < (test_is_small() ? 10 : 50); i++) {
        REQUIRE_OK(i % 2 == 0 ? stage_run(&stage) : stage_run_again(&stage));
        complaints += stage_collect(&stage);
        complaints += same_results(&first, &again);
    }
    stage_close(&stage);
    case_free(&first);
    case_free(&again);
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_in_any_batch),
        cmocka_unit_test(a_decode_row_has_the_same_bits_alone_and_in_any_batch),
        cmocka_unit_test(slot_numbers_change_no_bit),
        cmocka_unit_test(thread_counts_change_no_bit),
        cmocka_unit_test(repeated_calls_have_the_same_bits),
    };
    return RUN_SUITE("invariance", tests);
}
