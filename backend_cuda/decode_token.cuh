/* A token of the column kernels: where its numbers are, their loads, and the arithmetic that decode.cu's head describes. */
#ifndef GDN_CUDA_DECODE_TOKEN_CUH
#define GDN_CUDA_DECODE_TOKEN_CUH

#include "decode_columns.cuh"
#include "decode_row.cuh"

#include <cuda_runtime.h>
#include <type_traits>

namespace gdn
{
namespace
{

template <typename Map> constexpr int kState = Map::kDepth *Map::kPerLane; /* elements of a state in a lane */

/* Blocks that a multiprocessor can hold of any kind. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870)
constexpr int kMostBlocks = 16;
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int kMostBlocks = 24;
#else
constexpr int kMostBlocks = 32;
#endif

/* The bound of a kernel of which a multiprocessor is to hold so many blocks, as far as registers go. */
constexpr int resident(int blocks)
{
    return blocks < kMostBlocks ? blocks : kMostBlocks;
}

/* An operand and a state as these kernels want them: strides in bytes, of 32 bits, so that a product is one instruction. */
struct Operand {
    unsigned char *data;
    uint32_t row, head; /* strides */

    __device__ __forceinline__ unsigned char *at(uint32_t n, uint32_t h) const
    {
        return data + static_cast<uint64_t>(n) * row + static_cast<uint64_t>(h) * head;
    }
};

struct State {
    unsigned char *data;
    uint32_t slot; /* strides; this one in pieces of 16 bytes */
    uint32_t head;
    uint32_t line; /* from a column, or a row k, to the next: see the maps */

