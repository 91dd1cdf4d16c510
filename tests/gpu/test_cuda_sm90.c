/* The Hopper prefill by its name: what it chooses by the batch, the multiprocessors and the workspace changes no bit. It runs
 * half of V a block or all of it, with prep in the same kernel or not, cuts sequences in two or not, and works in waves; graphs
 * and streams meet all of that. */
#include "sm90_tools.h"

#include "harness/formats.h"

#include <stdio.h>
#include <string.h>

/* A long sequence alone is shared by several blocks, among others it is not. */
static void a_sequence_has_its_bits_in_any_batch(void **state)
{
    (void)state;
    const int64_t lengths[] = {4160, 70, 0, 4097, 1, 300, 64, 128, 511, 4160};
    NO_COMPLAINTS(sm90_compare_with_alone(sm90_spec("128 x 128", 128, 128), lengths, COUNT_OF(lengths)));
}

/* With few heads sequences are cut into segments, each its own number of them: more items than blocks, many not there. */
static void segments_come_in_any_batch(void **state)
{
    (void)state;
    const int64_t lengths[] = {8192, 70, 7168, 0, 7169, 12345, 1, 8192, 4100};
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    spec.num_k_heads = 2;
    spec.num_v_heads = 8;
    NO_COMPLAINTS(sm90_compare_with_alone(spec, lengths, COUNT_OF(lengths)));
}

/* Sequences of which some are long enough to be shared by several blocks, some of which begin when a shorter one is done. */
static void uneven_pieces_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        int32_t num_v_heads; /* of 132 multiprocessors, room for 16, 4, 2 and 2 pieces at once */
        int64_t num_seqs, lengths[4];
    } batches[] = {
        {4, 4, {1, 2500, 64, 1700}}, {16, 3, {2000, 1500, 1100}}, {24, 2, {2700, 300}}, {32, 2, {100, 1800}}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        case_spec spec = sm90_spec("128 x 128", 128, 128);
        spec.num_v_heads = batches[i].num_v_heads;
        spec.num_k_heads = spec.num_v_heads / 4;
        for (int64_t n = 0; n < batches[i].num_seqs; n++) {
            spec.max_seqlen = batches[i].lengths[n] > spec.max_seqlen ? batches[i].lengths[n] : spec.max_seqlen;
        }
        complaints += sm90_compare_with_alone(spec, batches[i].lengths, batches[i].num_seqs);
    }
    NO_COMPLAINTS(complaints);
}

/* Many short sequences, as the plan's bounds would have it: half of V a block where one sequence might have all tokens, the
 * fused kernel where none has many, all of V a block where the workspace has no room for that. With more than 512 sequences
 * the fused kernel takes them in their order, with fewer the longest first; up to 256 it has no chunk table. */
static void forms_change_no_bit(void **state)
{
    (void)state;
    enum { MOST = 600, LONGEST = 130 };
    const int64_t counts[] = {250, 264, MOST};
    int64_t lengths[MOST];
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        test_random random = random_stream(71, (uint64_t)i);
        for (int64_t n = 0; n < counts[i]; n++) {
            lengths[n] = n % 37 == 5 ? 0 : random_index(&random, counts[i] == MOST ? 40 : 90);
        }
        lengths[100] = LONGEST;
        case_spec spec = sm90_spec("128 x 128", 128, 128);
        spec.num_k_heads = 1;
        spec.num_v_heads = 2;
        spec.lengths = lengths;
        spec.num_seqs = counts[i];
        test_case half, fused, whole;
        case_build(&half, &spec);
        spec.max_seqlen = LONGEST;
        case_build(&fused, &spec);
        spec.max_workspace = 450000; /* waves of four chunks */
        case_build(&whole, &spec);
        sm90_run(&half);
        sm90_run(&fused);
        sm90_run(&whole);
        complaints += same_results(&half, &fused) + same_results(&half, &whole);
        case_free(&half);
        case_free(&fused);
        case_free(&whole);
    }
    NO_COMPLAINTS(complaints);
}

/* As many items as leave a third of the last round of blocks idle, if blocks take whole ones: so they have parts of them, in the
 * fused kernel and, as it does not take float16 to be normalised, in the half form. One sequence is left out, states are in place.
 * The waves of a small workspace have whole items. */
