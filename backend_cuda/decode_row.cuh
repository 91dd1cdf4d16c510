/* What the decode kernels share: a row's metadata, and its tokens' gates and normalised q and k in shared memory. */
#ifndef GDN_CUDA_DECODE_ROW_CUH
#define GDN_CUDA_DECODE_ROW_CUH

#include "decode.h"
#include "device/divisor.cuh"
#include "device/element.cuh"
#include "device/gates.cuh"

namespace gdn
{
namespace
{

struct Row {
    int64_t read, write; /* slots */
    int32_t tokens;
    int32_t code; /* gdn_fault: wrong, and to be left alone */
    int64_t value; /* the wrong one */
    bool skipped; /* wrong, or by a negative slot */
    bool has_initial_state;
};

/* A row's metadata on their way: what does not depend on them can be loaded before they are looked at. */
struct RowWords {
    uint2 read, write;
    int32_t tokens;
    uint8_t has;
};

__device__ __forceinline__ bool has_two_slot_arrays(const gdn_decode_params &p)
{
    return p.write_slots && p.write_slots != p.read_slots;
}

__device__ __forceinline__ RowWords load_row(const gdn_decode_params &p, int64_t n)
{
    const int words = p.slots_dtype == GDN_DTYPE_I64 ? 2 : 1;
    RowWords row = {make_uint2(0, 0), make_uint2(0, 0), p.tokens_per_row, 1};
    if (p.read_slots) {
        row.read = load_words(p.read_slots, words, n);
    }
    if (has_two_slot_arrays(p)) {
        row.write = load_words(p.write_slots, words, n);
    }
    if (p.num_tokens) {
        row.tokens = p.num_tokens[n];
    }
    if (p.has_initial_state) {
        row.has = p.has_initial_state[n];
    }
    return row;
}

/* Skipped by a slot alone, which is all that can be wrong where every row has one token and no token states. */
__device__ __forceinline__ Row judge_slots(const gdn_decode_params &p, int64_t n, const RowWords &loaded)
{
    const int words = p.slots_dtype == GDN_DTYPE_I64 ? 2 : 1;
    Row row = {n, n, loaded.tokens, GDN_FAULT_NONE, 0, false, p.initial_state.data != nullptr && loaded.has != 0};
    if (p.read_slots) {
        row.read = index_of(loaded.read, words);
        row.write = has_two_slot_arrays(p) ? index_of(loaded.write, words) : p.write_slots ? row.read : n;
        /* As unsigned numbers, negative ones are too large as well. */
        const uint64_t slots = static_cast<uint64_t>(p.num_slots);
        row.skipped =
            static_cast<uint64_t>(row.read) >= slots || (p.write_slots && static_cast<uint64_t>(row.write) >= slots);
    }
    return row;
}

__device__ __forceinline__ Row judge_row(const gdn_decode_params &p, int64_t n, const RowWords &loaded)
{
    Row row = judge_slots(p, n, loaded);
    if (row.skipped && row.read >= 0 && row.write >= 0) {
        const bool read = row.read >= p.num_slots;
        row.code = read ? GDN_FAULT_READ_SLOT : GDN_FAULT_WRITE_SLOT;
        row.value = read ? row.read : row.write;
    }
    if (row.tokens < 0 || row.tokens > p.tokens_per_row) {
        row.code = GDN_FAULT_NUM_TOKENS;
        row.value = row.tokens;
    } else if (p.token_slots && !row.skipped) {
        for (int t = 0; t < row.tokens; ++t) {
            const int64_t slot = load_index(p.token_slots, p.slots_dtype, n * p.tokens_per_row + t);
            if (slot >= p.num_slots) {
                row.code = GDN_FAULT_TOKEN_SLOT;
                row.value = slot;
                break;
            }
        }
    }
    row.skipped = row.skipped || row.code != GDN_FAULT_NONE;
    return row;
}

__device__ __forceinline__ Row row_of(const gdn_decode_params &p, int64_t n)
{
    return judge_row(p, n, load_row(p, n));
}

/* One block writes the whole fault word: the lowest wrong row, or nothing. */
__device__ inline void report_rows(const gdn_decode_params &p)
{
    __shared__ long long lowest;
    if (threadIdx.x == 0) {
        lowest = p.num_rows;
    }
    __syncthreads();
    constexpr int kAtOnce = 4; /* rows whose metadata a thread has under way */
    for (int64_t first = threadIdx.x; first < p.num_rows; first += kAtOnce * blockDim.x) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int64_t n = first + i * static_cast<int64_t>(blockDim.x);
            if (n < p.num_rows && row_of(p, n).code != GDN_FAULT_NONE) {
                atomicMin(&lowest, static_cast<long long>(n));
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        gdn_metadata_fault fault = {};
        if (lowest < p.num_rows) {
            const Row row = row_of(p, lowest);
            fault.code = row.code;
            fault.row = lowest;
            fault.value = row.value;
        }
        *p.fault = fault;
    }
}

/* A grid of blocks that each take `columns` columns of one value head of one row; block 0 reports. */
struct Grid {
    Divisor by_v_blocks, by_v_heads, by_k_heads;
    int v_blocks, columns, num_v_heads;
    int wrap; /* tiled heads: the number of key heads; 0: groups of value heads side by side */
};

inline Grid grid_of(const gdn_decode_params &p, int columns)
{
    const int v_blocks = (p.head_v_dim + columns - 1) / columns;
    return {divisor_of(v_blocks),
            divisor_of(p.num_v_heads),
            divisor_of(p.tiled_heads ? p.num_k_heads : p.heads_per_group),
            v_blocks,
            columns,
            p.num_v_heads,
            p.tiled_heads ? p.num_k_heads : 0};
}

inline int64_t num_blocks(const gdn_decode_params &p, int columns)
{
    return p.num_rows * p.num_v_heads * ((p.head_v_dim + columns - 1) / columns) + 1;
}

/* A block's place in the grid. */
struct Place {
    int64_t row;
    int head, k_head;
    int v0;
};

__device__ __forceinline__ Place place_of(const Grid &grid)
{
    const unsigned block = blockIdx.x - 1;
    const unsigned head_of_row = divide(block, grid.by_v_blocks); /* row * num_v_heads + head */
    const unsigned row = divide(head_of_row, grid.by_v_heads);
    Place place;
    place.row = row;
    place.head = static_cast<int>(head_of_row - row * grid.num_v_heads);
    place.v0 = static_cast<int>(block - head_of_row * grid.v_blocks) * grid.columns;
    const int group = static_cast<int>(divide(place.head, grid.by_k_heads));
    place.k_head = grid.wrap ? place.head - group * grid.wrap : group;
    return place;
}

/* A token in shared memory: k, q (normalised), alpha, beta, q.k and a gap, then v of the block's columns. */
__host__ __device__ __forceinline__ int token_floats(int head_k_dim)
{
    return 2 * head_k_dim + 4 + GDN_DECODE_MAX_COLUMNS;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

/* A gate or beta that load_halves has loaded. */
__device__ __forceinline__ float gate_value(uint32_t bits, int32_t dtype)
{
    return dtype == GDN_DTYPE_F32 ? __uint_as_float(bits) : float_of_bits<true>(bits, dtype);
}

constexpr int kTokenLoads = 4; /* of q and of k that a lane has under way at once */

/* One token's q, k, v and gates on their way, a warp's share of them: `issue` starts the loads, `finish` puts the
 * prepared token into shared memory. */
template <bool k16Bit> struct TokenLoads {
    int64_t q_at, k_at;
    uint32_t k_bits[kTokenLoads], q_bits[kTokenLoads], v_bits[GDN_DECODE_MAX_COLUMNS / 32];
    uint32_t gate_bits, beta_bits;
    float A_log, dt_bias;

    __device__ __forceinline__ void load_group(const gdn_decode_params &p, int d0)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < kTokenLoads; ++i) {
            const int d = min(d0 + 32 * i + lane, p.head_k_dim - 1);
            k_bits[i] = load_bits<k16Bit>(p.k.data, k_at + d);
            q_bits[i] = load_bits<k16Bit>(p.q.data, q_at + d);
        }
    }

