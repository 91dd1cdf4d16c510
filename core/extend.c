/* gdn_extend_chunkwise: pymllm's call, as one general prefill whose plan lives on the stack. */
#include "plan.h"
#include "problem.h"
#include "tensor.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct extend_tensors {
    const gdn_tensor *q, *k, *v, *a, *b, *state_pool, *cache_indices;
} extend_tensors;

/* Shapes, dtypes and strides of the tensors the workspace query and the call share. */
static gdn_status check_tensors(const extend_tensors *t, bool needs_data)
{
    const uint32_t index = GDN_DTYPE_BIT(GDN_DTYPE_I64);
    const uint32_t f32 = GDN_DTYPE_BIT(GDN_DTYPE_F32);
    gdn_tensor_rule rule = {.name = "q",
                            .rank = 3,
                            .size = {GDN_ANY_SIZE, GDN_ANY_SIZE, GDN_ANY_SIZE},
                            .dtypes = GDN_FLOAT_DTYPES,
                            .unit_inner = true,
                            .needs_data = needs_data};
    GDN_TRY(gdn_tensor_check(t->q, &rule));
    const uint32_t io = GDN_DTYPE_BIT(t->q->dtype);
    const int64_t tokens = t->q->size[0];

    rule.name = "k";
    rule.dtypes = io;
    memcpy(rule.size, t->q->size, sizeof(rule.size));
    GDN_TRY(gdn_tensor_check(t->k, &rule));

    rule.name = "v";
    rule.size[0] = tokens;
    rule.size[1] = rule.size[2] = GDN_ANY_SIZE;
    GDN_TRY(gdn_tensor_check(t->v, &rule));
    const int64_t heads = t->v->size[1];

    rule = (gdn_tensor_rule){.name = "a",
                             .rank = 2,
                             .size = {tokens, heads},
                             .dtypes = io | f32,
                             .unit_inner = true,
                             .needs_data = needs_data};
    GDN_TRY(gdn_tensor_check(t->a, &rule));
    rule.name = "b";
    GDN_TRY(gdn_tensor_check(t->b, &rule));

    rule = (gdn_tensor_rule){.name = "state_pool",
                             .rank = 4,
                             .size = {GDN_ANY_SIZE, heads, t->v->size[2], t->q->size[2]},
                             .dtypes = f32,
                             .unit_inner = true,
                             .needs_data = needs_data};
    GDN_TRY(gdn_tensor_check(t->state_pool, &rule));
    rule = (gdn_tensor_rule){.name = "cache_indices",
                             .rank = 1,
                             .size = {GDN_ANY_SIZE},
                             .dtypes = index,
                             .unit_inner = true,
                             .needs_data = needs_data};
    return gdn_tensor_check(t->cache_indices, &rule);
}

static gdn_layout layout_of(const gdn_tensor *tensor, uint32_t alignment)
{
    return (gdn_layout){.dtype = tensor->dtype,
                        .alignment = alignment != 0 ? alignment : (uint32_t)gdn_dtype_size(tensor->dtype),
                        .row_stride = 0,
                        .token_stride = tensor->stride[0],
                        .head_stride = tensor->stride[1]};
}

