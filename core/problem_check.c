/* Every rule of a gdn_problem, each with a message that names the field, its value and what is allowed. */
#include "dtype.h"
#include "problem.h"
#include "strides.h"

#include <math.h>

#define MAX_SEQS ((int64_t)INT32_MAX)

/* Enumerators are consecutive from 0: `last` is the highest. */
static gdn_status check_enum(int value, int last, const char *name, const char *type)
{
    return value >= 0 && value <= last ? GDN_OK : GDN_INVALID("%s: %d, must be a %s (0..%d)", name, value, type, last);
}

static gdn_status check_range(int64_t value, int64_t low, int64_t high, const char *name)
{
    return value >= low && value <= high ? GDN_OK
                                         : GDN_INVALID("%s: %lld, must be in %lld..%lld", name, (long long)value,
                                                       (long long)low, (long long)high);
}

static gdn_status check_index_dtype(gdn_dtype dtype, const char *name)
{
    return gdn_dtype_is_index(dtype)
               ? GDN_OK
               : GDN_INVALID("%s: %s (%d), must be i32 or i64", name, gdn_dtype_name(dtype), (int)dtype);
}

static gdn_status check_alignment(uint32_t alignment, gdn_dtype dtype, const char *name)
{
    const size_t element = gdn_dtype_size(dtype);
    const bool power = alignment != 0 && (alignment & (alignment - 1)) == 0;
    return power && alignment >= element && alignment <= 4096
               ? GDN_OK
               : GDN_INVALID("%s.alignment: %u, must be a power of two in %zu..4096", name, alignment, element);
}

static gdn_status check_float_dtype(gdn_dtype dtype, const char *name)
{
    return gdn_dtype_is_float(dtype)
               ? GDN_OK
               : GDN_INVALID("%s.dtype: %s (%d), must be f32, bf16 or f16", name, gdn_dtype_name(dtype), (int)dtype);
}

static gdn_status check_heads(const gdn_problem *p)
{
    GDN_TRY(check_range(p->num_k_heads, 1, GDN_MAX_HEADS, "num_k_heads"));
    GDN_TRY(check_range(p->num_v_heads, 1, GDN_MAX_HEADS, "num_v_heads"));
    if (p->num_v_heads % p->num_k_heads != 0) {
        return GDN_INVALID("num_v_heads: %d, must be a multiple of num_k_heads, %d", (int)p->num_v_heads,
                           (int)p->num_k_heads);
    }
    GDN_TRY(check_range(p->head_k_dim, 1, GDN_MAX_HEAD_DIM, "head_k_dim"));
    GDN_TRY(check_range(p->head_v_dim, 1, GDN_MAX_HEAD_DIM, "head_v_dim"));
    return check_enum((int)p->head_map, GDN_HEAD_MAP_TILED, "head_map", "gdn_head_map");
}

static gdn_status check_options(const gdn_problem *p)
{
    if (!isfinite(p->scale)) {
        return GDN_INVALID("scale: %g, must be finite", (double)p->scale);
    }
    GDN_TRY(check_enum((int)p->gate_form, GDN_GATE_RAW, "gate_form", "gdn_gate_form"));
    GDN_TRY(check_enum((int)p->beta_form, GDN_BETA_LOGIT, "beta_form", "gdn_beta_form"));
    if (p->beta_scale != 1.0f && (p->beta_scale != 2.0f || p->beta_form != GDN_BETA_LOGIT)) {
        return GDN_INVALID("beta_scale: %g, must be 1, or 2 with beta_form LOGIT", (double)p->beta_scale);
    }
    GDN_TRY(check_enum((int)p->qk_norm, GDN_QK_NORM_EPS_OUTSIDE, "qk_norm", "gdn_qk_norm"));
    if (!isfinite(p->qk_norm_eps) || p->qk_norm_eps < 0.0f) {
        return GDN_INVALID("qk_norm_eps: %g, must be finite and at least 0", (double)p->qk_norm_eps);
    }
    GDN_TRY(check_enum((int)p->numerics, GDN_NUMERICS_BF16, "numerics", "gdn_numerics"));
    GDN_TRY(check_range(p->chunk_size, 0, INT32_MAX, "chunk_size"));
    GDN_TRY(check_range(p->num_segments, 0, INT32_MAX, "num_segments"));
    return check_range(p->check, 0, 1, "check");
}

