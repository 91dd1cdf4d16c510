/* Prefill on a CUDA device as an inference engine does it: bfloat16 tensors and states in the program's own device memory,
 * on a stream of its own, captured once in a graph and replayed on new batches that are written over the old ones.
 *
 * Built where the CUDA toolkit's headers are; needs a device to run. */
#include <gdn/gdn_cuda.h>

#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>

enum { K_HEADS = 4, V_HEADS = 8, DIM = 128, MAX_TOKENS = 512, MAX_SEQS = 4, SLOTS = 16 };

static void check(gdn_status status)
{
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s\n", gdn_status_string(status), gdn_last_error());
        exit(EXIT_FAILURE);
    }
}

static void check_cuda(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}

static void *device_memory(size_t bytes)
{
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, bytes));
    check_cuda(cudaMemset(memory, 0, bytes));
    return memory;
}

/* `count` bfloat16 numbers in [-1, 1] to device memory, in stream order. */
static void upload(void *device, size_t count, cudaStream_t stream)
{
    static uint32_t state = 1;
    float *const values = malloc(count * sizeof(float));
    uint16_t *const rounded = malloc(count * sizeof(uint16_t));
    if (values == NULL || rounded == NULL) {
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)state / 2147483648.0f;
    }
    check(gdn_convert(rounded, GDN_DTYPE_BF16, values, GDN_DTYPE_F32, (int64_t)count));
    check_cuda(cudaMemcpyAsync(device, rounded, count * sizeof(uint16_t), cudaMemcpyHostToDevice, stream));
    free(values);
    free(rounded);
}

int main(void)
{
    gdn_context_options options;
    gdn_context *context = NULL;
    check(gdn_context_options_init(&options));
    options.backend = "cuda";
    const gdn_status created = gdn_context_create(&context, &options);
    if (created == GDN_ERROR_BACKEND_UNAVAILABLE) {
        printf("no CUDA device to use: %s\n", gdn_last_error());
        return EXIT_SUCCESS;
    }
    check(created);

    /* What every batch has in common, and the largest there will be. */
    gdn_problem problem;
    check(gdn_problem_init(&problem, K_HEADS, V_HEADS, DIM, DIM));
    problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = GDN_DTYPE_BF16;
    problem.gate.dtype = problem.beta.dtype = GDN_DTYPE_BF16;
    problem.gate_form = GDN_GATE_RAW;
    problem.beta_form = GDN_BETA_LOGIT;
    problem.qk_norm = GDN_QK_NORM_RSQRT;
    problem.state_form = GDN_STATE_POOL;
    problem.slots_dtype = GDN_DTYPE_I32;
    problem.cu_seqlens_dtype = GDN_DTYPE_I32;
    problem.max_seqs = MAX_SEQS;
    problem.max_tokens = MAX_TOKENS;
    gdn_plan *plan = NULL;
    char text[4096];
    check(gdn_plan_create(&plan, context, &problem));
    check(gdn_plan_describe(plan, text, sizeof(text), NULL));
    printf("%s", text);

    cudaStream_t stream;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    const size_t qk_count = (size_t)MAX_TOKENS * K_HEADS * DIM;
    const size_t v_count = (size_t)MAX_TOKENS * V_HEADS * DIM;
    const size_t gate_count = (size_t)MAX_TOKENS * V_HEADS;
    void *const q = device_memory(qk_count * 2);
    void *const k = device_memory(qk_count * 2);
    void *const v = device_memory(v_count * 2);
    void *const o = device_memory(v_count * 2);
    void *const gate = device_memory(gate_count * 2);
    void *const beta = device_memory(gate_count * 2);
    float *const A_log = device_memory(V_HEADS * sizeof(float));
    int32_t *const cu_seqlens = device_memory((MAX_SEQS + 1) * sizeof(int32_t));
    int32_t *const slots = device_memory(MAX_SEQS * sizeof(int32_t));
    uint8_t *const has_initial_state = device_memory(MAX_SEQS);
    float *const pool = device_memory((size_t)SLOTS * V_HEADS * DIM * DIM * sizeof(float));
    void *const workspace = device_memory(gdn_plan_workspace_size(plan));

    gdn_prefill_args args;
    check(gdn_prefill_args_init(&args));
    args.num_seqs = MAX_SEQS;
    args.total_tokens = MAX_TOKENS;
    args.q = q;
    args.k = k;
    args.v = v;
    args.o = o;
    args.gate = gate;
    args.beta = beta;
    args.A_log = A_log;
    args.cu_seqlens = cu_seqlens;
    args.state = pool;
    args.num_slots = SLOTS;
    args.read_slots = slots;
    args.write_slots = slots; /* in place */
    args.has_initial_state = has_initial_state;
    args.workspace = workspace;
    args.workspace_size = gdn_plan_workspace_size(plan);

    /* The call waits for nothing and allocates nothing, so that it can be captured. */
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check(gdn_prefill_cuda(plan, &args, stream));
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiate(&executable, graph, 0));

    /* Two batches in the same memory. Rows a batch does not need have slot -1; the second batch goes on with the first
     * one's sequence in slot 3 and starts a new one in slot 7. */
    static const int32_t batch_cu[2][MAX_SEQS + 1] = {{0, 200, 300, 512, 512}, {0, 80, 400, 400, 400}};
    static const int32_t batch_slots[2][MAX_SEQS] = {{3, 0, 5, -1}, {3, 7, -1, -1}};
    static const uint8_t batch_initial[2][MAX_SEQS] = {{0, 0, 0, 0}, {1, 0, 0, 0}};
    for (int batch = 0; batch < 2; batch++) {
        upload(q, qk_count, stream);
        upload(k, qk_count, stream);
        upload(v, v_count, stream);
        upload(gate, gate_count, stream);
        upload(beta, gate_count, stream);
        check_cuda(
            cudaMemcpyAsync(cu_seqlens, batch_cu[batch], sizeof(batch_cu[batch]), cudaMemcpyHostToDevice, stream));
        check_cuda(
            cudaMemcpyAsync(slots, batch_slots[batch], sizeof(batch_slots[batch]), cudaMemcpyHostToDevice, stream));
        check_cuda(cudaMemcpyAsync(has_initial_state, batch_initial[batch], sizeof(batch_initial[batch]),
                                   cudaMemcpyHostToDevice, stream));
        check_cuda(cudaGraphLaunch(executable, stream));
        check(gdn_plan_check_cuda(plan, workspace, stream)); /* waits, and says if the metadata was wrong */

        uint16_t first[4];
        float values[4];
        check_cuda(cudaMemcpy(first, o, sizeof(first), cudaMemcpyDeviceToHost));
        check(gdn_convert(values, GDN_DTYPE_F32, first, GDN_DTYPE_BF16, 4));
        printf("batch %d: o starts %g %g %g %g\n", batch, (double)values[0], (double)values[1], (double)values[2],
               (double)values[3]);
    }

    check_cuda(cudaGraphExecDestroy(executable));
    check_cuda(cudaGraphDestroy(graph));
    check_cuda(cudaStreamDestroy(stream));
    void *const all[] = {q, k, v, o, gate, beta, A_log, cu_seqlens, slots, has_initial_state, pool, workspace};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        check_cuda(cudaFree(all[i]));
    }
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
    return EXIT_SUCCESS;
}