/* The call as a problem. `alignment` 16 promises what the fast paths like; 0 promises only each element's own. */
static gdn_status make_problem(gdn_problem *problem, const extend_tensors *t, const gdn_tensor *o, int32_t chunk_size,
                               uint32_t alignment)
{
    if (chunk_size < 1) {
        return GDN_INVALID("chunk_size: %d, must be at least 1", (int)chunk_size);
    }
    const int64_t dims[4] = {t->q->size[1], t->v->size[1], t->q->size[2], t->v->size[2]};
    const char *const names[4] = {"q.size[1]", "v.size[1]", "q.size[2]", "v.size[2]"};
    for (int i = 0; i < 4; ++i) {
        const int most = i < 2 ? GDN_MAX_HEADS : GDN_MAX_HEAD_DIM;
        if (dims[i] < 1 || dims[i] > most) {
            return GDN_INVALID("%s: %lld, must be in 1..%d", names[i], (long long)dims[i], most);
        }
    }
    GDN_TRY(gdn_problem_init(problem, (int32_t)dims[0], (int32_t)dims[1], (int32_t)dims[2], (int32_t)dims[3]));
    problem->gate_form = GDN_GATE_RAW;
    problem->beta_form = GDN_BETA_LOGIT;
    problem->qk_norm = GDN_QK_NORM_EPS_OUTSIDE;
    problem->chunk_size = chunk_size;
    problem->q = layout_of(t->q, alignment);
    problem->k = layout_of(t->k, alignment);
    problem->v = layout_of(t->v, alignment);
    problem->o = o != NULL ? layout_of(o, alignment) : problem->o;
    problem->o.dtype = t->q->dtype;
    problem->gate = layout_of(t->a, alignment);
    problem->beta = layout_of(t->b, alignment);
    problem->state_form = GDN_STATE_POOL;
    problem->state.alignment = alignment != 0 ? alignment : (uint32_t)sizeof(float);
    problem->state.slot_stride = t->state_pool->stride[0];
    problem->state.head_stride = t->state_pool->stride[1];
    problem->state.v_stride = t->state_pool->stride[2];
    problem->state.k_stride = 1;
    problem->max_seqs = t->cache_indices->size[0] > 0 ? t->cache_indices->size[0] : 1;
    problem->max_tokens = t->q->size[0] > 0 ? t->q->size[0] : 1;
    return GDN_OK;
}