    /* Token t of a row, for `columns` columns of V of one value head. */
    __device__ __forceinline__ void issue(const gdn_decode_params &p, const Place &place, int t, int columns)
    {
        const int lane = threadIdx.x % 32;
        const int head = place.head;
        q_at = place.row * p.q.row_stride + t * p.q.token_stride + place.k_head * p.q.head_stride;
        k_at = place.row * p.k.row_stride + t * p.k.token_stride + place.k_head * p.k.head_stride;
        gate_bits = load_halves(p.gate.data, p.gate.dtype == GDN_DTYPE_F32 ? 2 : 1,
                                place.row * p.gate.row_stride + t * p.gate.token_stride + head * p.gate.head_stride);
        beta_bits = load_halves(p.beta.data, p.beta.dtype == GDN_DTYPE_F32 ? 2 : 1,
                                place.row * p.beta.row_stride + t * p.beta.token_stride + head * p.beta.head_stride);
        A_log = 0.0f;
        dt_bias = 0.0f;
        if (p.A_log) {
            A_log = p.A_log[head];
        }
        if (p.dt_bias) {
            dt_bias = p.dt_bias[head];
        }
        load_group(p, 0);
        const int64_t v_at = place.row * p.v.row_stride + t * p.v.token_stride + head * p.v.head_stride;
#pragma unroll
        for (int i = 0; i < GDN_DECODE_MAX_COLUMNS / 32; ++i) {
            v_bits[i] = 0;
            if (32 * i + lane < columns) {
                v_bits[i] = load_bits<k16Bit>(p.v.data, v_at + min(place.v0 + 32 * i + lane, p.head_v_dim - 1));
            }
        }
    }

