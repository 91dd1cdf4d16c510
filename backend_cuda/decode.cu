/* Decode of states that can be moved in pieces of 16 bytes: stored [V, K] with K of 64, 128 or 256, or float32 stored [K, V] with K of
 * 64 or 128.
 *
 * One token of one column v of S, s = S[:, v] (letters of docs/algorithm.md):
 *
 *     u = beta (v - alpha k.s)        o = scale (alpha q.s + (q.k) u)        s <- alpha s + u k
 *
 * so that both products of s with k and q need its old value only: a column is read once, reduced once, written once.
 *
 * A block is one warp. `kLanes` lanes share a column, each with 16 bytes of it at a time; as many columns are deep as make 32
 * elements a lane. K = 128 in float32, stored [V, K], kLanes = 32:
 *
 *     lane         0 .. 31
 *     first        v0        128 elements of one state row over 32 lanes
 *     then         v0 + 1
 *     ...          v0 + 7
 *
 * Half as many lanes a column are as fast with few rows and 1% slower with many: a load of the warp is then two half rows.
 * Stored [K, V], kLanes = 8, with 64 elements a lane:
 *
 *     lane         0                      1 .. 3               4 .. 7              ...    28 .. 31
 *     first        row 0, v0 .. v0 + 3    v0 + 4 .. v0 + 15    row 16, the same           row 112
 *     then         row 1                                       row 17
 *     ...          row 15                                      row 31                     row 127
 *
 * The sums over a column's lanes end in one of them each, which has that column's v, u and o for its own (scatter_sums).
 *
 * The columns stay in registers from the first token to the last. A block asks for all of them and for its token, and waits
 * for nobody else. A multiprocessor holds 20 such blocks, 32 in decode_one.cu, which between them have 80 or 128 KiB on their way
 * (half of that of 16-bit states). Larger blocks were slower, though they had more under way: all of them loads, then all of
 * them stores. So were warps of 64 elements a lane.
 *
 * decode_one.cu has the kernel of rows of one token.
 */
#include "decode_token.cuh"

namespace gdn
{
namespace
{

struct ManyParams {
    ColumnParams c;
    uint32_t k_token, q_token, v_token, gate_token, beta_token, o_token; /* strides */
    State token_states;
};

template <typename Map> constexpr int kResident = resident(kState<Map> > 32 ? 12 : 20);

template <typename Map, bool k16Bit>
__global__ void __launch_bounds__(32, kResident<Map>)
    decode_columns_kernel(const __grid_constant__ ManyParams a, const __grid_constant__ gdn_decode_params p)
{
    wait_for_kernel_before();
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const ColumnPlace at = column_place<Map, k16Bit>(a.c);
    const Row row = row_of(p, at.row);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }
    RawColumns<Map> raw;
    raw.clear();
    if (row.has_initial_state) {
        raw.template load<false>(a.c.initial_state.at<Map>(static_cast<uint32_t>(row.read), at.head, at.v0),
                                 a.c.initial_state.line, at.columns);
    }
    if (row.tokens == 0) {
        if (a.c.final_state.data) {
            raw.store(a.c.final_state.at<Map>(static_cast<uint32_t>(row.write), at.head, at.v0), a.c.final_state.line,
                      at.columns);
        }
        return;
    }
    const unsigned char *k_at = at.k, *q_at = at.q, *v_at = at.v;
    unsigned char *o_at = a.c.o.at(at.row, at.head) + at.own;
    RawToken<Map, k16Bit> next;
    next.load(k_at, q_at, v_at, at.has_own);
    /* Token t's in lane t; lanes past the last token have those of the last. */
    const uint32_t gates_of = min(static_cast<int>(threadIdx.x), row.tokens - 1);
    RawGates raw_gates;
    raw_gates.load(a.c.forms, at.gate + static_cast<uint64_t>(gates_of) * a.gate_token,
                   at.beta + static_cast<uint64_t>(gates_of) * a.beta_token);
    raw_gates.load_head(a.c.A_log, a.c.dt_bias, at.head);
    Gates gates;
    gates.take(a.c.forms, raw_gates);
    Columns<Map> state;
    raw.unpack(state.s);
#pragma unroll 1
    for (int t = 0; t < row.tokens; ++t) {
        Token<Map, k16Bit> token;
        token.take(a.c.forms, next,
                   {__shfl_sync(0xffffffffu, gates.alpha, t), __shfl_sync(0xffffffffu, gates.beta, t)});
        if (t + 1 < row.tokens) {
            k_at += a.k_token;
            q_at += a.q_token;
            v_at += a.v_token;
            next.load(k_at, q_at, v_at, at.has_own);
        }
        const float o = token.step(state, a.c.scale);
        if (at.has_own && is_owner<Map>()) {
            store_element(o_at, k16Bit ? (a.c.forms.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16) : GDN_DTYPE_F32, 0, o);
        }
        o_at += a.o_token;
        if (p.token_slots) {
            const int64_t slot =
                load_index(p.token_slots, p.slots_dtype, at.row * static_cast<int64_t>(p.tokens_per_row) + t);
            if (slot >= 0) {
                raw.pack(state.s);
                raw.store(a.token_states.at<Map>(static_cast<uint32_t>(slot), at.head, at.v0), a.token_states.line,
                          at.columns);
            }
        }
    }
    if (a.c.final_state.data) {
        raw.pack(state.s);
        raw.store(a.c.final_state.at<Map>(static_cast<uint32_t>(row.write), at.head, at.v0), a.c.final_state.line,
                  at.columns);
    }
}

template <typename Map, bool k16Bit> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    ManyParams a = {};
    a.c = column_params(p, Map::kColumns);
    a.k_token = static_cast<uint32_t>(element_size(p.k.dtype) * p.k.token_stride);
    a.q_token = static_cast<uint32_t>(element_size(p.q.dtype) * p.q.token_stride);
    a.v_token = static_cast<uint32_t>(element_size(p.v.dtype) * p.v.token_stride);
    a.gate_token = static_cast<uint32_t>(element_size(p.gate.dtype) * p.gate.token_stride);
    a.beta_token = static_cast<uint32_t>(element_size(p.beta.dtype) * p.beta.token_stride);
    a.o_token = static_cast<uint32_t>(element_size(p.o.dtype) * p.o.token_stride);
    a.token_states = in_bytes(p.token_states);
    return launch_columns(decode_columns_kernel<Map, k16Bit>, p, Map::kColumns, stream, a, p);
}

