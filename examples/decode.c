/* Decode with a state pool, as an inference engine does it: two requests generate tokens, then one of them verifies four
 * drafted tokens in one call and keeps the state after those that were accepted. Shows:
 *
 *   - one plan a shape of call: one token a row, and four
 *   - slots: each request's state is a slot of the pool, updated in place; row -1 is padding and is left alone
 *   - token_slots: the state after every drafted token is stored, and the next call reads the accepted one
 *
 * It checks what it shows: the state after two accepted tokens equals that of two single steps, bit for bit. */
#include <gdn/gdn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K_HEADS = 2, V_HEADS = 4, DIM = 64, SLOTS = 8, ROWS = 3, DRAFT = 4, STEPS = 6 };
enum { STATE = V_HEADS * DIM * DIM };

typedef struct tokens { /* one call's inputs and outputs, at most ROWS * 1 or 1 * DRAFT tokens */
    float q[DRAFT][K_HEADS][DIM], k[DRAFT][K_HEADS][DIM], v[DRAFT][V_HEADS][DIM], o[DRAFT][V_HEADS][DIM];
    float log_decay[DRAFT][V_HEADS], beta[DRAFT][V_HEADS];
} tokens;

static void check(gdn_status status)
{
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s\n", gdn_status_string(status), gdn_last_error());
        exit(EXIT_FAILURE);
    }
}

static float next_random(void) /* in [0, 1) */
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 16777216.0f;
}

/* What a model would compute from its hidden states. */
static void project(tokens *t)
{
    float *const vectors[] = {&t->q[0][0][0], &t->k[0][0][0], &t->v[0][0][0]};
    const size_t counts[] = {sizeof(t->q) / sizeof(float), sizeof(t->k) / sizeof(float), sizeof(t->v) / sizeof(float)};
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < counts[i]; j++) {
            vectors[i][j] = 2 * next_random() - 1;
        }
    }
    for (int i = 0; i < DRAFT; i++) {
        for (int h = 0; h < V_HEADS; h++) {
            t->log_decay[i][h] = -0.2f * next_random();
            t->beta[i][h] = next_random();
        }
    }
}

static gdn_plan *make_plan(gdn_context *context, int32_t tokens_per_row, int64_t rows)
{
    gdn_problem problem;
    gdn_plan *plan = NULL;
    check(gdn_problem_init(&problem, K_HEADS, V_HEADS, DIM, DIM));
    problem.operation = GDN_OPERATION_DECODE;
    problem.tokens_per_row = tokens_per_row;
    problem.max_seqs = rows;
    problem.state_form = GDN_STATE_POOL;
    problem.qk_norm = GDN_QK_NORM_RSQRT;
    check(gdn_plan_create(&plan, context, &problem));
    return plan;
}

static gdn_decode_args make_args(gdn_context *context, const gdn_plan *plan, tokens *t, float *pool)
{
    gdn_decode_args args;
    check(gdn_decode_args_init(&args));
    args.q = t->q;
    args.k = t->k;
    args.v = t->v;
    args.o = t->o;
    args.gate = t->log_decay;
    args.beta = t->beta;
    args.state = pool;
    args.num_slots = SLOTS;
    args.workspace_size = gdn_plan_workspace_size(plan);
    check(gdn_memory_alloc(context, &args.workspace, args.workspace_size));
    return args;
}

static int same_bits(const void *left, const void *right, size_t bytes)
{
    return memcmp(left, right, bytes) == 0;
}

int main(void)
{
    static float pool[SLOTS][STATE]; /* zeros: requests that have seen nothing */
    static float accepted[STATE];
    static tokens t;
    gdn_context *context = NULL;
    gdn_context_options options;
    check(gdn_context_options_init(&options));
    options.backend = "cpu"; /* the arrays above are host memory; prefill.c shows how to use any backend */
    check(gdn_context_create(&context, &options));
    gdn_plan *step = make_plan(context, 1, ROWS), *verify = make_plan(context, DRAFT, 1);
    gdn_decode_args step_args = make_args(context, step, &t, &pool[0][0]);
    gdn_decode_args verify_args = make_args(context, verify, &t, &pool[0][0]);

    /* Requests in slots 5 and 2; the third row is padding, as a captured graph of fixed size would have it. */
    const int64_t slots[ROWS] = {5, 2, -1};
    step_args.num_rows = ROWS;
    step_args.read_slots = step_args.write_slots = slots;
    for (int i = 0; i < STEPS; i++) {
        project(&t);
        check(gdn_decode(step, &step_args));
    }
    printf("after %d steps: o of request 0, head 0 = %.6f %.6f ...\n", STEPS, (double)t.o[0][0][0],
           (double)t.o[0][0][1]);

    /* Four drafted tokens of the request in slot 5: read it, write no final state, store the state after each. */
    const int64_t read[1] = {5}, after_token[DRAFT] = {0, 1, 3, 4};
    project(&t);
    verify_args.num_rows = 1;
    verify_args.read_slots = read;
    verify_args.token_slots = after_token;
    check(gdn_decode(verify, &verify_args));
    const int64_t committed = after_token[1]; /* the model accepts two of the four: their state is in slot 1 */
    memcpy(accepted, pool[committed], sizeof(accepted));

    /* The same two tokens, one call each: slot 5 still holds the state before them. */
    step_args.num_rows = 1;
    for (int i = 0; i < 2; i++) {
        step_args.q = t.q[i];
        step_args.k = t.k[i];
        step_args.v = t.v[i];
        step_args.o = t.o[i];
        step_args.gate = t.log_decay[i];
        step_args.beta = t.beta[i];
        check(gdn_decode(step, &step_args));
    }
    const int same = same_bits(accepted, pool[5], sizeof(accepted));
    printf("two accepted of %d drafted tokens: state %s that of two single steps\n", DRAFT,
           same ? "equals" : "DIFFERS from");

    check(gdn_memory_free(context, &step_args.workspace));
    check(gdn_memory_free(context, &verify_args.workspace));
    gdn_plan_destroy(&step);
    gdn_plan_destroy(&verify);
    gdn_context_destroy(&context);
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
