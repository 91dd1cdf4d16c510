/* Prefill of two sequences through one Qwen3-Next-like layer: raw gates, q and k normalised by the library, states kept.
 * Runs on the best backend there is; the tensors live in its memory. */
#include <gdn/gdn.h>

#include <stdio.h>
#include <stdlib.h>

enum { K_HEADS = 2, V_HEADS = 4, DIM = 64, TOKENS = 300, SEQS = 2, KEYS = TOKENS * K_HEADS * DIM };
enum { VALUES = TOKENS * V_HEADS * DIM, GATES = TOKENS * V_HEADS, STATES = SEQS * V_HEADS * DIM * DIM };

static void check(gdn_status status)
{
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s\n", gdn_status_string(status), gdn_last_error());
        exit(EXIT_FAILURE);
    }
}

/* `count` numbers in [-1, 1), in backend memory. */
static void *make_tensor(gdn_context *context, size_t count)
{
    static uint32_t random = 1;
    void *tensor = NULL;
    float *const values = malloc(count * sizeof(float));
    if (values == NULL) {
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        values[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
    }
    check(gdn_memory_alloc(context, &tensor, count * sizeof(float)));
    check(gdn_memory_copy(context, tensor, values, count * sizeof(float), GDN_COPY_TO_BACKEND, NULL));
    free(values);
    return tensor;
}

int main(void)
{
    static const int64_t cu_seqlens[SEQS + 1] = {0, 200, TOKENS}; /* tokens 0..199 and 200..299 */
    static float o[VALUES];
    char text[4096];
    gdn_context *context = NULL;
    check(gdn_context_create(&context, NULL));

    gdn_problem problem;
    check(gdn_problem_init(&problem, K_HEADS, V_HEADS, DIM, DIM)); /* dense float32 tensors, scale 1/sqrt(DIM) */
    problem.gate_form = GDN_GATE_RAW; /* log_decay = -exp(A_log) * softplus(a + dt_bias) */
    problem.beta_form = GDN_BETA_LOGIT; /* beta = sigmoid(b) */
    problem.qk_norm = GDN_QK_NORM_RSQRT;
    problem.max_seqs = SEQS;
    problem.max_tokens = TOKENS;
    gdn_plan *plan = NULL;
    check(gdn_plan_create(&plan, context, &problem));
    check(gdn_plan_describe(plan, text, sizeof(text), NULL));
    printf("%s", text);

    gdn_prefill_args args;
    check(gdn_prefill_args_init(&args));
    void *cu = NULL;
    check(gdn_memory_alloc(context, &cu, sizeof(cu_seqlens)));
    check(gdn_memory_copy(context, cu, cu_seqlens, sizeof(cu_seqlens), GDN_COPY_TO_BACKEND, NULL));
    void *tensors[] = {
        make_tensor(context, KEYS),    make_tensor(context, KEYS),   make_tensor(context, VALUES),
        make_tensor(context, GATES),   make_tensor(context, GATES),  make_tensor(context, V_HEADS),
        make_tensor(context, V_HEADS), make_tensor(context, VALUES), make_tensor(context, STATES),
    };
    args.num_seqs = SEQS;
    args.total_tokens = TOKENS;
    args.q = tensors[0];
    args.k = tensors[1];
    args.v = tensors[2];
    args.gate = tensors[3]; /* a */
    args.beta = tensors[4]; /* b */
    args.A_log = tensors[5];
    args.dt_bias = tensors[6];
    args.o = tensors[7];
    args.final_state = tensors[8]; /* args.state stays NULL: both sequences start from zeros */
    args.cu_seqlens = cu;
    args.workspace_size = gdn_plan_workspace_size(plan);
    check(gdn_memory_alloc(context, &args.workspace, args.workspace_size));
    check(gdn_prefill(plan, &args)); /* nothing is allocated here, and on a GPU nothing waits */

    check(gdn_memory_copy(context, o, args.o, sizeof(o), GDN_COPY_FROM_BACKEND, NULL));
    printf("last token, first head: o = %.6f %.6f %.6f ...\n", (double)o[VALUES - V_HEADS * DIM],
           (double)o[VALUES - V_HEADS * DIM + 1], (double)o[VALUES - V_HEADS * DIM + 2]);

    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        check(gdn_memory_free(context, &tensors[i]));
    }
    check(gdn_memory_free(context, &cu));
    check(gdn_memory_free(context, &args.workspace));
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
    return EXIT_SUCCESS;
}