/* The dimensions of a token tensor at the problem's maxima. `dim` 0: a gate, which has none. */
static gdn_dims token_dims(const gdn_problem *p, const gdn_layout *layout, int64_t heads, int64_t dim)
{
    gdn_dims dims = {.rank = 0};
    if (dim > 0) {
        gdn_dims_add(&dims, dim, 1);
    }
    gdn_dims_add(&dims, heads, layout->head_stride);
    if (p->operation == GDN_OPERATION_DECODE) {
        gdn_dims_add(&dims, p->tokens_per_row, layout->token_stride);
        /* row_stride 0 means rows follow each other. */
        const int64_t row = layout->row_stride != 0 ? layout->row_stride
                            : layout->token_stride <= GDN_MAX_EXTENT / GDN_MAX_DECODE_TOKENS
                                ? p->tokens_per_row * layout->token_stride
                                : GDN_MAX_EXTENT;
        gdn_dims_add(&dims, p->max_seqs, row);
    } else {
        gdn_dims_add(&dims, p->max_tokens, layout->token_stride);
        if (p->cu_seqlens_dtype == GDN_DTYPE_NONE && layout->row_stride != 0) {
            gdn_dims_add(&dims, p->max_seqs, layout->row_stride);
        }
    }
    return dims;
}

static gdn_status check_token_layout(const gdn_problem *p, const gdn_layout *layout, int64_t heads, int64_t dim,
                                     bool output, const char *name)
{
    GDN_TRY(check_alignment(layout->alignment, layout->dtype, name));
    if (layout->row_stride < 0 || layout->token_stride < 0 || layout->head_stride < 0) {
        return GDN_INVALID("%s: strides row %lld, token %lld, head %lld, must be at least 0", name,
                           (long long)layout->row_stride, (long long)layout->token_stride,
                           (long long)layout->head_stride);
    }
    gdn_dims dims = token_dims(p, layout, heads, dim);
    if (gdn_dims_extent(&dims) < 0) {
        return GDN_INVALID(
            "%s: strides row %lld, token %lld, head %lld reach past 2^58 elements at the problem's maxima", name,
            (long long)layout->row_stride, (long long)layout->token_stride, (long long)layout->head_stride);
    }
    if (output && p->operation == GDN_OPERATION_PREFILL && p->cu_seqlens_dtype == GDN_DTYPE_NONE &&
        layout->row_stride != 0) {
        /* A row's length is known at run time only: here one token must be apart, gdn_prefill checks the rows. */
        dims.size[dims.rank - 2] = 1;
    }
    if (output && !gdn_dims_are_apart(&dims)) {
        return GDN_INVALID(
            "%s: strides row %lld, token %lld, head %lld, must keep %lld heads of %lld elements apart, at "
            "the problem's maxima",
            name, (long long)layout->row_stride, (long long)layout->token_stride, (long long)layout->head_stride,
            (long long)heads, (long long)dim);
    }
    return GDN_OK;
}

static gdn_status check_token_layouts(const gdn_problem *p)
{
    GDN_TRY(check_float_dtype(p->q.dtype, "q"));
    const struct {
        const gdn_layout *layout;
        const char *name;
    } same[] = {{&p->k, "k"}, {&p->v, "v"}, {&p->o, "o"}};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); ++i) {
        if (same[i].layout->dtype != p->q.dtype) {
            return GDN_INVALID("%s.dtype: %s, must be the dtype of q, %s", same[i].name,
                               gdn_dtype_name(same[i].layout->dtype), gdn_dtype_name(p->q.dtype));
        }
    }
    if (p->gate.dtype != GDN_DTYPE_F32 && p->gate.dtype != p->q.dtype) {
        return GDN_INVALID("gate.dtype: %s, must be f32 or the dtype of q, %s", gdn_dtype_name(p->gate.dtype),
                           gdn_dtype_name(p->q.dtype));
    }
    if (p->beta.dtype != GDN_DTYPE_F32 && p->beta.dtype != p->q.dtype) {
        return GDN_INVALID("beta.dtype: %s, must be f32 or the dtype of q, %s", gdn_dtype_name(p->beta.dtype),
                           gdn_dtype_name(p->q.dtype));
    }
    GDN_TRY(check_token_layout(p, &p->q, p->num_k_heads, p->head_k_dim, false, "q"));
    GDN_TRY(check_token_layout(p, &p->k, p->num_k_heads, p->head_k_dim, false, "k"));
    GDN_TRY(check_token_layout(p, &p->v, p->num_v_heads, p->head_v_dim, false, "v"));
    GDN_TRY(check_token_layout(p, &p->o, p->num_v_heads, p->head_v_dim, true, "o"));
    GDN_TRY(check_token_layout(p, &p->gate, p->num_v_heads, 0, false, "gate"));
    return check_token_layout(p, &p->beta, p->num_v_heads, 0, false, "beta");
}

