/* What the decode kernels share: a row's metadata, and its tokens' gates and normalised q and k in shared memory. */
#ifndef GDN_CUDA_DECODE_ROW_CUH
#define GDN_CUDA_DECODE_ROW_CUH

#include "decode.h"
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
};

__device__ __forceinline__ Row row_of(const gdn_decode_params &p, int64_t n)
{
    Row row = {n, n, p.num_tokens ? p.num_tokens[n] : p.tokens_per_row, GDN_FAULT_NONE, 0, false};
    if (p.read_slots) {
        row.read = load_index(p.read_slots, p.slots_dtype, n);
        row.write = p.write_slots ? load_index(p.write_slots, p.slots_dtype, n) : 0;
        row.skipped = row.read < 0 || row.write < 0;
        if (!row.skipped && row.read >= p.num_slots) {
            row.code = GDN_FAULT_READ_SLOT;
            row.value = row.read;
        } else if (!row.skipped && p.write_slots && row.write >= p.num_slots) {
            row.code = GDN_FAULT_WRITE_SLOT;
            row.value = row.write;
        }
    }
    if (row.tokens < 0 || row.tokens > p.tokens_per_row) {
        row.code = GDN_FAULT_NUM_TOKENS;
        row.value = row.tokens;
    } else if (p.token_slots && row.code == GDN_FAULT_NONE && !row.skipped) {
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

/* One block writes the whole fault word: the lowest wrong row, or nothing. */
__device__ inline void report_rows(const gdn_decode_params &p)
{
    __shared__ long long lowest;
    if (threadIdx.x == 0) {
        lowest = p.num_rows;
    }
    __syncthreads();
    for (int64_t n = threadIdx.x; n < p.num_rows; n += blockDim.x) {
        if (row_of(p, n).code != GDN_FAULT_NONE) {
            atomicMin(&lowest, static_cast<long long>(n));
            break;
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

/* A token in shared memory: k, q (normalised), then alpha, beta and q.k. */
__device__ __forceinline__ int token_floats(int head_k_dim)
{
    return 2 * head_k_dim + 4;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

/* One warp: token t of row n, for value head `head`, to `out`. */
__device__ __forceinline__ void prepare_token(const gdn_decode_params &p, int64_t n, int t, int head, float *out)
{
    const int lane = threadIdx.x % 32;
    const int K = p.head_k_dim;
    const int k_head = p.tiled_heads ? head % p.num_k_heads : head / p.heads_per_group;
    const int64_t q_at = n * p.q.row_stride + t * p.q.token_stride + k_head * p.q.head_stride;
    const int64_t k_at = n * p.k.row_stride + t * p.k.token_stride + k_head * p.k.head_stride;
    const float gate = load_element(p.gate.data, p.gate.dtype,
                                    n * p.gate.row_stride + t * p.gate.token_stride + head * p.gate.head_stride);
    const float b = load_element(p.beta.data, p.beta.dtype,
                                 n * p.beta.row_stride + t * p.beta.token_stride + head * p.beta.head_stride);
    const bool raw = p.gate_form == GDN_GATE_RAW;
    const float A_log = raw ? p.A_log[head] : 0.0f;
    const float dt_bias = raw && p.dt_bias ? p.dt_bias[head] : 0.0f;

    float kk = 0.0f, qq = 0.0f, qk = 0.0f;
    for (int d = lane; d < K; d += 32) {
        const float k = load_element(p.k.data, p.k.dtype, k_at + d);
        const float q = load_element(p.q.data, p.q.dtype, q_at + d);
        kk = fmaf(k, k, kk);
        qq = fmaf(q, q, qq);
        qk = fmaf(q, k, qk);
        out[d] = k;
        out[K + d] = q;
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
    qk = warp_sum(qk) * k_norm * q_norm;
    if (lane == 0) {
        out[2 * K] = p.gate_form == GDN_GATE_DECAY ? gate : expf(log_decay_of(gate, p.gate_form, A_log, dt_bias));
        out[2 * K + 1] = beta_of(b, p.beta_form, p.beta_scale);
        out[2 * K + 2] = qk;
    }
}

/* The whole block: tokens t0 .. t0 + count - 1 of a row, a warp each. The caller synchronises. */
__device__ __forceinline__ void prepare_tokens(const gdn_decode_params &p, int64_t n, int t0, int count, int head,
                                               float *out)
{
    for (int i = threadIdx.x / 32; i < count; i += blockDim.x / 32) {
        prepare_token(p, n, t0 + i, head, out + i * token_floats(p.head_k_dim));
    }
}

/* The block's place in the grid: block 0 reports, the others each take columns of one head of one row. */
struct Place {
    int64_t row;
    int head;
    int v0;
};

__device__ __forceinline__ Place place_of(const gdn_decode_params &p, int columns)
{
    const int v_blocks = (p.head_v_dim + columns - 1) / columns;
    const unsigned block = blockIdx.x - 1;
    Place place;
    place.v0 = static_cast<int>(block % v_blocks) * columns;
    place.head = static_cast<int>(block / v_blocks % p.num_v_heads);
    place.row = block / v_blocks / p.num_v_heads;
    return place;
}

} // namespace
} // namespace gdn

#endif
