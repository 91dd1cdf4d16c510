#include "problem_text.h"

#include <math.h>

static const gdn_dtype float_dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};

int64_t problem_text_num_seqs(const problem_text *text)
{
    if (text->op == GDN_OPERATION_DECODE) {
        return text->rows;
    }
    int64_t seqs = text->num_groups == 0 ? 1 : 0;
    for (int64_t i = 0; i < text->num_groups; i++) {
        seqs += text->groups[i].count;
    }
    return seqs;
}

int64_t problem_text_total_tokens(const problem_text *text)
{
    if (text->op == GDN_OPERATION_DECODE) {
        return text->rows * text->tokens_per_row;
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < text->num_groups; i++) {
        sum += text->groups[i].count * text->groups[i].length;
    }
    return text->tokens > sum ? text->tokens : sum;
}

int64_t problem_text_longest(const problem_text *text)
{
    if (text->op == GDN_OPERATION_DECODE) {
        return text->tokens_per_row;
    }
    int64_t longest = text->num_groups == 0 ? text->tokens : 0;
    for (int64_t i = 0; i < text->num_groups; i++) {
        longest = text->groups[i].length > longest ? text->groups[i].length : longest;
    }
    return longest;
}

static int64_t count_checkpoints(const problem_text *text)
{
    if (text->checkpoint_form == GDN_CHECKPOINT_NONE) {
        return 0;
    }
    if (text->checkpoint_form == GDN_CHECKPOINT_AT) {
        return 4 * problem_text_num_seqs(text); /* as many as random_inputs draws at most */
    }
    int64_t count = text->num_groups == 0 ? text->tokens / text->checkpoint_interval : 0;
    for (int64_t i = 0; i < text->num_groups; i++) {
        count += text->groups[i].count * (text->groups[i].length / text->checkpoint_interval);
    }
    return count > 0 ? count : 1;
}

/* Gaps after each head and each token keep 16-byte starts where the dense layout has them. */
static void pad_layout(gdn_layout *layout, int64_t heads, int64_t dim)
{
    layout->head_stride = dim + 8;
    layout->token_stride = heads * layout->head_stride + 24;
    layout->row_stride = 0;
}

/* The largest alignment, up to 16, of an element offset into a 16-byte aligned buffer. */
static uint32_t offset_alignment(int64_t elements, gdn_dtype dtype)
{
    const int64_t bytes = elements * (dtype == GDN_DTYPE_F32 ? 4 : 2);
    uint32_t alignment = 16;
    while (bytes % alignment != 0) {
        alignment /= 2;
    }
    return alignment;
}

static void set_strides(const problem_text *text, gdn_problem *problem)
{
    const int64_t hk = text->num_k_heads, hv = text->num_v_heads, k = text->head_k_dim, v = text->head_v_dim;
    if (text->strides == TEXT_STRIDES_PADDED) {
        pad_layout(&problem->q, hk, k);
        pad_layout(&problem->k, hk, k);
        pad_layout(&problem->v, hv, v);
        pad_layout(&problem->o, hv, v);
        problem->gate.token_stride = hv + 4;
        problem->beta.token_stride = hv + 8;
    } else if (text->strides == TEXT_STRIDES_PACKED) {
        const int64_t row = 2 * hk * k + hv * v;
        problem->q.token_stride = problem->k.token_stride = problem->v.token_stride = row;
        problem->k.alignment = offset_alignment(hk * k, problem->k.dtype);
        problem->v.alignment = offset_alignment(2 * hk * k, problem->v.dtype);
    }
}

static void set_state_layout(const problem_text *text, gdn_state_layout *layout, gdn_dtype dtype)
{
    const int64_t v = text->head_v_dim, k = text->head_k_dim, gap = text->strides == TEXT_STRIDES_PADDED ? 8 : 0;
    layout->dtype = dtype;
    if (text->layout == 0) {
        layout->k_stride = 1;
        layout->v_stride = k + gap;
        layout->head_stride = v * layout->v_stride + gap;
    } else {
        layout->v_stride = 1;
        layout->k_stride = v + gap;
        layout->head_stride = k * layout->k_stride + gap;
    }
    layout->slot_stride = text->num_v_heads * layout->head_stride + 2 * gap;
}

void problem_text_build(const problem_text *text, gdn_problem *problem)
{
    (void)gdn_problem_init(problem, (int32_t)text->num_k_heads, (int32_t)text->num_v_heads, (int32_t)text->head_k_dim,
                           (int32_t)text->head_v_dim);
    const gdn_dtype io = float_dtypes[text->dtype];
    problem->operation = (gdn_operation)text->op;
    problem->head_map = (gdn_head_map)text->head_map;
    if (!isnan(text->scale)) {
        problem->scale = (float)text->scale;
    }
    problem->gate_form = (gdn_gate_form)text->gates;
    problem->beta_form = (gdn_beta_form)text->beta;
    problem->beta_scale = (float)text->beta_scale;
    problem->qk_norm = (gdn_qk_norm)text->norm;
    problem->qk_norm_eps = (float)text->norm_eps;
    problem->numerics = (gdn_numerics)text->numerics;
    problem->chunk_size = (int32_t)text->chunk;
    problem->num_segments = (int32_t)text->segments;
    problem->q.dtype = problem->k.dtype = problem->v.dtype = problem->o.dtype = io;
    problem->gate.dtype = problem->beta.dtype = text->gate_dtype == 0 ? GDN_DTYPE_F32 : io;
    set_strides(text, problem);

    const gdn_dtype state = float_dtypes[text->state_dtype];
    problem->state_form = (gdn_state_form)text->state_form;
    set_state_layout(text, &problem->state, state);
    set_state_layout(text, &problem->final_state,
                     text->final_dtype >= 1 && text->final_dtype <= 3 ? float_dtypes[text->final_dtype - 1] : state);
    problem->slots_dtype = text->slots == 0 ? GDN_DTYPE_I64 : GDN_DTYPE_I32;

    problem->cu_seqlens_dtype = text->cu == 0 ? GDN_DTYPE_I64 : text->cu == 1 ? GDN_DTYPE_I32 : GDN_DTYPE_NONE;
    problem->checkpoint_form = (gdn_checkpoint_form)text->checkpoint_form;
    problem->checkpoint_interval = (int32_t)text->checkpoint_interval;
    set_state_layout(text, &problem->checkpoints, GDN_DTYPE_F32);
    problem->max_checkpoints = count_checkpoints(text);

    problem->tokens_per_row = (int32_t)text->tokens_per_row;
    problem->max_seqs = problem_text_num_seqs(text) > 0 ? problem_text_num_seqs(text) : 1;
    if (text->op == GDN_OPERATION_PREFILL) {
        problem->max_tokens = problem_text_total_tokens(text) > 0 ? problem_text_total_tokens(text) : 1;
        problem->max_seqlen = problem_text_longest(text);
    }
    problem->max_workspace = (size_t)text->workspace;
    problem->check = (int32_t)text->check;
}