static gdn_status check_state_layout(const gdn_problem *p, const gdn_state_layout *layout, int64_t slots,
                                     const char *name)
{
    GDN_TRY(check_float_dtype(layout->dtype, name));
    GDN_TRY(check_alignment(layout->alignment, layout->dtype, name));
    if (layout->slot_stride < 0 || layout->head_stride < 0 || layout->v_stride < 0 || layout->k_stride < 0) {
        return GDN_INVALID("%s: strides slot %lld, head %lld, v %lld, k %lld, must be at least 0", name,
                           (long long)layout->slot_stride, (long long)layout->head_stride, (long long)layout->v_stride,
                           (long long)layout->k_stride);
    }
    const bool v_major = layout->k_stride == 1 && layout->v_stride >= p->head_k_dim;
    const bool k_major = layout->v_stride == 1 && layout->k_stride >= p->head_v_dim;
    if (!v_major && !k_major) {
        return GDN_INVALID(
            "%s: v_stride %lld, k_stride %lld, must be k_stride 1 and v_stride at least %d, or v_stride 1 "
            "and k_stride at least %d",
            name, (long long)layout->v_stride, (long long)layout->k_stride, (int)p->head_k_dim, (int)p->head_v_dim);
    }
    gdn_dims dims = {.rank = 0};
    gdn_dims_add(&dims, p->head_k_dim, layout->k_stride);
    gdn_dims_add(&dims, p->head_v_dim, layout->v_stride);
    gdn_dims_add(&dims, p->num_v_heads, layout->head_stride);
    /* The pool's size is a run's argument: two slots show whether the stride clears one. */
    const int64_t least = slots > 2 ? slots : 2;
    gdn_dims_add(&dims, least, layout->slot_stride);
    return gdn_dims_are_apart(&dims)
               ? GDN_OK
               : GDN_INVALID("%s: strides slot %lld, head %lld, v %lld, k %lld, must keep %lld slots of %d heads of "
                             "%d x %d elements apart within 2^58 elements",
                             name, (long long)layout->slot_stride, (long long)layout->head_stride,
                             (long long)layout->v_stride, (long long)layout->k_stride, (long long)least,
                             (int)p->num_v_heads, (int)p->head_v_dim, (int)p->head_k_dim);
}

static gdn_status check_states(const gdn_problem *p)
{
    GDN_TRY(check_enum((int)p->state_form, GDN_STATE_POOL, "state_form", "gdn_state_form"));
    if (p->state_form == GDN_STATE_POOL) {
        GDN_TRY(check_index_dtype(p->slots_dtype, "slots_dtype"));
        return check_state_layout(p, &p->state, 0, "state");
    }
    GDN_TRY(check_state_layout(p, &p->state, p->max_seqs, "state"));
    return check_state_layout(p, &p->final_state, p->max_seqs, "final_state");
}

static gdn_status check_maxima(const gdn_problem *p)
{
    GDN_TRY(check_range(p->max_seqs, 1, MAX_SEQS, "max_seqs"));
    if (p->operation == GDN_OPERATION_DECODE) {
        return check_range(p->tokens_per_row, 1, GDN_MAX_DECODE_TOKENS, "tokens_per_row");
    }
    GDN_TRY(check_range(p->max_tokens, 1, GDN_MAX_EXTENT, "max_tokens"));
    if (p->max_seqlen < 0 || p->max_seqlen > p->max_tokens) {
        return GDN_INVALID("max_seqlen: %lld, must be in 0..%lld (max_tokens; 0 means it)", (long long)p->max_seqlen,
                           (long long)p->max_tokens);
    }
    if (p->cu_seqlens_dtype != GDN_DTYPE_NONE && !gdn_dtype_is_index(p->cu_seqlens_dtype)) {
        return GDN_INVALID("cu_seqlens_dtype: %s (%d), must be i32, i64 or none", gdn_dtype_name(p->cu_seqlens_dtype),
                           (int)p->cu_seqlens_dtype);
    }
    return GDN_OK;
}

static gdn_status check_checkpoints(const gdn_problem *p)
{
    GDN_TRY(check_enum((int)p->checkpoint_form, GDN_CHECKPOINT_AT, "checkpoint_form", "gdn_checkpoint_form"));
    if (p->checkpoint_form == GDN_CHECKPOINT_NONE) {
        return GDN_OK;
    }
    if (p->operation == GDN_OPERATION_DECODE) {
        return GDN_INVALID("checkpoint_form: %d, must be NONE in a decode problem (token_slots store states)",
                           (int)p->checkpoint_form);
    }
    if (p->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        GDN_TRY(check_range(p->checkpoint_interval, 1, INT32_MAX, "checkpoint_interval"));
    } else {
        GDN_TRY(check_index_dtype(p->checkpoint_index_dtype, "checkpoint_index_dtype"));
    }
    GDN_TRY(check_range(p->max_checkpoints, 1, GDN_MAX_EXTENT, "max_checkpoints"));
    return check_state_layout(p, &p->checkpoints, p->max_checkpoints, "checkpoints");
}

gdn_status gdn_problem_check(const gdn_problem *problem)
{
    GDN_TRY(check_enum((int)problem->operation, GDN_OPERATION_DECODE, "operation", "gdn_operation"));
    GDN_TRY(check_heads(problem));
    GDN_TRY(check_options(problem));
    GDN_TRY(check_maxima(problem));
    GDN_TRY(check_token_layouts(problem));
    GDN_TRY(check_states(problem));
    return check_checkpoints(problem);
}
