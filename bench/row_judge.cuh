/* The token recurrence in float64 on the device, for a few heads, and how far a call's results are from it. */
#ifndef GDN_BENCH_ROW_JUDGE_CUH
#define GDN_BENCH_ROW_JUDGE_CUH

#include "row_inputs.cuh"

struct JudgeInputs {
    const __nv_bfloat16 *q, *k, *v; /* [tokens, heads, kDim] */
    const float *log_decay, *beta;
    const __nv_bfloat16 *o;
    const float *final_state; /* [seqs, heads, V, K] */
    const int64_t *cu_seqlens;
    int32_t num_k_heads, num_v_heads;
    int32_t heads[2]; /* those that are judged */
    double scale;
};

/* Squares of what o and the state are off by, and of what they should be. */
struct Deviation {
    double o_error, o_square, state_error, state_square;
};

static __device__ double sum_of_warp(double x)
{
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

/* One warp a column of V of one sequence and one judged head; lane l has the state's rows l, l + 32, ... of K. */
static __global__ void judge(JudgeInputs in, int32_t num_seqs, Deviation *deviation)
{
    constexpr int kRows = kDim / 32;
    const int lane = threadIdx.x % 32;
    const int64_t warp = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) / 32;
    const int column = static_cast<int>(warp % kDim);
    const int head = in.heads[warp / kDim % 2];
    const int64_t seq = warp / kDim / 2;
    if (seq >= num_seqs) {
        return;
    }
    const int k_head = head / (in.num_v_heads / in.num_k_heads);
    double S[kRows] = {};
    Deviation sum = {};
    for (int64_t t = in.cu_seqlens[seq]; t < in.cu_seqlens[seq + 1]; ++t) {
        const __nv_bfloat16 *const q = in.q + (t * in.num_k_heads + k_head) * kDim;
        const __nv_bfloat16 *const k = in.k + (t * in.num_k_heads + k_head) * kDim;
        const int64_t gate = t * in.num_v_heads + head;
        const int64_t value = gate * kDim + column;
        const double alpha = exp(static_cast<double>(in.log_decay[gate]));
        double k_row[kRows], k_S = 0.0, q_S = 0.0, q_k = 0.0;
        for (int i = 0; i < kRows; ++i) {
            const double q_row = __bfloat162float(q[lane + 32 * i]);
            k_row[i] = __bfloat162float(k[lane + 32 * i]);
            S[i] *= alpha;
            k_S += k_row[i] * S[i];
            q_S += q_row * S[i];
            q_k += q_row * k_row[i];
        }
        k_S = sum_of_warp(k_S);
        const double update = in.beta[gate] * (static_cast<double>(__bfloat162float(in.v[value])) - k_S);
        for (int i = 0; i < kRows; ++i) {
            S[i] += k_row[i] * update;
        }
        const double o = in.scale * sum_of_warp(q_S + q_k * update);
        const double off = o - static_cast<double>(__bfloat162float(in.o[value]));
        sum.o_error += off * off;
        sum.o_square += o * o;
    }
    const float *const state = in.final_state + ((seq * in.num_v_heads + head) * kDim + column) * kDim;
    for (int i = 0; i < kRows; ++i) {
        const double off = S[i] - static_cast<double>(state[lane + 32 * i]);
        sum.state_error += off * off;
        sum.state_square += S[i] * S[i];
    }
    sum.state_error = sum_of_warp(sum.state_error);
    sum.state_square = sum_of_warp(sum.state_square);
    if (lane == 0) {
        atomicAdd(&deviation->o_error, sum.o_error);
        atomicAdd(&deviation->o_square, sum.o_square);
        atomicAdd(&deviation->state_error, sum.state_error);
        atomicAdd(&deviation->state_square, sum.state_square);
    }
}

#endif
