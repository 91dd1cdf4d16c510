/* Shapes, strides and buffers of a case; inputs_values.c fills them. */
#include "inputs.h"

#include "formats.h"
#include "inputs_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void replace_zeros(case_spec *s)
{
#define DEFAULT_OF(field, value) s->field = s->field != 0 ? s->field : (value)
    DEFAULT_OF(num_k_heads, 1);
    DEFAULT_OF(num_v_heads, s->num_k_heads);
    DEFAULT_OF(head_k_dim, 32);
    DEFAULT_OF(head_v_dim, s->head_k_dim);
    DEFAULT_OF(num_seqs, 1);
    DEFAULT_OF(tokens_per_row, 1);
    DEFAULT_OF(dtype, GDN_DTYPE_F32);
    DEFAULT_OF(gate_dtype, GDN_DTYPE_F32);
    DEFAULT_OF(beta_dtype, GDN_DTYPE_F32);
    DEFAULT_OF(state_dtype, GDN_DTYPE_F32);
    DEFAULT_OF(final_dtype, s->state_dtype);
    DEFAULT_OF(cu_dtype, GDN_DTYPE_I64);
    DEFAULT_OF(slots_dtype, GDN_DTYPE_I64);
    DEFAULT_OF(checkpoint_dtype, GDN_DTYPE_I64);
    DEFAULT_OF(beta_scale, 1.0f);
    DEFAULT_OF(qk_norm_eps, 1e-6f);
    DEFAULT_OF(value_size, 1.0);
    DEFAULT_OF(state_size, 0.2);
    DEFAULT_OF(num_slots, 2 * s->num_seqs + 1);
#undef DEFAULT_OF
    if (s->in_place && s->state_form == GDN_STATE_DENSE) {
        s->finals = s->states;
        s->final_dtype = s->state_dtype;
    }
}

static bool by_rows(const test_case *c)
{
    return c->spec.operation == GDN_OPERATION_DECODE || c->spec.equal_length;
}

static int64_t row_tokens(const test_case *c)
{
    return c->spec.operation == GDN_OPERATION_DECODE ? c->spec.tokens_per_row : c->spec.length;
}

int64_t case_length(const test_case *c, int64_t n)
{
    if (c->spec.operation == GDN_OPERATION_DECODE) {
        return c->spec.num_tokens != NULL ? c->spec.num_tokens[n] : c->spec.tokens_per_row;
    }
    return c->spec.lengths != NULL ? c->spec.lengths[n] : c->spec.length;
}

int64_t case_first_token(const test_case *c, int64_t n)
{
    if (by_rows(c)) {
        return n * row_tokens(c);
    }
    int64_t first = 0;
    for (int64_t i = 0; i < n; i++) {
        first += case_length(c, i);
    }
    return first;
}

static void add_buffer(test_case *c, case_operand operand, size_t bytes, size_t shift, bool written)
{
    case_buffer *const buffer = &c->buffer[operand];
    buffer->bytes = bytes > 0 ? bytes : 1;
    buffer->shift = shift;
    buffer->written = written;
    buffer->before = malloc(buffer->bytes);
    buffer->after = malloc(buffer->bytes);
    if (buffer->before == NULL || buffer->after == NULL) {
        abort();
    }
    memset(buffer->before, 0xFF, buffer->bytes);
    memset(buffer->after, 0xFF, buffer->bytes);
    c->view[operand] = (case_view){(int32_t)operand, 0};
}

static gdn_layout *layout_of(gdn_problem *p, case_operand operand)
{
    switch (operand) {
    case CASE_Q:
        return &p->q;
    case CASE_K:
        return &p->k;
    case CASE_V:
        return &p->v;
    case CASE_O:
        return &p->o;
    case CASE_GATE:
        return &p->gate;
    default:
        return &p->beta;
    }
}

static int32_t heads_of(const gdn_problem *p, case_operand operand)
{
    return operand == CASE_Q || operand == CASE_K ? p->num_k_heads : p->num_v_heads;
}

static int32_t dim_of(const gdn_problem *p, case_operand operand)
{
    switch (operand) {
    case CASE_Q:
    case CASE_K:
        return p->head_k_dim;
    case CASE_V:
    case CASE_O:
        return p->head_v_dim;
    default:
        return 1;
    }
}

