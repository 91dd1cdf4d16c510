/* The kernels of cuda.decode: every layout, type and dim that chooses one, bits that must not depend on the choice, and calls that follow
 * one another without a pause. */
#include "gpu_tools.h"

#include "harness/slices.h"

static gdn_context *context;

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};

/* The head_v_dim of 36 ends inside a block's columns, the one of 6 inside a piece of 16 bytes. */
static void every_kernel_is_right(void **state)
{
    (void)state;
    static const int32_t dims[][2] = {{64, 36}, {128, 128}, {128, 36}, {128, 6}, {256, 36}};
    static const int32_t num_tokens[] = {3, 0, 1};
    static const uint8_t has_initial_state[] = {1, 0, 1};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        for (state_style style = STATES_VK; style <= STATES_SHIFTED; style++) {
            for (size_t type = 0; type < COUNT_OF(dtypes) * COUNT_OF(dtypes); type++) {
                for (int32_t tokens = 1; tokens <= 3; tokens += 2) {
                    for (int pool = 0; pool < 2; pool++) {
                        const bool raw = (type + (size_t)style) % 2 == 0;
                        char label[96];
                        snprintf(label, sizeof(label),
                                 "decode: %d x %d, state style %d, io %s, states %s, %d tokens, %s", dims[i][0],
                                 dims[i][1], (int)style, gdn_dtype_name(dtypes[type % 3]),
                                 gdn_dtype_name(dtypes[type / 3]), tokens, pool ? "pool" : "dense");
                        const case_spec spec = {.label = label,
                                                .seed = 400 + type,
                                                .operation = GDN_OPERATION_DECODE,
                                                .num_k_heads = 1,
                                                .num_v_heads = 2,
                                                .head_k_dim = dims[i][0],
                                                .head_v_dim = dims[i][1],
                                                .dtype = dtypes[type % 3],
                                                .gate_dtype = raw ? dtypes[type % 3] : GDN_DTYPE_F32,
                                                .beta_dtype = raw ? dtypes[type % 3] : GDN_DTYPE_F32,
                                                .state_dtype = dtypes[type / 3],
                                                .final_dtype = dtypes[type / 3],
                                                .gate_form = raw ? GDN_GATE_RAW : GDN_GATE_LOG_DECAY,
                                                .beta_form = raw ? GDN_BETA_LOGIT : GDN_BETA_VALUE,
                                                .qk_norm = raw ? GDN_QK_NORM_RSQRT : GDN_QK_NORM_NONE,
                                                .operands = type % 3 == 0 ? OPERANDS_DENSE : OPERANDS_PACKED,
                                                .states = style,
                                                .finals = style,
                                                .num_seqs = 3,
                                                .tokens_per_row = tokens,
                                                .num_tokens = tokens > 1 ? num_tokens : NULL,
                                                .has_initial_state = raw ? has_initial_state : NULL,
                                                .state_form = pool ? GDN_STATE_POOL : GDN_STATE_DENSE,
                                                .slots_dtype = raw ? GDN_DTYPE_I32 : GDN_DTYPE_I64,
                                                .read_slots = pool ? SLOTS(5, -1, 0) : NULL,
                                                .in_place = pool != 0};
                        complaints += check_case(&spec);
                    }
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static case_spec layer(const char *label, state_style style, int32_t dim, gdn_dtype dtype)
{
    return (case_spec){.label = label,
                       .seed = 41,
                       .operation = GDN_OPERATION_DECODE,
                       .num_k_heads = 2,
                       .num_v_heads = 4,
                       .head_k_dim = dim,
                       .dtype = dtype,
                       .gate_form = GDN_GATE_RAW,
                       .beta_form = GDN_BETA_LOGIT,
                       .qk_norm = GDN_QK_NORM_RSQRT,
                       .states = style,
                       .finals = style,
                       .num_seqs = 2};
}

/* Rows of one token have a kernel of their own, and the usual types a shorter one. */
static void n_tokens_in_one_call_are_n_calls(void **state)
{
    (void)state;
    static const int32_t dims[] = {64, 128, 256};
    enum { TOKENS = 5 };
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims) * COUNT_OF(dtypes); i++) {
        for (state_style style = STATES_VK; style <= STATES_PADDED; style++) {
            char label[96];
            snprintf(label, sizeof(label), "%d tokens of dim %d in one call, io %s, state style %d", TOKENS,
                     dims[i / 3], gdn_dtype_name(dtypes[i % 3]), (int)style);
            case_spec spec = layer(label, style, dims[i / 3], dtypes[i % 3]);
            spec.tokens_per_row = TOKENS;
            test_case many, one;
            case_build(&many, &spec);
            REQUIRE_OK(case_run(context, &many, NULL));
            spec.label = "one token a call";
            spec.tokens_per_row = 1;
            case_build(&one, &spec);
            for (int64_t n = 0; n < 2; n++) {
                copy_initial_state(&one, n, &many, n);
            }
            for (int64_t t = 0; t < TOKENS; t++) {
                for (int64_t n = 0; n < 2; n++) {
                    copy_tokens(&one, n, &many, n * TOKENS + t, 1);
                }
                REQUIRE_OK(case_run(context, &one, NULL));
                for (int64_t n = 0; n < 2; n++) {
                    complaints += same_outputs(&one, n, &many, n * TOKENS + t, 1);
                    carry_state(&one, n, &one, n);
                }
            }
            for (int64_t n = 0; n < 2; n++) {
                complaints += same_state(&one, CASE_FINAL_STATE, n, &many, CASE_FINAL_STATE, n);
            }
            case_free(&many);
            case_free(&one);
        }
    }
    NO_COMPLAINTS(complaints);
}

static int rows_are_the_same_alone(const case_spec *spec)
{
    test_case many, one;
    case_build(&many, spec);
    REQUIRE_OK(case_run(context, &many, NULL));
    case_spec alone = *spec;
    alone.label = "alone";
    alone.num_seqs = 1;
    alone.state_form = GDN_STATE_DENSE;
    case_build(&one, &alone);
    copy_head_parameters(&one, &many);
    int complaints = 0;
    for (int64_t n = 0; n < spec->num_seqs; n += spec->num_seqs / 3) {
        copy_initial_state(&one, 0, &many, n);
        copy_tokens(&one, 0, &many, n, 1);
        REQUIRE_OK(case_run(context, &one, NULL));
        complaints += same_sequence(&one, 0, &many, n);
    }
    case_free(&many);
    case_free(&one);
    return complaints;
}

/* Calls of many rows have kernels of their own, which ask for states and tokens in another order, and where they read several times what
 * the L2 holds, in another way. To keep the test short, most have two states for all rows, and write none. */
static void a_row_is_the_same_alone_and_among_many(void **state)
{
    (void)state;
    enum { MOST_ROWS = 4096 };
    static const struct {
        int32_t dim;
        int64_t full; /* rows of 8 heads whose blocks are as many as fit */
        int64_t large; /* rows whose 16-bit states are 270 MB */
    } sizes[] = {{64, 144, MOST_ROWS}, {128, 36, MOST_ROWS / 4}, {256, 12, MOST_ROWS / 16}};
    static int64_t slots[MOST_ROWS];
    for (int64_t n = 0; n < MOST_ROWS; n++) {
        slots[n] = n % 2;
    }
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t type = 0; type < 2 * COUNT_OF(dtypes); type++) {
            for (state_style style = STATES_VK; style <= STATES_KV; style++) {
                const gdn_dtype dtype = dtypes[type % 2], state_dtype = dtypes[type / 2];
                if (style == STATES_KV && (state_dtype != GDN_DTYPE_F32 || sizes[i].dim > 128)) {
                    continue; /* those have one kernel for any number of rows */
                }
                char label[96];
                snprintf(label, sizeof(label), "many rows of dim %d, io %s, states %s, style %d", sizes[i].dim,
                         gdn_dtype_name(dtype), gdn_dtype_name(state_dtype), (int)style);
                case_spec spec = layer(label, style, sizes[i].dim, dtype);
                spec.state_dtype = state_dtype;
                spec.final_dtype = state_dtype;
                spec.num_k_heads = 4;
                spec.num_v_heads = 8;
                spec.num_seqs = sizes[i].full;
                if (dtype == GDN_DTYPE_BF16 && state_dtype == GDN_DTYPE_F32) {
                    complaints += rows_are_the_same_alone(&spec);
                }
                spec.state_form = GDN_STATE_POOL;
                spec.num_slots = 2;
                spec.read_slots = slots;
                spec.no_write_slots = true;
                complaints += rows_are_the_same_alone(&spec);
                if (dtype == GDN_DTYPE_BF16 && !test_is_small()) {
                    spec.num_seqs = sizes[i].large / (state_dtype == GDN_DTYPE_F32 ? 2 : 1);
                    complaints += rows_are_the_same_alone(&spec);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

enum { CALLS = 40 };

/* Calls on the pool slots that the call before wrote: one after another with a wait between, or queued at once, or in a graph. A
 * copy stands between two of them. */
static void queue_calls(staged_case *stage, cudaStream_t stream, void *scratch, bool wait)
{
    for (int i = 0; i < CALLS; i++) {
        REQUIRE_OK(gdn_decode(stage->plan, &stage->decode));
        if (wait) {
            REQUIRE_CUDA(cudaStreamSynchronize(stream));
        }
        if (i == CALLS / 2) {
            REQUIRE_CUDA(cudaMemcpyAsync(scratch, (const char *)scratch + 256, 256, cudaMemcpyDeviceToDevice, stream));
        }
    }
}

static void calls_wait_for_one_another(void **state)
{
    (void)state;
    cudaStream_t stream;
    void *scratch = NULL;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE_CUDA(cudaMalloc(&scratch, 512));
    int complaints = 0;
    static const int64_t counts[] = {1, 4,
                                     8}; /* few blocks, more than a quarter of those that fit, and more than fit */
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (int32_t tokens = 1; tokens <= 2; tokens++) {
            case_spec spec = layer("calls with a wait between", STATES_VK, 128, GDN_DTYPE_BF16);
            spec.num_k_heads = 16;
            spec.num_v_heads = 32;
            spec.num_seqs = counts[i];
            spec.tokens_per_row = tokens;
            spec.state_form = GDN_STATE_POOL;
            spec.in_place = true;
            test_case c[3];
            for (int form = 0; form < 3; form++) {
                case_build(&c[form], &spec);
                spec.label = form == 0 ? "calls queued at once" : "calls in a graph";
                staged_case stage;
                REQUIRE_OK(stage_open(&stage, context, &c[form]));
                gpu_upload(&stage, stream);
                if (form < 2) {
                    queue_calls(&stage, stream, scratch, form == 0);
                } else {
                    cudaGraph_t graph;
                    cudaGraphExec_t executable;
                    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                    queue_calls(&stage, stream, scratch, false);
                    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
                    REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
                    REQUIRE_CUDA(cudaGraphDestroy(graph));
                    REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
                    REQUIRE_CUDA(cudaStreamSynchronize(stream));
                    REQUIRE_CUDA(cudaGraphExecDestroy(executable));
                }
                REQUIRE_OK(gdn_plan_check(stage.plan, stage.workspace, stream));
                REQUIRE(stage_collect(&stage) == 0);
                stage_close(&stage);
            }
            complaints += same_results(&c[1], &c[0]) + same_results(&c[2], &c[0]);
            for (int form = 0; form < 3; form++) {
                case_free(&c[form]);
            }
        }
    }
    REQUIRE_CUDA(cudaFree(scratch));
    REQUIRE_CUDA(cudaStreamDestroy(stream));
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    context = gpu_context(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_is_right),
        cmocka_unit_test(n_tokens_in_one_call_are_n_calls),
        cmocka_unit_test(a_row_is_the_same_alone_and_among_many),
        cmocka_unit_test(calls_wait_for_one_another),
    };
    return cmocka_run_group_tests_name("cuda decode", tests, NULL, tear_down);
}
