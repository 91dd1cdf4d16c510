/* Decode of states stored [V, K], K of 64, 128 or 256, in 16-byte pieces.
 *
 * One token of one column v of S, s = S[:, v] (letters of docs/algorithm.md):
 *
 *     u = beta (v - alpha k.s)        o = scale (alpha q.s + (q.k) u)        s <- alpha s + u k
 *
 * so that both products of s with k and q need its old value only: a column is read once, reduced once, written once.
 *
 * A block is one warp. `kLanes` lanes share a column, 16 bytes each at a time; as many columns are deep as make 32 elements a
 * lane. K = 128 in float32, kLanes = 16:
 *
 *     lane         0 .. 15    16 .. 31
 *     first        v0         v0 + 1        128 elements of one state row over 16 lanes
 *     then         v0 + 2     v0 + 3
 *     ...                     v0 + 7
 *
 * The columns stay in registers from the first token to the last. A block asks for all of them and for its token, and waits
 * for nobody else. A multiprocessor holds 20 such blocks, which between them have 80 KiB on their way (40 KiB of 16-bit
 * states). Larger blocks were slower, though they had more under way: all of them loads, then all of them stores. So
 * was more than one column a lane of 8, for want of registers.
 *
 * With few rows a call is as long as one warp's way through it, where an instruction takes about a nanosecond: so rows of one
 * token have a kernel of their own, which asks for the token before the slots are there, and addresses are short sums.
 */
#include "decode_columns.cuh"
#include "decode_row.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

/* Blocks that a multiprocessor is to hold, as far as registers go; those of 8.6 and 8.7 hold no more than 16 of any kind. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870)
template <int K> constexpr int kResident = 16;
#else
template <int K> constexpr int kResident = K == 256 ? 16 : 20;
#endif

/* gdn_decode_params as this kernel wants them: strides in bytes, of 32 bits, so that a product is one instruction. */
struct Operand {
    unsigned char *data;
    uint32_t row, token, head; /* strides */

    __device__ __forceinline__ unsigned char *at(uint32_t n, uint32_t h, uint32_t t) const
    {
        return data + static_cast<uint64_t>(n) * row + static_cast<uint64_t>(h) * head +
               static_cast<uint64_t>(t) * token;
    }
};

struct State {
    unsigned char *data;
    uint32_t slot; /* strides; this one in pieces of 16 bytes */
    uint32_t head, v;

    __device__ __forceinline__ unsigned char *at(uint32_t n, uint32_t h, uint32_t column) const
    {
        return data + 16 * (static_cast<uint64_t>(n) * slot) + static_cast<uint64_t>(h) * head +
               static_cast<uint64_t>(column) * v;
    }
};

struct ColumnParams {
    Operand q, k, v, o, gate, beta;
    State initial_state, final_state, token_states;
    const float *A_log, *dt_bias;
    Grid grid;
    uint32_t head_v_dim;
    float scale, beta_scale, qk_norm_eps;
    int8_t gate_form, beta_form, qk_norm;
    bool bf16, wide_gate, wide_beta; /* 16-bit numbers are bf16, not fp16; gate, beta are float32 */
};

/* One token's q, k and v on their way to a lane: v of the column that the lane loads v and stores o of, which is its
 * (lane % kLanes)-th. */
template <typename T, int K, bool k16Bit> struct RawToken {
    using Map = ColumnMap<T, K>;
    RawVector<T, K, k16Bit> k, q;
    uint32_t v;

    __device__ __forceinline__ void load(const unsigned char *k_at, const unsigned char *q_at,
                                         const unsigned char *v_at, bool has_v)
    {
        k.load(k_at);
        q.load(q_at);
        v = 0;
        if (has_v) {
            v = load_bits<k16Bit>(v_at, 0);
        }
    }
};

/* Decay and write strength of the row's tokens, token t in lane t. Lanes past the last token have those of the last. */
struct RawGates {
    uint32_t gate, beta; /* bits */
    float A_log, dt_bias;

