/* Launches of the Hopper prefill's two kernels. */
#include "prep_kernel.cuh"
#include "state_kernel.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace sm90
{
namespace
{

/* Tiles start at the first multiple of 1024 bytes inside what a block is given. */
constexpr size_t kAlignment = 1024;

template <typename Kernel>
cudaError_t launch(Kernel kernel, const gdn_sm90_prefill &p, int64_t blocks, int threads, size_t smem,
                   cudaStream_t stream)
{
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
    if (error != cudaSuccess) {
        return error;
    }
    kernel<<<static_cast<unsigned>(blocks), threads, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

} // namespace
} // namespace sm90
} // namespace gdn

using namespace gdn::sm90;

size_t gdn_sm90_prep_smem(void)
{
    return PrepMap::kBytes + kAlignment;
}

size_t gdn_sm90_state_output_smem(void)
{
    return StateMap::kBytes + kAlignment;
}

int gdn_sm90_prep_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream)
{
    const gdn_sm90_prefill &p = *prefill;
    const int64_t groups = (p.heads_per_group + p.heads_per_job - 1) / p.heads_per_job;
    const int64_t jobs = p.wave_slots * groups * p.num_k_heads;
    const int64_t blocks = jobs < 3 * num_sms ? jobs : 3 * num_sms;
    return dtype == GDN_DTYPE_BF16
               ? launch(prep_kernel<__nv_bfloat16>, p, blocks, kPrepThreads, gdn_sm90_prep_smem(), stream)
               : launch(prep_kernel<__half>, p, blocks, kPrepThreads, gdn_sm90_prep_smem(), stream);
}

int gdn_sm90_state_output_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                                 struct CUstream_st *stream)
{
    const gdn_sm90_prefill &p = *prefill;
    const int64_t seqs = p.num_seqs < p.wave_slots ? p.num_seqs : p.wave_slots;
    const int64_t items = 2 * seqs * p.num_v_heads;
    const int64_t blocks = items < num_sms ? items : num_sms;
    return dtype == GDN_DTYPE_BF16 ? launch(state_output_kernel<__nv_bfloat16>, p, blocks, kStateThreads,
                                            gdn_sm90_state_output_smem(), stream)
                                   : launch(state_output_kernel<__half>, p, blocks, kStateThreads,
                                            gdn_sm90_state_output_smem(), stream);
}