static uint32_t alignment_of_offset(size_t offset)
{
    const size_t lowest = offset & (~offset + 1);
    return offset == 0 || lowest > 16 ? 16 : (uint32_t)lowest;
}

/* Makes `operand` a view of `owner`'s buffer, `elements` in. */
static void view_into(test_case *c, case_operand operand, case_operand owner, int64_t elements)
{
    gdn_layout *const layout = layout_of(&c->problem, operand);
    c->view[operand] = (case_view){(int32_t)owner, (size_t)elements * format_size(layout->dtype)};
    layout->alignment = alignment_of_offset(c->view[operand].offset);
}

static void lay_out_packed(test_case *c)
{
    gdn_problem *const p = &c->problem;
    const int64_t k_width = (int64_t)p->num_k_heads * p->head_k_dim, v_width = (int64_t)p->num_v_heads * p->head_v_dim;
    const bool with_output = c->spec.operands == OPERANDS_PACKED_WITH_OUTPUT;
    const int64_t row = 2 * k_width + v_width + (with_output ? v_width : 0);
    p->q.token_stride = p->k.token_stride = p->v.token_stride = row;
    add_buffer(c, CASE_Q, (size_t)(c->total_tokens * row) * format_size(p->q.dtype), 0, with_output);
    view_into(c, CASE_K, CASE_Q, k_width);
    view_into(c, CASE_V, CASE_Q, 2 * k_width);
    if (with_output) {
        p->o.token_stride = row;
        view_into(c, CASE_O, CASE_Q, 2 * k_width + v_width);
    } else {
        add_buffer(c, CASE_O, (size_t)(c->total_tokens * v_width) * format_size(p->o.dtype), 0, true);
    }
}

static void lay_out_gates(test_case *c, int64_t head_stride, int64_t beta_offset)
{
    gdn_problem *const p = &c->problem;
    p->gate.token_stride = p->beta.token_stride = 2 * (int64_t)p->num_v_heads;
    p->gate.head_stride = p->beta.head_stride = head_stride;
    add_buffer(c, CASE_GATE, (size_t)(c->total_tokens * 2 * p->num_v_heads) * format_size(p->gate.dtype), 0, false);
    if (p->beta.dtype == p->gate.dtype) {
        view_into(c, CASE_BETA, CASE_GATE, beta_offset);
    } else {
        add_buffer(c, CASE_BETA, (size_t)(c->total_tokens * 2 * p->num_v_heads) * format_size(p->beta.dtype), 0, false);
    }
}

/* One operand in a buffer of its own. */
static void lay_out_alone(test_case *c, case_operand operand)
{
    gdn_problem *const p = &c->problem;
    gdn_layout *const layout = layout_of(p, operand);
    const int64_t heads = heads_of(p, operand), dim = dim_of(p, operand);
    const int64_t tokens = c->total_tokens > 0 ? c->total_tokens : 1;
    const int64_t row_length = row_tokens(c) > 0 ? row_tokens(c) : 1;
    int64_t elements = tokens * heads * dim;
    size_t shift = 0;
    if (c->spec.operands == OPERANDS_PADDED || c->spec.operands == OPERANDS_PADDED_ROWS) {
        static const int64_t head_gap[] = {3, 1, 7, 5, 1, 2}, token_gap[] = {5, 11, 1, 9, 3, 1};
        const bool whole = c->spec.operands == OPERANDS_PADDED_ROWS && operand >= CASE_GATE;
        layout->head_stride = dim + (whole ? 0 : head_gap[operand]);
        layout->token_stride = heads * layout->head_stride + token_gap[operand];
        elements = tokens * layout->token_stride;
        if (by_rows(c)) {
            layout->row_stride = row_length * layout->token_stride + 13;
            elements = (tokens / row_length + 1) * layout->row_stride;
        }
    } else if (c->spec.operands == OPERANDS_INTERLEAVED) {
        /* Heads are as far apart as the plan's maxima ask. */
        const int64_t most = c->spec.operation == GDN_OPERATION_DECODE ? p->max_seqs * row_length : p->max_tokens;
        layout->token_stride = dim;
        layout->head_stride = most * dim;
        elements = heads * layout->head_stride;
    } else if (c->spec.operands == OPERANDS_SHIFTED) {
        shift = format_size(layout->dtype);
        layout->alignment = (uint32_t)shift;
    }
    add_buffer(c, operand, (size_t)elements * format_size(layout->dtype), shift, operand == CASE_O);
}