    __device__ __forceinline__ void load(const ColumnParams &a, uint32_t row, uint32_t head, int tokens)
    {
        const int t = min(static_cast<int>(threadIdx.x), tokens - 1);
        gate = load_bits_of(a.gate.at(row, head, t), a.wide_gate);
        beta = load_bits_of(a.beta.at(row, head, t), a.wide_beta);
        A_log = 0.0f;
        dt_bias = 0.0f;
        if (a.A_log) {
            A_log = a.A_log[head];
        }
        if (a.dt_bias) {
            dt_bias = a.dt_bias[head];
        }
    }

  private:
    static __device__ __forceinline__ uint32_t load_bits_of(const unsigned char *at, bool wide)
    {
        return wide ? load_bits<false>(at, 0) : load_bits<true>(at, 0);
    }
};

struct Gates {
    float alpha, beta;

    __device__ __forceinline__ void take(const ColumnParams &a, const RawGates &raw)
    {
        alpha = value_of(raw.gate, a.wide_gate, a.bf16);
        if (a.gate_form != GDN_GATE_DECAY) {
            alpha = token_decay(log_decay_of(alpha, a.gate_form, raw.A_log, raw.dt_bias));
        }
        beta = beta_of(value_of(raw.beta, a.wide_beta, a.bf16), a.beta_form, a.beta_scale);
    }

  private:
    static __device__ __forceinline__ float value_of(uint32_t bits, bool wide, bool bf16)
    {
        return wide ? __uint_as_float(bits) : float_of_bits<true>(bits, bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16);
    }
};

/* One token, ready to be used. k and q are as given: their norms are factors of the sums over them. */
template <typename T, int K, bool k16Bit> struct Token {
    using Map = ColumnMap<T, K>;
    float k[Map::kPerLane], q[Map::kPerLane];
    float v; /* of the lane's own column, as in RawToken */
    float alpha, beta, k_norm, q_norm, qk;

    __device__ __forceinline__ void take(const ColumnParams &a, const RawToken<T, K, k16Bit> &raw, const Gates &gates,
                                         int t)
    {
        raw.k.unpack(k, a.bf16);
        raw.q.unpack(q, a.bf16);
        v = float_of_bits<k16Bit>(raw.v, a.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16);
        alpha = __shfl_sync(0xffffffffu, gates.alpha, t);
        beta = __shfl_sync(0xffffffffu, gates.beta, t);
        float sums[3] = {product(q, k), product(k, k), product(q, q)};
        k_norm = 1.0f;
        q_norm = 1.0f;
        if (a.qk_norm == GDN_QK_NORM_NONE) {
            lane_sums<Map::kLanes, 1>(sums);
        } else {
            lane_sums<Map::kLanes, 3>(sums);
            k_norm = norm_factor(sums[1], a.qk_norm, a.qk_norm_eps);
            q_norm = norm_factor(sums[2], a.qk_norm, a.qk_norm_eps);
        }
        qk = times(q_norm, times(k_norm, sums[0]));
    }

    /* A sum over a vector, times its factor. A vector longer than float32 can say has the factor 0, and any sum. */
    static __device__ __forceinline__ float times(float norm, float sum)
    {
        return norm == 0.0f ? 0.0f : norm * sum;
    }

    /* The lane's part of a sum over a column. */
    static __device__ __forceinline__ float product(const float *x, const float *y)
    {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < Map::kPerLane; ++i) {
            sum = fmaf(x[i], y[i], sum);
        }
        return sum;
    }

    /* Advances the columns by the token; returns o of the lane's own column. */
    __device__ __forceinline__ float step(Columns<T, K> &state, float scale) const
    {
        float sums[2 * Map::kDepth]; /* k.s of each column, then q.s */
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            sums[c] = product(k, state.s[c]);
            sums[Map::kDepth + c] = product(q, state.s[c]);
        }
        lane_sums<Map::kLanes, 2 * Map::kDepth>(sums);
        float mine = 0.0f;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            float *const s = state.s[c];
            const float value = __shfl_sync(0xffffffffu, v, c, Map::kLanes);
            const float u = beta * (value - alpha * times(k_norm, sums[c]));
            const float o = scale * fmaf(qk, u, alpha * times(q_norm, sums[Map::kDepth + c]));
            mine = threadIdx.x % Map::kLanes == c ? o : mine;
            const float uk = u * k_norm;
#pragma unroll
            for (int i = 0; i < Map::kPerLane; ++i) {
                s[i] = fmaf(uk, k[i], alpha * s[i]);
            }
        }
        return mine;
    }
};