    __device__ __forceinline__ void finish(const gdn_decode_params &p, float *out)
    {
        const int lane = threadIdx.x % 32;
        const int K = p.head_k_dim;
        float kk = 0.0f, qq = 0.0f, qk = 0.0f;
        for (int d0 = 0; d0 < K; d0 += 32 * kTokenLoads) {
            if (d0 > 0) {
                load_group(p, d0);
            }
#pragma unroll
            for (int i = 0; i < kTokenLoads; ++i) {
                const int d = d0 + 32 * i + lane;
                if (d < K) {
                    const float k = float_of_bits<k16Bit>(k_bits[i], p.k.dtype);
                    const float q = float_of_bits<k16Bit>(q_bits[i], p.q.dtype);
                    kk = fmaf(k, k, kk);
                    qq = fmaf(q, q, qq);
                    qk = fmaf(q, k, qk);
                    out[d] = k;
                    out[K + d] = q;
                }
            }
        }
        float k_norm = 1.0f, q_norm = 1.0f;
        if (p.qk_norm != GDN_QK_NORM_NONE) {
            k_norm = norm_factor(warp_sum(kk), p.qk_norm, p.qk_norm_eps);
            q_norm = norm_factor(warp_sum(qq), p.qk_norm, p.qk_norm_eps);
            for (int d = lane; d < K; d += 32) {
                out[d] *= k_norm;
                out[K + d] *= q_norm;
            }
        }
        /* A vector longer than float32 can say has the factor 0, and may have any q.k. */
        qk = warp_sum(qk);
        qk = k_norm == 0.0f || q_norm == 0.0f ? 0.0f : qk * k_norm * q_norm;
        if (lane == 0) {
            const float gate = gate_value(gate_bits, p.gate.dtype);
            out[2 * K] =
                p.gate_form == GDN_GATE_DECAY ? gate : token_decay(log_decay_of(gate, p.gate_form, A_log, dt_bias));
            out[2 * K + 1] = beta_of(gate_value(beta_bits, p.beta.dtype), p.beta_form, p.beta_scale);
            out[2 * K + 2] = qk;
        }
#pragma unroll
        for (int i = 0; i < GDN_DECODE_MAX_COLUMNS / 32; ++i) {
            out[2 * K + 4 + 32 * i + lane] = float_of_bits<k16Bit>(v_bits[i], p.v.dtype);
        }
    }
};

/* The whole block: tokens t0 .. t0 + count - 1 of a row, a warp each. The caller synchronises. */
template <bool k16Bit>
__device__ __forceinline__ void prepare_tokens(const gdn_decode_params &p, const Place &place, int t0, int count,
                                               int columns, float *out)
{
    for (int i = threadIdx.x / 32; i < count; i += blockDim.x / 32) {
        TokenLoads<k16Bit> loads;
        loads.issue(p, place, t0 + i, columns);
        loads.finish(p, out + i * token_floats(p.head_k_dim));
    }
}

} // namespace
} // namespace gdn

#endif