    /* The lane's first element of a block's columns, which begin at v0. */
    template <typename Map> __device__ __forceinline__ unsigned char *at(uint32_t n, uint32_t h, uint32_t v0) const
    {
        return data + 16 * (static_cast<uint64_t>(n) * slot) + static_cast<uint64_t>(h) * head + Map::offset(v0, line);
    }
};

/* What the numbers of a token are. */
struct Forms {
    float beta_scale, qk_norm_eps;
    int8_t gate, beta, qk_norm;
    bool bf16, wide_gate, wide_beta; /* 16-bit numbers are bf16, not fp16; gate, beta are float32 */
};

/* What the kernels are told beside the rows' metadata, in the order in which it is wanted: a warp that is alone waits for every line of
 * its parameters. */
struct ColumnParams {
    Grid grid;
    Operand k, q, v, gate, beta;
    const float *A_log, *dt_bias;
    State initial_state;
    uint32_t head_v_dim;
    Forms forms;
    float scale;
    Operand o;
    State final_state;
};

/* What a lane works on: columns of one value head of a row, of which one is its own, and the row's first token. */
struct ColumnPlace {
    uint32_t row, head, v0; /* v0: the block's first column */
    int columns; /* that are there, from the lane's first on */
    bool has_own; /* whether its own is */
    uint32_t own; /* bytes from the head's first number of v or o to that column's */
    const unsigned char *k, *q, *v, *gate, *beta; /* v of its own column */
};

template <typename Map, bool k16Bit> __device__ __forceinline__ ColumnPlace column_place(const ColumnParams &c)
{
    const Place place = place_of(c.grid);
    ColumnPlace at;
    at.row = static_cast<uint32_t>(place.row);
    at.head = place.head;
    at.v0 = place.v0;
    at.columns = static_cast<int>(c.head_v_dim - at.v0 - Map::first_column());
    const uint32_t own = own_column<Map>() * Map::kApart; /* from the lane's first */
    at.has_own = static_cast<int>(own) < at.columns;
    at.own = (at.v0 + Map::first_column() + own) * (k16Bit ? 2 : 4);
    at.k = c.k.at(at.row, place.k_head);
    at.q = c.q.at(at.row, place.k_head);
    at.v = c.v.at(at.row, at.head) + at.own;
    at.gate = c.gate.at(at.row, at.head);
    at.beta = c.beta.at(at.row, at.head);
    return at;
}

/* One token's q, k and v on their way to a lane: v of the lane's own column. */
template <typename Map, bool k16Bit> struct RawToken {
    RawVector<Map, k16Bit> k, q;
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

/* Decay and write strength of a token. */
struct RawGates {
    uint32_t gate, beta; /* bits */
    float A_log, dt_bias;

    __device__ __forceinline__ void load(const Forms &forms, const unsigned char *gate_at, const unsigned char *beta_at)
    {
        gate = forms.wide_gate ? load_bits<false>(gate_at, 0) : load_bits<true>(gate_at, 0);
        beta = forms.wide_beta ? load_bits<false>(beta_at, 0) : load_bits<true>(beta_at, 0);
    }

    __device__ __forceinline__ void load_head(const float *A_logs, const float *dt_biases, uint32_t head)
    {
        A_log = 0.0f;
        dt_bias = 0.0f;
        if (A_logs) {
            A_log = A_logs[head];
        }
        if (dt_biases) {
            dt_bias = dt_biases[head];
        }
    }
};

struct Gates {
    float alpha, beta;

    __device__ __forceinline__ void take(const Forms &forms, const RawGates &raw)
    {
        alpha = value_of(raw.gate, forms.wide_gate, forms.bf16);
        if (forms.gate != GDN_GATE_DECAY) {
            alpha = token_decay(log_decay_of(alpha, forms.gate, raw.A_log, raw.dt_bias));
        }
        beta = beta_of(value_of(raw.beta, forms.wide_beta, forms.bf16), forms.beta, forms.beta_scale);
    }

  private:
    static __device__ __forceinline__ float value_of(uint32_t bits, bool wide, bool bf16)
    {
        return wide ? __uint_as_float(bits) : float_of_bits<true>(bits, bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16);
    }
};

/* The lane's part of the block's columns in float32. */
template <typename Map> struct Columns {
    float s[Map::kDepth][Map::kPerLane];
};

/* One token, ready to be used. k and q are as given: their norms are factors of the sums over them. */
template <typename Map, bool k16Bit> struct Token {
    float k[Map::kPerLane], q[Map::kPerLane];
    float v; /* of the lane's own column */
    float alpha, beta, k_norm, q_norm, qk;

    __device__ __forceinline__ void take(const Forms &forms, const RawToken<Map, k16Bit> &raw, const Gates &gates)
    {
        raw.k.unpack(k, forms.bf16);
        raw.q.unpack(q, forms.bf16);
        v = float_of_bits<k16Bit>(raw.v, forms.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16);
        alpha = gates.alpha;
        beta = gates.beta;
        float sums[3] = {product(q, k), product(k, k), product(q, q)};
        k_norm = 1.0f;
        q_norm = 1.0f;
        if (forms.qk_norm == GDN_QK_NORM_NONE) {
            lane_sums<Map, 1>(sums);
        } else {
            lane_sums<Map, 3>(sums);
            k_norm = norm_factor(sums[1], forms.qk_norm, forms.qk_norm_eps);
            q_norm = norm_factor(sums[2], forms.qk_norm, forms.qk_norm_eps);
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
    __device__ __forceinline__ float step(Columns<Map> &state, float scale) const
    {
        float sums[2 * Map::kDepth]; /* k.s of each column, then q.s */
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            sums[c] = product(k, state.s[c]);
            sums[Map::kDepth + c] = product(q, state.s[c]);
        }
        const float2 own = scatter_sums<Map>(sums);
        const float u = beta * (v - alpha * times(k_norm, own.x));
        const float o = scale * fmaf(qk, u, alpha * times(q_norm, own.y));
        const float own_uk = u * k_norm;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            const float uk = from_owner<Map>(own_uk, c);
#pragma unroll
            for (int i = 0; i < Map::kPerLane; ++i) {
                state.s[c][i] = fmaf(uk, k[i], alpha * state.s[c][i]);
            }
        }
        return o;
    }
};

/* On the host: the parameters, and the kernel's template arguments. */

inline uint32_t element_size(int32_t dtype)
{
    return dtype == GDN_DTYPE_F32 ? 4 : 2;
}

inline Operand in_bytes(const gdn_fused_operand &x)
{
    const int64_t size = element_size(x.dtype);
    return {static_cast<unsigned char *>(x.data), static_cast<uint32_t>(size * x.row_stride),
            static_cast<uint32_t>(size * x.head_stride)};
}

inline State in_bytes(const gdn_fused_state &x)
{
    const int64_t size = element_size(x.dtype);
    return {static_cast<unsigned char *>(x.data), static_cast<uint32_t>(size * x.slot_stride / 16),
            static_cast<uint32_t>(size * x.head_stride),
            static_cast<uint32_t>(size * (x.k_stride == 1 ? x.v_stride : x.k_stride))};
}

inline ColumnParams column_params(const gdn_decode_params &p, int columns)
{
    ColumnParams a = {};
    a.grid = grid_of(p, columns);
    a.k = in_bytes(p.k);
    a.q = in_bytes(p.q);
    a.v = in_bytes(p.v);
    a.gate = in_bytes(p.gate);
    a.beta = in_bytes(p.beta);
    a.A_log = p.A_log;
    a.dt_bias = p.dt_bias;
    a.initial_state = in_bytes(p.initial_state);
    a.head_v_dim = static_cast<uint32_t>(p.head_v_dim);
    a.forms.beta_scale = p.beta_scale;
    a.forms.qk_norm_eps = p.qk_norm_eps;
    a.forms.gate = static_cast<int8_t>(p.gate_form);
    a.forms.beta = static_cast<int8_t>(p.beta_form);
    a.forms.qk_norm = static_cast<int8_t>(p.qk_norm);
    a.forms.bf16 = p.q.dtype == GDN_DTYPE_BF16;
    a.forms.wide_gate = p.gate.dtype == GDN_DTYPE_F32;
    a.forms.wide_beta = p.beta.dtype == GDN_DTYPE_F32;
    a.scale = p.scale;
    a.o = in_bytes(p.o);
    a.final_state = in_bytes(p.final_state);
    return a;
}

template <typename Map, typename Launch> cudaError_t with_width(const gdn_decode_params &p, const Launch &launch)
{
    return p.q.dtype == GDN_DTYPE_F32 ? launch(Map(), std::false_type()) : launch(Map(), std::true_type());
}

template <typename T, typename Launch> cudaError_t with_dim(const gdn_decode_params &p, const Launch &launch)
{
    switch (p.head_k_dim) {
    case 64:
        return with_width<ColumnMap<T, 64>>(p, launch);
    case 128:
        return with_width<ColumnMap<T, 128>>(p, launch);
    case 256:
        return with_width<ColumnMap<T, 256>>(p, launch);
    default:
        return cudaErrorInvalidValue;
    }
}

/* launch(map, whether q, k, v and o have 16 bits), for the map of the call's states; gdn_decode_layout_of has said that there is one. */
template <typename Launch> cudaError_t with_map(const gdn_decode_params &p, const Launch &launch)
{
    if (p.initial_state.k_stride != 1) {
        return p.head_k_dim == 64 ? with_width<RowMap<64>>(p, launch) : with_width<RowMap<128>>(p, launch);
    }
    switch (p.initial_state.dtype) {
    case GDN_DTYPE_BF16:
        return with_dim<__nv_bfloat16>(p, launch);
    case GDN_DTYPE_F16:
        return with_dim<__half>(p, launch);
    default:
        return with_dim<float>(p, launch);
    }
}

template <typename... Args>
cudaError_t launch_columns(void (*kernel)(Args...), const gdn_decode_params &p, int columns, cudaStream_t stream,
                           const std::decay_t<Args> &...args)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(num_blocks(p, columns)));
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = p.overlap ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

} // namespace
} // namespace gdn

#endif
