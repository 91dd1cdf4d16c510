/* Where each sequence's checkpoints start when they are asked for every n tokens: the entries of all sequences
 * before it, skipped ones included. */
#include "device/element.cuh"
#include "fused_prefill.h"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

constexpr int kThreads = 1024;

/* One block: a running sum, 1024 sequences at a time. */
__global__ void __launch_bounds__(kThreads) checkpoint_bases_kernel(const gdn_fused_bases b)
{
    __shared__ int64_t warp_sums[kThreads / 32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int64_t before = 0;
    for (int64_t tile = 0; tile < b.num_seqs; tile += kThreads) {
        const int64_t seq = tile + threadIdx.x;
        int64_t count = 0;
        if (seq < b.num_seqs) {
            const int64_t length = b.cu_seqlens ? load_index(b.cu_seqlens, b.cu_seqlens_dtype, seq + 1) -
                                                      load_index(b.cu_seqlens, b.cu_seqlens_dtype, seq)
                                                : b.row_length;
            count = length > 0 && length <= b.total_tokens ? length / b.interval : 0;
        }
        int64_t sum = count;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int64_t left = __shfl_up_sync(0xffffffffu, sum, step);
            sum += lane >= step ? left : 0;
        }
        if (lane == 31) {
            warp_sums[warp] = sum;
        }
        __syncthreads();
        int64_t all = 0;
#pragma unroll 1
        for (int w = 0; w < kThreads / 32; ++w) {
            sum += w < warp ? warp_sums[w] : 0;
            all += warp_sums[w];
        }
        if (seq < b.num_seqs) {
            b.bases[seq] = before + sum - count;
        }
        before += all;
        __syncthreads();
    }
}

} // namespace
} // namespace gdn

int gdn_fused_bases_launch(const gdn_fused_bases *bases, struct CUstream_st *stream)
{
    gdn::checkpoint_bases_kernel<<<1, gdn::kThreads, 0, stream>>>(*bases);
    return cudaPeekAtLastError();
}