/* This call's name for an argument or a field of the general one; NULL: the same. */
static const char *own_name(const char *word, size_t length)
{
    static const char *const names[][2] = {
        {"num_k_heads", "q.size[1]"},
        {"num_v_heads", "v.size[1]"},
        {"max_seqs", "cache_indices.size[0]"},
        {"gate", "a"},
        {"beta", "b"},
        {"state", "state_pool"},
        {"num_slots", "state_pool.size[0]"},
        {"read_slots", "cache_indices"},
        {"write_slots", "cache_indices"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strlen(names[i][0]) == length && memcmp(word, names[i][0], length) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

/* Words the message of a general call that failed for this one's caller: what it names, first or as what an argument
 * overlaps, must be below or a multiple of, by the names that the caller knows. */
static gdn_status in_own_names(gdn_status status)
{
    if (status == GDN_OK) {
        return status;
    }
    char text[1024];
    size_t used = 0;
    bool is_name = true;
    for (const char *at = gdn_last_error(); *at != '\0' && used + 32 < sizeof(text);) {
        const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        const char *const own = is_name ? own_name(at, length) : NULL;
        if (length == 0) {
            text[used++] = *at++;
            continue;
        }
        is_name = (length == 8 && memcmp(at, "overlaps", 8) == 0) || (length == 5 && memcmp(at, "below", 5) == 0) ||
                  (length == 2 && memcmp(at, "of", 2) == 0);
        snprintf(text + used, sizeof(text) - used, "%.*s", own != NULL ? INT_MAX : (int)length, own != NULL ? own : at);
        used += strlen(text + used);
        at += length;
    }
    text[used] = '\0';
    return gdn_fail(status, "%s", text);
}

gdn_status gdn_extend_chunkwise_workspace(gdn_context *context, const gdn_tensor *q, const gdn_tensor *k,
                                          const gdn_tensor *v, const gdn_tensor *a, const gdn_tensor *b,
                                          const gdn_tensor *state_pool, const gdn_tensor *cache_indices,
                                          int32_t chunk_size, size_t *bytes)
{
    if (bytes == NULL) {
        return GDN_INVALID("bytes: NULL, must point to the size to set");
    }
    *bytes = 0;
    if (context == NULL) {
        return GDN_INVALID("context: NULL, must be a context");
    }
    const extend_tensors tensors = {q, k, v, a, b, state_pool, cache_indices};
    GDN_TRY(check_tensors(&tensors, false));
    /* Whether the call's pointers will be aligned is not known here: room for either plan. */
    size_t most = 0;
    for (uint32_t alignment = 0; alignment <= 16; alignment += 16) {
        gdn_problem problem;
        gdn_plan plan;
        GDN_TRY(make_problem(&problem, &tensors, NULL, chunk_size, alignment));
        GDN_TRY(in_own_names(gdn_plan_build(&plan, context, &problem)));
        most = plan.choice.ledger.total > most ? plan.choice.ledger.total : most;
    }
    *bytes = most;
    return GDN_OK;
}

gdn_status gdn_extend_chunkwise(gdn_context *context, const gdn_tensor *q, const gdn_tensor *k, const gdn_tensor *v,
                                const gdn_tensor *a, const gdn_tensor *b, const gdn_tensor *A_log,
                                const gdn_tensor *dt_bias, const gdn_tensor *state_pool,
                                const gdn_tensor *cache_indices, const gdn_tensor *cu_seqlens, int32_t chunk_size,
                                const gdn_tensor *o, void *workspace, size_t workspace_size, void *stream)
{
    if (context == NULL) {
        return GDN_INVALID("context: NULL, must be a context");
    }
    const extend_tensors tensors = {q, k, v, a, b, state_pool, cache_indices};
    GDN_TRY(check_tensors(&tensors, true));
    gdn_tensor_rule rule = {.name = "A_log",
                            .rank = 1,
                            .size = {v->size[1]},
                            .dtypes = GDN_DTYPE_BIT(GDN_DTYPE_F32),
                            .unit_inner = true,
                            .needs_data = true};
    GDN_TRY(gdn_tensor_check(A_log, &rule));
    rule.name = "dt_bias";
    GDN_TRY(gdn_tensor_check(dt_bias, &rule));
    const int64_t batch_size = cache_indices->size[0];
    rule.name = "cu_seqlens";
    rule.size[0] = batch_size + 1;
    rule.dtypes = GDN_DTYPE_BIT(GDN_DTYPE_I64);
    GDN_TRY(gdn_tensor_check(cu_seqlens, &rule));
    rule = (gdn_tensor_rule){.name = "o",
                             .rank = 3,
                             .size = {v->size[0], v->size[1], v->size[2]},
                             .dtypes = GDN_DTYPE_BIT(q->dtype),
                             .unit_inner = true,
                             .needs_data = true};
    GDN_TRY(gdn_tensor_check(o, &rule));

    uintptr_t bits = 0;
    const gdn_tensor *const aligned[] = {q, k, v, o, a, b, state_pool};
    for (size_t i = 0; i < sizeof(aligned) / sizeof(aligned[0]); ++i) {
        bits |= (uintptr_t)aligned[i]->data;
    }
    gdn_problem problem;
    gdn_plan plan;
    GDN_TRY(make_problem(&problem, &tensors, o, chunk_size, bits % 16 == 0 ? 16 : 0));
    GDN_TRY(in_own_names(gdn_plan_build(&plan, context, &problem)));

    gdn_prefill_args args;
    GDN_TRY(gdn_prefill_args_init(&args));
    args.num_seqs = batch_size;
    args.total_tokens = q->size[0];
    args.q = q->data;
    args.k = k->data;
    args.v = v->data;
    args.o = o->data;
    args.gate = a->data;
    args.beta = b->data;
    args.A_log = A_log->data;
    args.dt_bias = dt_bias->data;
    args.cu_seqlens = cu_seqlens->data;
    args.state = state_pool->data;
    args.num_slots = state_pool->size[0];
    args.read_slots = cache_indices->data;
    args.write_slots = cache_indices->data;
    args.workspace = workspace;
    args.workspace_size = workspace_size;
    args.stream = stream;
    return in_own_names(gdn_prefill(&plan, &args));
}
