/* Kernels that tests need. */
#include <cuda_runtime.h>
#include <stdint.h>

namespace
{

__global__ void spin_kernel(int64_t nanoseconds)
{
    uint64_t start;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (static_cast<int64_t>(now - start) < nanoseconds);
}

__global__ void __launch_bounds__(1024) dirty_kernel(float *sink)
{
    extern __shared__ float shared[];
    const float nan = __uint_as_float(0x7fffffffu);
    float values[32];
    for (int i = 0; i < 32; i++) {
        values[i] = nan;
    }
    for (int i = threadIdx.x; i < 12288; i += blockDim.x) {
        shared[i] = nan;
    }
    __syncthreads();
    float sum = shared[threadIdx.x];
    for (int i = 0; i < 32; i++) {
        sum += values[i];
    }
    if (sum == 1.0f) {
        *sink = sum; /* never: a NaN equals nothing */
    }
}

__global__ void break_kernel(int *nowhere)
{
    *nowhere = 1;
}

} // namespace

extern "C" void gpu_spin(cudaStream_t stream, int milliseconds)
{
    spin_kernel<<<1, 1, 0, stream>>>(static_cast<int64_t>(milliseconds) * 1000000);
}

extern "C" void gpu_dirty(cudaStream_t stream)
{
    dirty_kernel<<<512, 1024, 12288 * sizeof(float), stream>>>(nullptr);
}

extern "C" void gpu_break(cudaStream_t stream)
{
    break_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int *>(UINT64_C(16)));
}