static void shares_change_no_bit(void **state)
{
    (void)state;
    enum { MOST = 96, LENGTH = 500 };
    static const struct {
        gdn_dtype dtype;
        gdn_qk_norm qk_norm;
        int64_t num_seqs; /* of 132 multiprocessors and two heads, 192 items or halves of them */
    } batches[] = {{GDN_DTYPE_BF16, GDN_QK_NORM_NONE, MOST}, {GDN_DTYPE_F16, GDN_QK_NORM_RSQRT, MOST / 2}};
    int64_t lengths[MOST];
    int64_t slots[MOST];
    for (int64_t n = 0; n < MOST; n++) {
        lengths[n] = n % 9 == 5 ? LENGTH - 20 : LENGTH;
        slots[n] = n == 7 ? -1 : MOST - 1 - n;
    }
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        case_spec spec = sm90_spec("128 x 128", 128, 128);
        test_case shared;
        test_case whole;
        spec.dtype = batches[i].dtype;
        spec.qk_norm = batches[i].qk_norm;
        spec.num_k_heads = 1;
        spec.num_v_heads = 2;
        spec.lengths = lengths;
        spec.num_seqs = batches[i].num_seqs;
        spec.max_seqlen = LENGTH;
        spec.state_form = GDN_STATE_POOL;
        spec.in_place = true;
        spec.read_slots = slots;
        spec.num_slots = MOST;
        case_build(&shared, &spec);
        spec.max_workspace = 450000;
        case_build(&whole, &spec);
        sm90_run(&shared);
        sm90_run(&whole);
        complaints += same_results(&shared, &whole);
        case_free(&shared);
        case_free(&whole);
    }
    NO_COMPLAINTS(complaints);
}

/* A wrong row is left out and reported alike where the fused kernel has a chunk table (since gates are checked, too) and where it
 * has none. */
static void wrong_rows_are_left_out_without_a_table(void **state)
{
    (void)state;
    enum { SEQS = 250, LONGEST = 130 };
    static const struct {
        int64_t index, value;
    } wrong[] = {{77, 3}, {77, INT64_C(1) << 40}, {SEQS, -1}, {0, 1}, {12, INT64_MAX}};
    int64_t lengths[SEQS];
    test_random random = random_stream(72, 0);
    for (int64_t n = 0; n < SEQS; n++) {
        lengths[n] = n % 37 == 5 ? 0 : random_index(&random, 90);
    }
    lengths[100] = LONGEST;
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    spec.num_k_heads = 1;
    spec.num_v_heads = 2;
    spec.lengths = lengths;
    spec.num_seqs = SEQS;
    spec.max_seqlen = LONGEST;
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        test_case c[2];
        char said[2][512];
        for (int check = 0; check < 2; check++) {
            staged_case stage;
            case_build(&c[check], &spec);
            c[check].problem.check = check;
            format_store_index(c[check].problem.cu_seqlens_dtype, case_before(&c[check], CASE_CU_SEQLENS),
                               wrong[i].index, wrong[i].value);
            REQUIRE_OK(stage_open(&stage, sm90_context(), &c[check]));
            REQUIRE(stage_run(&stage) == GDN_ERROR_INVALID_ARGUMENT);
            snprintf(said[check], sizeof(said[check]), "%s", gdn_last_error());
            REQUIRE(stage_collect(&stage) == 0);
            stage_close(&stage);
        }
        if (strcmp(said[0], said[1]) != 0) {
            print_message("without a table: %s; with one: %s\n", said[0], said[1]);
            complaints++;
        }
        complaints += same_results(&c[0], &c[1]);
        case_free(&c[0]);
        case_free(&c[1]);
    }
    NO_COMPLAINTS(complaints);
}

/* In several waves, each of which cuts what it has of the sequence in two, as in one. */
static void waves_change_no_bit(void **state)
{
    (void)state;
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    test_case whole;
    spec.length = 200 * 64 - 9;
    case_build(&whole, &spec);
    sm90_run(&whole);
    int complaints = 0;
    for (size_t mebibytes = 20; mebibytes <= 60; mebibytes += 20) {
        test_case parts;
        spec.max_workspace = mebibytes << 20;
        case_build(&parts, &spec);
        sm90_run(&parts);
        complaints += same_results(&whole, &parts);
        case_free(&parts);
    }
    case_free(&whole);
    NO_COMPLAINTS(complaints);
}

/* The same against the reference, with few enough heads for it. */
static void waves_are_right(void **state)
{
    (void)state;
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    spec.num_k_heads = spec.num_v_heads = 17;
    spec.length = test_is_small() ? 70 * 64 + 5 : 200 * 64 - 9;
    spec.max_workspace = (size_t)32 << 20;
    test_case c;
    case_build(&c, &spec);
    NO_COMPLAINTS(check_built_case(sm90_context(), &c));
    case_free(&c);
}