/* A stride of elements of up to four bytes, counted in pieces. */
bool fits(int64_t stride, int64_t piece)
{
    return stride >= 0 && stride / piece <= UINT32_MAX / 4;
}

} // namespace
} // namespace gdn

gdn_decode_layout gdn_decode_layout_of(int32_t head_k_dim, int32_t head_v_dim, const gdn_fused_state *state,
                                       uint32_t alignment)
{
    const bool columns = state->k_stride == 1;
    const int64_t per_piece = state->dtype == GDN_DTYPE_F32 ? 4 : 8;
    const int64_t strides[3] = {state->slot_stride, state->head_stride, columns ? state->v_stride : state->k_stride};
    for (int i = 0; i < 3; ++i) {
        if (strides[i] % per_piece != 0) {
            return GDN_DECODE_ANY;
        }
    }
    if (alignment < 16) {
        return GDN_DECODE_ANY;
    }
    if (columns) {
        return head_k_dim == 64 || head_k_dim == 128 || head_k_dim == 256 ? GDN_DECODE_COLUMNS : GDN_DECODE_ANY;
    }
    return (head_k_dim == 64 || head_k_dim == 128) && head_v_dim % per_piece == 0 && state->v_stride == 1 &&
                   state->dtype == GDN_DTYPE_F32
               ? GDN_DECODE_ROWS
               : GDN_DECODE_ANY;
}

int gdn_decode_columns_fit(const gdn_decode_params *decode)
{
    const gdn_fused_operand *const operands[] = {&decode->q, &decode->k,    &decode->v,
                                                 &decode->o, &decode->gate, &decode->beta};
    const gdn_fused_state *const states[] = {&decode->initial_state, &decode->final_state, &decode->token_states};
    bool fit = decode->num_slots <= UINT32_MAX;
    for (const gdn_fused_operand *x : operands) {
        fit = fit && gdn::fits(x->row_stride, 1) && gdn::fits(x->token_stride, 1) && gdn::fits(x->head_stride, 1);
    }
    for (const gdn_fused_state *x : states) {
        fit = fit && gdn::fits(x->slot_stride, 16) && gdn::fits(x->head_stride, 1) && gdn::fits(x->v_stride, 1) &&
              gdn::fits(x->k_stride, 1);
    }
    return fit;
}

int gdn_decode_columns_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    if (decode->tokens_per_row == 1 && !decode->num_tokens && !decode->token_slots) {
        return gdn_decode_one_launch(decode, stream);
    }
    return gdn::with_map(*decode, [&](auto map, auto is_16_bit) {
        return gdn::launch<decltype(map), decltype(is_16_bit)::value>(*decode, stream);
    });
}