/* kOneToken: every row has one token, and its state goes nowhere but to final_state. */
template <typename T, int K, bool k16Bit, bool kOneToken>
__global__ void __launch_bounds__(32, kResident<K>)
    decode_columns_kernel(const __grid_constant__ ColumnParams a, const __grid_constant__ gdn_decode_params p)
{
    using Map = ColumnMap<T, K>;
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const Place place = place_of(p, a.grid);
    const uint32_t n = static_cast<uint32_t>(place.row), head = place.head, k_head = place.k_head;
    const uint32_t lane = threadIdx.x % Map::kLanes; /* of the column */
    const uint32_t v = place.v0 + threadIdx.x / Map::kLanes; /* its first */
    const int columns = static_cast<int>(a.head_v_dim - v);
    const uint32_t own = lane * Map::kSide; /* the lane's own column, from its first */
    const bool has_own = lane < Map::kDepth && static_cast<int>(own) < columns;

    const RowWords words = load_row(p, n);
    __syncwarp(); /* so that these loads are the first */
    const unsigned char *k_at = a.k.at(n, k_head, 0), *q_at = a.q.at(n, k_head, 0);
    const unsigned char *v_at = a.v.at(n, head, 0) + (v + own) * (k16Bit ? 2 : 4);
    unsigned char *o_at = a.o.at(n, head, 0) + (v + own) * (k16Bit ? 2 : 4);
    RawToken<T, K, k16Bit> next;
    RawGates raw_gates;
    if (kOneToken) { /* long before the slots are there; but with num_tokens, nothing of a row without tokens may be read */
        next.load(k_at, q_at, v_at, has_own);
        raw_gates.load(a, n, head, 1);
    }
    const Row row = kOneToken ? judge_slots(p, n, words) : judge_row(p, n, words);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }
    RawColumns<T, K> raw;
    raw.clear();
    if (row.has_initial_state) {
        raw.load(a.initial_state.at(static_cast<uint32_t>(row.read), head, v) + 16 * lane, a.initial_state.v, columns);
    }
    if (!kOneToken && row.tokens == 0) {
        if (a.final_state.data) {
            raw.store(a.final_state.at(static_cast<uint32_t>(row.write), head, v) + 16 * lane, a.final_state.v,
                      columns);
        }
        return;
    }
    if (!kOneToken) {
        next.load(k_at, q_at, v_at, has_own);
        raw_gates.load(a, n, head, row.tokens);
    }
    Gates gates;
    gates.take(a, raw_gates);
    Columns<T, K> state;
    state.take(raw);
    const int tokens = kOneToken ? 1 : row.tokens;
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
        Token<T, K, k16Bit> token;
        token.take(a, next, gates, t);
        if (t + 1 < tokens) {
            k_at += a.k.token;
            q_at += a.q.token;
            v_at += a.v.token;
            next.load(k_at, q_at, v_at, has_own);
        }
        const float o = token.step(state, a.scale);
        if (has_own) {
            store_element(o_at, k16Bit ? (a.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16) : GDN_DTYPE_F32, 0, o);
        }
        o_at += a.o.token;
        if (!kOneToken && p.token_slots) {
            const int64_t slot =
                load_index(p.token_slots, p.slots_dtype, n * static_cast<int64_t>(p.tokens_per_row) + t);
            if (slot >= 0) {
                state.store(a.token_states.at(static_cast<uint32_t>(slot), head, v) + 16 * lane, a.token_states.v,
                            columns);
            }
        }
    }
    if (a.final_state.data) {
        state.store(a.final_state.at(static_cast<uint32_t>(row.write), head, v) + 16 * lane, a.final_state.v, columns);
    }
}

/* A stride of elements of up to four bytes, counted in pieces. */
bool fits(int64_t stride, int64_t piece)
{
    return stride >= 0 && stride / piece <= UINT32_MAX / 4;
}

uint32_t element_size(int32_t dtype)
{
    return dtype == GDN_DTYPE_F32 ? 4 : 2;
}

Operand in_bytes(const gdn_fused_operand &x)
{
    const int64_t size = element_size(x.dtype);
    return {static_cast<unsigned char *>(x.data), static_cast<uint32_t>(size * x.row_stride),
            static_cast<uint32_t>(size * x.token_stride), static_cast<uint32_t>(size * x.head_stride)};
}

