/* Prefill of two packed sequences through one Qwen3-Next-like layer, on the best backend of this machine. */
#include <gdn/gdn.h>

#include <stdio.h>
#include <stdlib.h>

enum { K_HEADS = 2, V_HEADS = 4, DIM = 64, SEQS = 2, TOKENS = 300 };
enum { KEYS = TOKENS * K_HEADS * DIM, VALUES = TOKENS * V_HEADS * DIM, GATES = TOKENS * V_HEADS };
enum { STATES = SEQS * V_HEADS * DIM * DIM };

static void check(gdn_status status)
{
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s\n", gdn_status_string(status), gdn_last_error());
        exit(EXIT_FAILURE);
    }
}

static void *memory[16]; /* what main has to free */
static int num_memory;

/* Backend memory, filled from `host` unless that is NULL. */
static void *make(gdn_context *context, const void *host, size_t bytes)
{
    void **const made = &memory[num_memory++];
    check(gdn_memory_alloc(context, made, bytes));
    if (host != NULL) {
        check(gdn_memory_copy(context, *made, host, bytes, GDN_COPY_TO_BACKEND, NULL));
    }
    return *made;
}

int main(void)
{
    static const int64_t cu_seqlens[SEQS + 1] = {0, 200, TOKENS}; /* tokens 0..199 and 200..299 */
    static float x[VALUES]; /* stands in for what a model computes: numbers in [-1, 1) */
    static float o[VALUES];
    const size_t F = sizeof(float);
    uint32_t random = 1;
    for (int i = 0; i < VALUES; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
    }

    gdn_context *context = NULL;
    check(gdn_context_create(&context, NULL));

    gdn_problem problem;
    check(gdn_problem_init(&problem, K_HEADS, V_HEADS, DIM, DIM)); /* dense float32 tensors, scale 1/sqrt(DIM) */
    problem.gate_form = GDN_GATE_RAW; /* log_decay = -exp(A_log) * softplus(a + dt_bias) */
    problem.beta_form = GDN_BETA_LOGIT; /* beta = sigmoid(b) */
    problem.qk_norm = GDN_QK_NORM_RSQRT; /* the library normalises q and k */
    problem.max_seqs = SEQS;
    problem.max_tokens = TOKENS;
    gdn_plan *plan = NULL;
    check(gdn_plan_create(&plan, context, &problem));

    gdn_prefill_args args;
    check(gdn_prefill_args_init(&args));
    args.num_seqs = SEQS;
    args.total_tokens = TOKENS;
    args.q = make(context, x, KEYS * F);
    args.k = make(context, x + KEYS, KEYS * F);
    args.v = make(context, x, VALUES * F);
    args.gate = make(context, x, GATES * F); /* a */
    args.beta = make(context, x + GATES, GATES * F); /* b */
    args.A_log = make(context, x, V_HEADS * F);
    args.dt_bias = make(context, x + V_HEADS, V_HEADS * F);
    args.cu_seqlens = make(context, cu_seqlens, sizeof(cu_seqlens));
    args.o = make(context, NULL, VALUES * F);
    args.final_state = make(context, NULL, STATES * F); /* args.state stays NULL: both sequences start from zeros */
    args.workspace_size = gdn_plan_workspace_size(plan);
    args.workspace = make(context, NULL, args.workspace_size);
    check(gdn_prefill(plan, &args)); /* allocates nothing, and on a GPU waits for nothing */

    char text[4096];
    check(gdn_plan_describe(plan, text, sizeof(text), NULL));
    check(gdn_memory_copy(context, o, args.o, sizeof(o), GDN_COPY_FROM_BACKEND, NULL));
    const float *const last = o + VALUES - V_HEADS * DIM;
    printf("%slast token, first head: o = %.6f %.6f %.6f ...\n", text, (double)last[0], (double)last[1],
           (double)last[2]);

    while (num_memory > 0) {
        check(gdn_memory_free(context, &memory[--num_memory]));
    }
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
    return EXIT_SUCCESS;
}