/* Several blocks read the state that the last of them replaces; a sequence between them is left out. */
static void a_state_in_place_is_read_before(void **state)
{
    (void)state;
    const int64_t lengths[] = {2500, 100, 1500}, slots[] = {2, -1, 0};
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    spec.num_k_heads = 1;
    spec.num_v_heads = 2;
    spec.lengths = lengths;
    spec.num_seqs = COUNT_OF(lengths);
    spec.max_seqlen = 2500;
    spec.state_form = GDN_STATE_POOL;
    spec.in_place = true;
    spec.read_slots = slots;
    spec.num_slots = 3;
    test_case c;
    case_build(&c, &spec);
    NO_COMPLAINTS(check_built_case(sm90_context(), &c));
    case_free(&c);
}

/* A graph captured for one batch of 8 heads and replayed on another, whose long sequence is another one. */
static int complain_of_replays(int64_t longest)
{
    const int64_t lengths[2][3] = {{longest, 70, 30}, {1, 99, longest}};
    test_case captured;
    test_case changed;
    test_case expected[2];
    case_spec spec = sm90_spec("128 x 128", 128, 128);
    spec.num_k_heads = 4;
    spec.num_v_heads = 8;
    spec.num_seqs = 3;
    spec.lengths = lengths[0];
    case_build(&captured, &spec);
    case_build(&expected[0], &spec);
    spec.lengths = lengths[1];
    case_build(&changed, &spec);
    case_build(&expected[1], &spec);

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    staged_case stage;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE_OK(stage_open(&stage, sm90_context(), &captured));
    stage.prefill.stream = stream;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    REQUIRE_OK(gdn_prefill(stage.plan, &stage.prefill));
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    test_case *const batches[] = {&captured, &changed, &captured, &changed};
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        stage.c = batches[i];
        gpu_upload(&stage, stream);
        REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
        REQUIRE_OK(gdn_plan_check(stage.plan, stage.workspace, stream));
        REQUIRE(stage_collect(&stage) == 0);
    }
    stage.c = &captured;
    stage_close(&stage);
    REQUIRE_CUDA(cudaGraphExecDestroy(executable));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    REQUIRE_CUDA(cudaStreamDestroy(stream));

    sm90_run(&expected[0]);
    sm90_run(&expected[1]);
    const int complaints = same_results(&captured, &expected[0]) + same_results(&changed, &expected[1]);
    case_free(&captured);
    case_free(&changed);
    case_free(&expected[0]);
    case_free(&expected[1]);
    return complaints;
}

/* Shared out as pieces, and cut into segments. */
static void replays_follow_the_lengths(void **state)
{
    (void)state;
    NO_COMPLAINTS(complain_of_replays(4160));
    NO_COMPLAINTS(complain_of_replays(7300));
}

static void two_streams_at_once_share_nothing(void **state)
{
    (void)state;
    enum { ROUNDS = 50 };
    test_case expected[2];
    test_case c[2];
    staged_case stage[2];
    cudaStream_t stream[2];
    for (int i = 0; i < 2; i++) {
        case_spec spec = sm90_spec("128 x 128", 128, 128);
        spec.seed += (uint64_t)i;
        spec.length = 600;
        case_build(&expected[i], &spec);
        case_build(&c[i], &spec);
        sm90_run(&expected[i]);
        REQUIRE_OK(stage_open(&stage[i], sm90_context(), &c[i]));
        REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        gpu_upload(&stage[i], stream[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        REQUIRE_OK(gdn_prefill(stage[round % 2].plan, &stage[round % 2].prefill));
        REQUIRE_OK(gdn_prefill(stage[(round + 1) % 2].plan, &stage[(round + 1) % 2].prefill));
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(gdn_plan_check(stage[i].plan, stage[i].workspace, stream[i]));
        REQUIRE(stage_collect(&stage[i]) == 0);
        NO_COMPLAINTS(same_results(&c[i], &expected[i]));
        stage_close(&stage[i]);
        REQUIRE_CUDA(cudaStreamDestroy(stream[i]));
        case_free(&c[i]);
        case_free(&expected[i]);
    }
}

int main(void)
{
    if (!sm90_open()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_has_its_bits_in_any_batch),
        cmocka_unit_test(segments_come_in_any_batch),
        cmocka_unit_test(uneven_pieces_change_no_bit),
        cmocka_unit_test(forms_change_no_bit),
        cmocka_unit_test(shares_change_no_bit),
        cmocka_unit_test(wrong_rows_are_left_out_without_a_table),
        cmocka_unit_test(waves_change_no_bit),
        cmocka_unit_test(waves_are_right),
        cmocka_unit_test(a_state_in_place_is_read_before),
        cmocka_unit_test(replays_follow_the_lengths),
        cmocka_unit_test(two_streams_at_once_share_nothing),
    };
    return cmocka_run_group_tests_name("cuda sm90", tests, NULL, sm90_close);
}