State in_bytes(const gdn_fused_state &x)
{
    const int64_t size = element_size(x.dtype);
    return {static_cast<unsigned char *>(x.data), static_cast<uint32_t>(size * x.slot_stride / 16),
            static_cast<uint32_t>(size * x.head_stride), static_cast<uint32_t>(size * x.v_stride)};
}

ColumnParams column_params(const gdn_decode_params &p, int columns)
{
    ColumnParams a = {};
    a.q = in_bytes(p.q);
    a.k = in_bytes(p.k);
    a.v = in_bytes(p.v);
    a.o = in_bytes(p.o);
    a.gate = in_bytes(p.gate);
    a.beta = in_bytes(p.beta);
    a.initial_state = in_bytes(p.initial_state);
    a.final_state = in_bytes(p.final_state);
    a.token_states = in_bytes(p.token_states);
    a.A_log = p.A_log;
    a.dt_bias = p.dt_bias;
    a.grid = grid_of(p, columns);
    a.head_v_dim = p.head_v_dim;
    a.scale = p.scale;
    a.beta_scale = p.beta_scale;
    a.qk_norm_eps = p.qk_norm_eps;
    a.gate_form = static_cast<int8_t>(p.gate_form);
    a.beta_form = static_cast<int8_t>(p.beta_form);
    a.qk_norm = static_cast<int8_t>(p.qk_norm);
    a.bf16 = p.q.dtype == GDN_DTYPE_BF16;
    a.wide_gate = p.gate.dtype == GDN_DTYPE_F32;
    a.wide_beta = p.beta.dtype == GDN_DTYPE_F32;
    return a;
}

template <typename T, int K, bool k16Bit> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    constexpr int kColumns = ColumnMap<T, K>::kColumns;
    const unsigned blocks = static_cast<unsigned>(num_blocks(p, kColumns));
    const ColumnParams a = column_params(p, kColumns);
    if (p.tokens_per_row == 1 && !p.num_tokens && !p.token_slots) {
        decode_columns_kernel<T, K, k16Bit, true><<<blocks, 32, 0, stream>>>(a, p);
    } else {
        decode_columns_kernel<T, K, k16Bit, false><<<blocks, 32, 0, stream>>>(a, p);
    }
    return cudaPeekAtLastError();
}

template <typename T, int K> cudaError_t launch_of_width(const gdn_decode_params &p, cudaStream_t stream)
{
    return p.q.dtype == GDN_DTYPE_F32 ? launch<T, K, false>(p, stream) : launch<T, K, true>(p, stream);
}

template <typename T> cudaError_t launch_of_dim(const gdn_decode_params &p, cudaStream_t stream)
{
    switch (p.head_k_dim) {
    case 64:
        return launch_of_width<T, 64>(p, stream);
    case 128:
        return launch_of_width<T, 128>(p, stream);
    case 256:
        return launch_of_width<T, 256>(p, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace gdn

int gdn_decode_in_columns(int32_t head_k_dim, const gdn_fused_state *state, uint32_t alignment)
{
    const int64_t per_piece = state->dtype == GDN_DTYPE_F32 ? 4 : 8;
    const int64_t strides[3] = {state->slot_stride, state->head_stride, state->v_stride};
    for (int i = 0; i < 3; ++i) {
        if (strides[i] % per_piece != 0) {
            return 0;
        }
    }
    return (head_k_dim == 64 || head_k_dim == 128 || head_k_dim == 256) && state->k_stride == 1 && alignment >= 16;
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
        fit = fit && gdn::fits(x->slot_stride, 16) && gdn::fits(x->head_stride, 1) && gdn::fits(x->v_stride, 1);
    }
    return fit;
}

int gdn_decode_columns_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    /* The state's types agree: plans with two take the other kernel. */
    switch (decode->initial_state.dtype) {
    case GDN_DTYPE_BF16:
        return gdn::launch_of_dim<__nv_bfloat16>(*decode, stream);
    case GDN_DTYPE_F16:
        return gdn::launch_of_dim<__half>(*decode, stream);
    default:
        return gdn::launch_of_dim<float>(*decode, stream);
    }
}
