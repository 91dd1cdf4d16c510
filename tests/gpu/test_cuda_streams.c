/* Streams: work is queued on the caller's stream and nowhere else, streams share nothing, and bits repeat. */
#include "gpu_tools.h"

#include <string.h>

static gdn_context *context;

static int set_up(void **state)
{
    (void)state;
    context = gpu_context(0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

static void queue(staged_case *stage)
{
    if (stage->c->spec.operation == GDN_OPERATION_DECODE) {
        REQUIRE_OK(gdn_decode(stage->plan, &stage->decode));
    } else {
        REQUIRE_OK(gdn_prefill(stage->plan, &stage->prefill));
    }
}

/* 0 where what the stage's buffers hold now is, byte for byte, what `expected` collected. */
static int differs(staged_case *stage, const test_case *expected)
{
    REQUIRE(stage_collect(stage) == 0);
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        const case_buffer *const a = &stage->c->buffer[i];
        const case_buffer *const b = &expected->buffer[i];
        if (a->bytes > 0 && memcmp(a->after, b->after, a->bytes) != 0) {
            return 1;
        }
    }
    return 0;
}

/* A 200 ms kernel, then the copies that fill the inputs, then the call: on a stream that waits for no other. */
static void work_follows_what_is_on_its_stream(void **state)
{
    (void)state;
    const case_spec spec = {
        .label = "stream", .seed = 1, .num_k_heads = 2, .num_v_heads = 4, .head_k_dim = 64, .length = 150};
    test_case expected;
    test_case c;
    case_build(&expected, &spec);
    case_build(&c, &spec);
    REQUIRE_OK(case_run(context, &expected, NULL));

    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    /* The inputs wait in other device memory; the call's own buffers hold NaN until the copies have run. */
    void *copies[CASE_NUM_OPERANDS] = {NULL};
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage.base[i] != NULL) {
            REQUIRE_OK(gdn_memory_alloc(context, &copies[i], c.buffer[i].bytes));
            REQUIRE_OK(
                gdn_memory_copy(context, copies[i], c.buffer[i].before, c.buffer[i].bytes, GDN_COPY_TO_BACKEND, NULL));
            REQUIRE_OK(gdn_memory_fill(context, stage.base[i], 0xFF, c.buffer[i].bytes, NULL));
        }
    }
    REQUIRE_OK(gdn_synchronize(context, NULL));
    cudaStream_t stream;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stage.prefill.stream = stream;
    gpu_spin(stream, 200);
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage.base[i] != NULL) {
            REQUIRE_OK(
                gdn_memory_copy(context, stage.base[i], copies[i], c.buffer[i].bytes, GDN_COPY_WITHIN_BACKEND, stream));
        }
    }
    queue(&stage);
    REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady); /* queued, not waited for */
    REQUIRE_OK(gdn_plan_check(stage.plan, stage.workspace, stream));
    REQUIRE(differs(&stage, &expected) == 0);

    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        REQUIRE_OK(gdn_memory_free(context, &copies[i]));
    }
    stage_close(&stage);
    REQUIRE_CUDA(cudaStreamDestroy(stream));
    case_free(&c);
    case_free(&expected);
}

static void check_two_streams(gdn_dtype dtype, gdn_operation operation)
{
    enum { ROUNDS = 100 };
    test_case expected[2];
    test_case c[2];
    staged_case stage[2];
    cudaStream_t stream[2];
    for (int i = 0; i < 2; i++) {
        const case_spec spec = {.label = "two streams",
                                .seed = 10 + (uint64_t)i,
                                .operation = operation,
                                .num_k_heads = 4,
                                .num_v_heads = 8,
                                .head_k_dim = dtype == GDN_DTYPE_F32 ? 64 : 128,
                                .dtype = dtype,
                                .length = 300,
                                .num_seqs = operation == GDN_OPERATION_DECODE ? 64 : 1,
                                .tokens_per_row = 2};
        case_build(&expected[i], &spec);
        case_build(&c[i], &spec);
        REQUIRE_OK(case_run(context, &expected[i], NULL));
        REQUIRE_OK(stage_open(&stage[i], context, &c[i]));
        REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        gpu_upload(&stage[i], stream[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        queue(&stage[round % 2]);
        queue(&stage[(round + 1) % 2]);
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(gdn_plan_check(stage[i].plan, stage[i].workspace, stream[i]));
        REQUIRE(differs(&stage[i], &expected[i]) == 0);
        stage_close(&stage[i]);
        REQUIRE_CUDA(cudaStreamDestroy(stream[i]));
        case_free(&c[i]);
        case_free(&expected[i]);
    }
}

static void two_streams_at_once_share_nothing(void **state)
{
    (void)state;
    check_two_streams(GDN_DTYPE_F32, GDN_OPERATION_PREFILL);
    check_two_streams(GDN_DTYPE_BF16, GDN_OPERATION_PREFILL);
    check_two_streams(GDN_DTYPE_BF16, GDN_OPERATION_DECODE);
}

/* Strong and weak decay by turns make a stale value loud; each run finds shared memory and registers full of NaN. */
static void fifty_runs_have_the_same_bits(void **state)
{
    (void)state;
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        const case_spec spec = {.label = "repeats",
                                .seed = 20,
                                .num_k_heads = 8,
                                .num_v_heads = 16,
                                .head_k_dim = 128,
                                .dtype = types[i],
                                .length = 2048,
                                .gates = GATES_ALTERNATE};
        test_case first;
        test_case again;
        case_build(&first, &spec);
        case_build(&again, &spec);
        REQUIRE_OK(case_run(context, &first, NULL));
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, context, &again));
        for (int run = 1; run < 50; run++) {
            gpu_dirty(NULL);
            REQUIRE_CUDA(cudaGetLastError());
            REQUIRE_OK(stage_run(&stage));
            if (differs(&stage, &first)) {
                fail_msg("run %d differs from the first", run);
            }
        }
        stage_close(&stage);
        case_free(&first);
        case_free(&again);
    }
}

int main(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_follows_what_is_on_its_stream),
        cmocka_unit_test(two_streams_at_once_share_nothing),
        cmocka_unit_test(fifty_runs_have_the_same_bits),
    };
    return cmocka_run_group_tests_name("cuda streams", tests, set_up, tear_down);
}