static void lay_out_operands(test_case *c)
{
    gdn_problem *const p = &c->problem;
    const case_spec *const s = &c->spec;
    p->q.dtype = p->k.dtype = p->v.dtype = p->o.dtype = s->dtype;
    p->gate.dtype = s->gate_dtype;
    p->beta.dtype = s->beta_dtype;
    if (s->operands == OPERANDS_PACKED || s->operands == OPERANDS_PACKED_WITH_OUTPUT) {
        lay_out_packed(c);
        lay_out_gates(c, 1, p->num_v_heads);
        return;
    }
    for (case_operand operand = CASE_Q; operand <= CASE_O; operand++) {
        lay_out_alone(c, operand);
    }
    if (s->operands == OPERANDS_INTERLEAVED) {
        lay_out_gates(c, 2, 1);
        return;
    }
    lay_out_alone(c, CASE_GATE);
    lay_out_alone(c, CASE_BETA);
}

static void lay_out_states(test_case *c, case_operand operand, gdn_state_layout *layout, state_style style,
                           gdn_dtype dtype, int64_t slots, bool written)
{
    const gdn_problem *const p = &c->problem;
    size_t shift = 0;
    layout->dtype = dtype;
    if (style == STATES_KV) {
        layout->v_stride = 1;
        layout->k_stride = p->head_v_dim;
    } else if (style == STATES_PADDED) {
        layout->v_stride = p->head_k_dim + 4;
        layout->head_stride = p->head_v_dim * layout->v_stride + 8;
        layout->slot_stride = p->num_v_heads * layout->head_stride + 96;
    } else if (style == STATES_SHIFTED) {
        shift = format_size(dtype);
        layout->alignment = (uint32_t)shift;
    }
    add_buffer(c, operand, (size_t)(slots * layout->slot_stride) * format_size(dtype), shift, written);
}

static void add_indices(test_case *c, case_operand operand, gdn_dtype dtype, int64_t count)
{
    add_buffer(c, operand, (size_t)count * format_size(dtype), 0, false);
}

static void lay_out_pool(test_case *c)
{
    const case_spec *const s = &c->spec;
    const bool written = !s->no_write_slots || s->token_slots != NULL;
    c->problem.slots_dtype = s->slots_dtype;
    lay_out_states(c, CASE_STATE, &c->problem.state, s->states, s->state_dtype, s->num_slots, written);
    add_indices(c, CASE_READ_SLOTS, s->slots_dtype, s->num_seqs);
    if (s->in_place) {
        c->view[CASE_WRITE_SLOTS] = c->view[CASE_READ_SLOTS];
    } else if (!s->no_write_slots) {
        add_indices(c, CASE_WRITE_SLOTS, s->slots_dtype, s->num_seqs);
    }
    if (s->token_slots != NULL) {
        add_indices(c, CASE_TOKEN_SLOTS, s->slots_dtype, c->total_tokens);
    }
}

static void lay_out_dense_states(test_case *c)
{
    const case_spec *const s = &c->spec;
    gdn_problem *const p = &c->problem;
    if (!s->no_initial_state) {
        lay_out_states(c, CASE_STATE, &p->state, s->states, s->state_dtype, s->num_seqs, s->in_place);
    }
    if (s->in_place) {
        p->final_state = p->state;
        c->view[CASE_FINAL_STATE] = c->view[CASE_STATE];
    } else if (!s->no_final_state) {
        lay_out_states(c, CASE_FINAL_STATE, &p->final_state, s->finals, s->final_dtype, s->num_seqs, true);
    }
}

