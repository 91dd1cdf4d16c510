/* Elements of a case, and its argument structs. */
#include "inputs.h"

#include "formats.h"

#include <stdlib.h>

static unsigned char *view_in(const test_case *c, case_operand operand, bool after)
{
    const case_view view = c->view[operand];
    if (view.buffer < 0) {
        return NULL;
    }
    const case_buffer *const buffer = &c->buffer[view.buffer];
    return (after ? buffer->after : buffer->before) + view.offset;
}

unsigned char *case_before(const test_case *c, case_operand operand)
{
    return view_in(c, operand, false);
}

unsigned char *case_after(const test_case *c, case_operand operand)
{
    return view_in(c, operand, true);
}

static const gdn_layout *layout_of(const test_case *c, case_operand operand)
{
    const gdn_layout *const layouts[] = {&c->problem.q, &c->problem.k,    &c->problem.v,
                                         &c->problem.o, &c->problem.gate, &c->problem.beta};
    return layouts[operand];
}

int64_t case_index(const test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d)
{
    const gdn_layout *const layout = layout_of(c, operand);
    int64_t row = 0, row_length = 0;
    if (c->spec.operation == GDN_OPERATION_DECODE) {
        row_length = c->spec.tokens_per_row;
    } else if (c->spec.equal_length) {
        row_length = c->spec.length;
    }
    int64_t row_stride = 0;
    if (row_length > 0) {
        row = token / row_length;
        token -= row * row_length;
        row_stride = layout->row_stride != 0 ? layout->row_stride : row_length * layout->token_stride;
    }
    return row * row_stride + token * layout->token_stride + head * layout->head_stride + d;
}

void case_put(test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d, double x)
{
    format_encode(layout_of(c, operand)->dtype, case_before(c, operand), case_index(c, operand, token, head, d), x);
}

double case_get(const test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d)
{
    return format_decode(layout_of(c, operand)->dtype, case_before(c, operand), case_index(c, operand, token, head, d));
}

double case_output(const test_case *c, int64_t token, int32_t head, int32_t d)
{
    return format_decode(c->problem.o.dtype, case_after(c, CASE_O), case_index(c, CASE_O, token, head, d));
}

static const gdn_state_layout *state_layout_of(const test_case *c, case_operand operand)
{
    switch (operand) {
    case CASE_FINAL_STATE:
        return &c->problem.final_state;
    case CASE_CHECKPOINTS:
        return &c->problem.checkpoints;
    default:
        return &c->problem.state;
    }
}

int64_t case_state_index(const test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k)
{
    const gdn_state_layout *const layout = state_layout_of(c, operand);
    return slot * layout->slot_stride + head * layout->head_stride + v * layout->v_stride + k * layout->k_stride;
}

void case_put_state(test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k, double x)
{
    format_encode(state_layout_of(c, operand)->dtype, case_before(c, operand),
                  case_state_index(c, operand, slot, head, v, k), x);
}

double case_state_after(const test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k)
{
    return format_decode(state_layout_of(c, operand)->dtype, case_after(c, operand),
                         case_state_index(c, operand, slot, head, v, k));
}

bool case_result_state(const test_case *c, int64_t n, case_operand *operand, int64_t *slot)
{
    if (c->spec.state_form == GDN_STATE_DENSE) {
        *operand = CASE_FINAL_STATE;
        *slot = n;
        return c->view[CASE_FINAL_STATE].buffer >= 0;
    }
    if (c->view[CASE_WRITE_SLOTS].buffer < 0) {
        return false;
    }
    *operand = CASE_STATE;
    *slot = format_load_index(c->spec.slots_dtype, case_before(c, CASE_WRITE_SLOTS), n);
    return *slot >= 0 && format_load_index(c->spec.slots_dtype, case_before(c, CASE_READ_SLOTS), n) >= 0;
}

/* The pointer of an operand over `base`, or NULL. */
static void *at(const test_case *c, unsigned char *const base[CASE_NUM_OPERANDS], case_operand operand)
{
    const case_view view = c->view[operand];
    return view.buffer < 0 ? NULL : base[view.buffer] + view.offset;
}

gdn_prefill_args case_prefill_args(const test_case *c, unsigned char *const base[CASE_NUM_OPERANDS])
{
    gdn_prefill_args args;
    if (gdn_prefill_args_init(&args) != GDN_OK) {
        abort();
    }
    args.num_seqs = c->spec.num_seqs;
    args.total_tokens = c->total_tokens;
    args.q = at(c, base, CASE_Q);
    args.k = at(c, base, CASE_K);
    args.v = at(c, base, CASE_V);
    args.o = at(c, base, CASE_O);
    args.gate = at(c, base, CASE_GATE);
    args.beta = at(c, base, CASE_BETA);
    args.A_log = at(c, base, CASE_A_LOG);
    args.dt_bias = at(c, base, CASE_DT_BIAS);
    args.cu_seqlens = at(c, base, CASE_CU_SEQLENS);
    args.state = at(c, base, CASE_STATE);
    args.final_state = at(c, base, CASE_FINAL_STATE);
    args.num_slots = c->spec.state_form == GDN_STATE_POOL ? c->spec.num_slots : 0;
    args.read_slots = at(c, base, CASE_READ_SLOTS);
    args.write_slots = at(c, base, CASE_WRITE_SLOTS);
    args.has_initial_state = at(c, base, CASE_HAS_INITIAL_STATE);
    args.checkpoints = at(c, base, CASE_CHECKPOINTS);
    args.num_checkpoints = c->num_checkpoints;
    args.checkpoint_positions = at(c, base, CASE_CHECKPOINT_POSITIONS);
    args.checkpoint_offsets = at(c, base, CASE_CHECKPOINT_OFFSETS);
    return args;
}

gdn_decode_args case_decode_args(const test_case *c, unsigned char *const base[CASE_NUM_OPERANDS])
{
    gdn_decode_args args;
    if (gdn_decode_args_init(&args) != GDN_OK) {
        abort();
    }
    args.num_rows = c->spec.num_seqs;
    args.q = at(c, base, CASE_Q);
    args.k = at(c, base, CASE_K);
    args.v = at(c, base, CASE_V);
    args.o = at(c, base, CASE_O);
    args.gate = at(c, base, CASE_GATE);
    args.beta = at(c, base, CASE_BETA);
    args.A_log = at(c, base, CASE_A_LOG);
    args.dt_bias = at(c, base, CASE_DT_BIAS);
    args.num_tokens = at(c, base, CASE_NUM_TOKENS);
    args.state = at(c, base, CASE_STATE);
    args.final_state = at(c, base, CASE_FINAL_STATE);
    args.num_slots = c->spec.state_form == GDN_STATE_POOL ? c->spec.num_slots : 0;
    args.read_slots = at(c, base, CASE_READ_SLOTS);
    args.write_slots = at(c, base, CASE_WRITE_SLOTS);
    args.token_slots = at(c, base, CASE_TOKEN_SLOTS);
    args.has_initial_state = at(c, base, CASE_HAS_INITIAL_STATE);
    return args;
}

static void bases_before(const test_case *c, unsigned char *base[CASE_NUM_OPERANDS])
{
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        base[i] = c->buffer[i].before;
    }
}

gdn_prefill_args case_prefill_args_before(const test_case *c)
{
    unsigned char *base[CASE_NUM_OPERANDS];
    bases_before(c, base);
    return case_prefill_args(c, base);
}

gdn_decode_args case_decode_args_before(const test_case *c)
{
    unsigned char *base[CASE_NUM_OPERANDS];
    bases_before(c, base);
    return case_decode_args(c, base);
}
