/* CUDA graphs: a call is captured once and replayed while cu_seqlens, slots and data change in device memory. */
#include "gpu_tools.h"

#include <string.h>

static gdn_context *context;

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

/* The first call of the process is made inside a capture: nothing may be set up lazily in a way a capture forbids. In
 * the strictest mode, an allocation or a wait anywhere in the call ends the capture with an error. */
static cudaGraphExec_t capture(staged_case *stage, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    stage->prefill.stream = stage->decode.stream = stream;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (stage->c->spec.operation == GDN_OPERATION_DECODE) {
        REQUIRE_OK(gdn_decode(stage->plan, &stage->decode));
    } else {
        REQUIRE_OK(gdn_prefill(stage->plan, &stage->prefill));
    }
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    return executable;
}

static void replay(staged_case *stage, cudaGraphExec_t executable, cudaStream_t stream)
{
    gpu_upload(stage, stream);
    REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
    REQUIRE_OK(gdn_plan_check(stage->plan, stage->workspace, stream));
    REQUIRE(stage_collect(stage) == 0);
}

/* Two shapes of one batch: what the graph is captured with, and what it is replayed on. */
static const int64_t lengths[2][2] = {{70, 30}, {1, 99}};
static const int64_t reads[2][2] = {{1, 0}, {2, 0}};
static const int64_t writes[2][2] = {{1, 0}, {2, 3}};

static case_spec shape(int which, gdn_dtype dtype)
{
    const case_spec spec = {.label = "graph",
                            .seed = 30 + (uint64_t)which,
                            .num_k_heads = 2,
                            .num_v_heads = 4,
                            .head_k_dim = 64,
                            .dtype = dtype,
                            .lengths = lengths[which],
                            .num_seqs = 2,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 4,
                            .read_slots = reads[which],
                            .write_slots = writes[which]};
    return spec;
}

static void replays_follow_what_is_in_memory(void **state)
{
    (void)state;
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16};
    cudaStream_t stream;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        test_case captured;
        test_case changed;
        test_case expected[2];
        const case_spec specs[2] = {shape(0, types[i]), shape(1, types[i])};
        case_build(&captured, &specs[0]);
        case_build(&changed, &specs[1]);
        case_build(&expected[0], &specs[0]);
        case_build(&expected[1], &specs[1]);

        staged_case stage;
        REQUIRE_OK(stage_open(&stage, context, &captured));
        const cudaGraphExec_t executable = capture(&stage, stream);
        replay(&stage, executable, stream);
        /* The other batch in the same memory. */
        stage.c = &changed;
        replay(&stage, executable, stream);
        replay(&stage, executable, stream);
        stage.c = &captured;
        stage_close(&stage);
        REQUIRE_CUDA(cudaGraphExecDestroy(executable));

        REQUIRE_OK(case_run(context, &expected[0], NULL));
        REQUIRE_OK(case_run(context, &expected[1], NULL));
        NO_COMPLAINTS(same_results(&captured, &expected[0]) + same_results(&changed, &expected[1]));
        case_free(&captured);
        case_free(&changed);
        case_free(&expected[0]);
        case_free(&expected[1]);
    }
    REQUIRE_CUDA(cudaStreamDestroy(stream));
}

/* A fault that a replay brings in is found by the replay and gone with the next. */
static void a_replay_reports_its_own_faults(void **state)
{
    (void)state;
    cudaStream_t stream;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const case_spec spec = shape(0, GDN_DTYPE_F32);
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    const cudaGraphExec_t executable = capture(&stage, stream);
    replay(&stage, executable, stream);

    int64_t *const cu = (int64_t *)(void *)case_before(&c, CASE_CU_SEQLENS);
    cu[1] = 101;
    gpu_upload(&stage, stream);
    REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
    REQUIRE(gdn_plan_check(stage.plan, stage.workspace, stream) == GDN_ERROR_INVALID_ARGUMENT);
    cu[1] = 70;
    replay(&stage, executable, stream);

    stage_close(&stage);
    REQUIRE_CUDA(cudaGraphExecDestroy(executable));
    REQUIRE_CUDA(cudaStreamDestroy(stream));
    case_free(&c);
}

int main(void)
{
    context = gpu_context(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_follow_what_is_in_memory),
        cmocka_unit_test(a_replay_reports_its_own_faults),
    };
    return cmocka_run_group_tests_name("cuda graphs", tests, NULL, tear_down);
}