static void lay_out_checkpoints(test_case *c)
{
    const case_spec *const s = &c->spec;
    gdn_problem *const p = &c->problem;
    p->checkpoint_form = s->checkpoint_form;
    if (s->checkpoint_form == GDN_CHECKPOINT_NONE) {
        return;
    }
    int64_t used = 0;
    if (s->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        p->checkpoint_interval = s->checkpoint_interval;
        for (int64_t n = 0; n < s->num_seqs; n++) {
            used += case_length(c, n) / s->checkpoint_interval;
        }
    } else {
        used = s->checkpoint_offsets[s->num_seqs];
        p->checkpoint_index_dtype = s->checkpoint_dtype;
        add_indices(c, CASE_CHECKPOINT_POSITIONS, s->checkpoint_dtype, used);
        add_indices(c, CASE_CHECKPOINT_OFFSETS, s->checkpoint_dtype, s->num_seqs + 1);
    }
    c->num_checkpoints = used + s->spare_checkpoints;
    p->max_checkpoints = c->num_checkpoints > 0 ? c->num_checkpoints : 1;
    lay_out_states(c, CASE_CHECKPOINTS, &p->checkpoints, s->finals, s->final_dtype, c->num_checkpoints, true);
}

static void fill_problem(test_case *c)
{
    const case_spec *const s = &c->spec;
    gdn_problem *const p = &c->problem;
    if (gdn_problem_init(p, s->num_k_heads, s->num_v_heads, s->head_k_dim, s->head_v_dim) != GDN_OK) {
        abort();
    }
    p->operation = s->operation;
    p->head_map = s->head_map;
    p->scale = s->has_scale ? s->scale : p->scale;
    p->gate_form = s->gate_form;
    p->beta_form = s->beta_form;
    p->beta_scale = s->beta_scale;
    p->qk_norm = s->qk_norm;
    p->qk_norm_eps = fmaxf(s->qk_norm_eps, 0);
    p->numerics = s->numerics;
    p->chunk_size = s->chunk_size;
    p->num_segments = s->num_segments;
    p->state_form = s->state_form;
    p->max_seqs = s->num_seqs + s->spare_seqs;
    p->max_workspace = s->max_workspace;
    if (s->operation == GDN_OPERATION_DECODE) {
        p->tokens_per_row = s->tokens_per_row;
        c->total_tokens = s->num_seqs * s->tokens_per_row;
        return;
    }
    p->cu_seqlens_dtype = s->equal_length ? GDN_DTYPE_NONE : s->cu_dtype;
    c->total_tokens = case_first_token(c, s->num_seqs) + s->extra_tokens;
    p->max_tokens = c->total_tokens + s->spare_tokens;
    p->max_tokens = p->max_tokens > 0 ? p->max_tokens : 1;
    p->max_seqlen = s->max_seqlen;
}

void case_build(test_case *c, const case_spec *spec)
{
    *c = (test_case){.spec = *spec};
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        c->view[i].buffer = -1;
    }
    replace_zeros(&c->spec);
    fill_problem(c);
    lay_out_operands(c);
    if (c->spec.gate_form == GDN_GATE_RAW) {
        const size_t bytes = (size_t)c->spec.num_v_heads * sizeof(float);
        const size_t shift = c->spec.operands == OPERANDS_SHIFTED ? sizeof(float) : 0;
        add_buffer(c, CASE_A_LOG, bytes, shift, false);
        if (!c->spec.no_dt_bias) {
            add_buffer(c, CASE_DT_BIAS, bytes, shift, false);
        }
    }
    if (c->spec.state_form == GDN_STATE_POOL) {
        lay_out_pool(c);
    } else {
        lay_out_dense_states(c);
    }
    if (c->spec.operation == GDN_OPERATION_PREFILL) {
        lay_out_checkpoints(c);
        if (!c->spec.equal_length) {
            add_indices(c, CASE_CU_SEQLENS, c->spec.cu_dtype, c->spec.num_seqs + 1);
        }
    } else if (c->spec.num_tokens != NULL) {
        add_indices(c, CASE_NUM_TOKENS, GDN_DTYPE_I32, c->spec.num_seqs);
    }
    if (c->spec.has_initial_state != NULL) {
        add_buffer(c, CASE_HAS_INITIAL_STATE, (size_t)c->spec.num_seqs, 0, false);
    }
    fill_values(c);
}

void case_free(test_case *c)
{
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        free(c->buffer[i].before);
        free(c->buffer[i].after);
    }
    *c = (test_case){0};
}
