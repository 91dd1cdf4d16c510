/* (I + L)^-1 of many C x C matrices, by blocked substitution in float32.
 *
 * With 16 x 16 blocks, X = (I + L)^-1 in place of L:
 *     1. X_bb of every diagonal block at once: a thread a column, forward substitution in registers
 *     2. for block rows I = 1, 2, ...:  X_IJ = -X_II sum_{J <= M < I} L_IM X_MJ
 * No power of L is ever formed: on repeated keys those reach binomials of 1e18, while X stays small.
 */
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kBlock = 16;

/* A block a matrix. Works in shared memory where the matrix fits, else in place. */
template <bool kShared>
__global__ void __launch_bounds__(kThreads, 3) inverse_kernel(float *matrices, int64_t count, int32_t C)
{
    extern __shared__ float shared[];
    float *const T = shared; /* [16, C] */
    const int32_t num_blocks = (C + kBlock - 1) / kBlock;
    const int32_t ld = kShared ? C + 1 : C;
    const int tid = threadIdx.x;

    for (int64_t matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
        float *const global = matrices + matrix * C * C;
        float *const X = kShared ? shared + kBlock * C : global;
        if (kShared) {
            for (int32_t e = tid; e < C * C; e += kThreads) {
                X[e / C * ld + e % C] = global[e];
            }
        }
        __syncthreads();

        /* 1. Diagonal blocks. C <= 256, so that one thread a column is enough. */
        const int32_t b0 = tid / kBlock * kBlock;
        const int32_t j = tid % kBlock;
        float x[kBlock];
        if (b0 + j < C) {
#pragma unroll
            for (int i = 0; i < kBlock; i++) {
                float sum = 0.0f;
                if (i > j && b0 + i < C) {
                    const float *const row = X + static_cast<int64_t>(b0 + i) * ld + b0;
                    sum = row[j];
#pragma unroll
                    for (int m = 0; m < i; m++) {
                        if (m > j) {
                            sum += row[m] * x[m];
                        }
                    }
                }
                x[i] = i == j ? 1.0f : -sum;
            }
        }
        __syncthreads();
        if (b0 + j < C) {
#pragma unroll
            for (int i = 0; i < kBlock; i++) {
                if (b0 + i < C) {
                    X[static_cast<int64_t>(b0 + i) * ld + b0 + j] = i < j ? 0.0f : x[i];
                }
            }
        }
        __syncthreads();

        /* 2. Block rows. */
        for (int32_t block = 1; block < num_blocks; block++) {
            const int32_t r0 = block * kBlock;
            const int32_t rows = C - r0 < kBlock ? C - r0 : kBlock;
            for (int32_t e = tid; e < rows * r0; e += kThreads) {
                const int32_t i = e / r0;
                const int32_t col = e - i * r0;
                const float *const L = X + static_cast<int64_t>(r0 + i) * ld;
                float sum = 0.0f;
                for (int32_t m = col; m < r0; m++) {
                    sum += L[m] * X[static_cast<int64_t>(m) * ld + col];
                }
                T[i * C + col] = sum;
            }
            __syncthreads();
            for (int32_t e = tid; e < rows * r0; e += kThreads) {
                const int32_t i = e / r0;
                const int32_t col = e - i * r0;
                const float *const diagonal = X + static_cast<int64_t>(r0 + i) * ld + r0;
                float sum = 0.0f;
                for (int32_t m = 0; m <= i; m++) {
                    sum += diagonal[m] * T[m * C + col];
                }
                X[static_cast<int64_t>(r0 + i) * ld + col] = -sum;
            }
            __syncthreads();
        }

        for (int32_t e = tid; e < C * C; e += kThreads) {
            const int32_t i = e / C;
            const int32_t col = e - i * C;
            if (kShared || i < col) {
                global[e] = i < col ? 0.0f : X[i * ld + col];
            }
        }
        __syncthreads();
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_inverse(const gdn_device *device, const gdn_prefill_run *run, float *A, int64_t count,
                            int32_t chunk_size)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    if (chunk_size > kThreads) {
        return gdn_fail(GDN_ERROR_INTERNAL, "inverse: chunk size %d, at most %d", chunk_size, kThreads);
    }
    const size_t row_bytes = kBlock * static_cast<size_t>(chunk_size) * sizeof(float);
    const size_t bytes = row_bytes + static_cast<size_t>(chunk_size) * (chunk_size + 1) * sizeof(float);
    const int most = static_cast<int>(gdn_cuda_device_of(device)->shared_bytes_per_block);
    if (bytes <= static_cast<size_t>(most)) {
        GDN_CUDA_TRY(cudaFuncSetAttribute(inverse_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
        inverse_kernel<true><<<grid_size(count), kThreads, bytes, stream_of(run)>>>(A, count, chunk_size);
    } else {
        inverse_kernel<false><<<grid_size(count), kThreads, row_bytes, stream_of(run)>>>(A, count, chunk_size);
    }
    return gdn_cuda_launched("inverse");
}
