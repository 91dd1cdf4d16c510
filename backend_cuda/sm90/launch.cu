/* Launches of the Hopper prefill's kernels. */
#include "fused_gates.cuh"
#include "fused_kernel.cuh"
#include "join_kernel.cuh"
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
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
    if (error != cudaSuccess) {
        return error;
    }
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) {
        return error;
    }
    kernel<<<static_cast<unsigned>(blocks), threads, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

/* Sequences that a wave can have. */
int64_t sequences(const gdn_sm90_prefill &p)
{
    return p.num_seqs < p.wave_slots ? p.num_seqs : p.wave_slots;
}

template <Form kForm> int64_t state_blocks(const gdn_sm90_prefill &p, int32_t num_sms)
{
    const int64_t items =
        sequences(p) * p.max_segments * p.num_v_heads * (2 / kTiles<kForm>)*(kHasOutputs<kForm> ? 1 : 2);
    const int64_t most = static_cast<int64_t>(num_sms) * StateBlock<kForm>::kPerMultiprocessor;
    return items < most ? items : most;
}

template <typename T, Form kForm>
cudaError_t launch_state(const gdn_sm90_prefill &p, int64_t blocks, cudaStream_t stream)
{
    return launch(state_kernel<T, kForm>, p, blocks, StateBlock<kForm>::kThreads, StateMap<kForm>::kBytes + kAlignment,
                  stream);
}

template <Form kForm>
cudaError_t launch_state_of(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream)
{
    const int64_t blocks = state_blocks<kForm>(p, num_sms);
    return dtype == GDN_DTYPE_BF16 ? launch_state<__nv_bfloat16, kForm>(p, blocks, stream)
                                   : launch_state<__half, kForm>(p, blocks, stream);
}

template <int kColumns> cudaError_t launch_join(const gdn_sm90_prefill &p, int64_t heads, cudaStream_t stream)
{
    const int64_t items = heads * (GDN_SM90_DIM / kColumns);
    constexpr int64_t kMost = 1024;
    return launch(join_kernel<kColumns>, p, items < kMost ? items : kMost, kJoinThreads,
                  JoinMap<kColumns>::kBytes + kAlignment, stream);
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
    return StateMap<Form::kHalf>::kBytes + kAlignment;
}

size_t gdn_sm90_fused_smem(void)
{
    return StateMap<Form::kFused>::kBytes + kAlignment;
}

int gdn_sm90_fused_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream)
{
    const gdn_sm90_prefill &p = *prefill;
    const int64_t groups = (p.num_v_heads + kGatesWarps - 1) / kGatesWarps;
    const int64_t chunks = p.wave_slots * groups, gates_blocks = chunks < 8 * num_sms ? chunks : 8 * num_sms;
    const int64_t items = static_cast<int64_t>(p.num_seqs) * p.num_v_heads;
    const int64_t blocks = items < num_sms ? items : num_sms;
    const cudaError_t error = launch(gates_kernel, p, gates_blocks, 32 * kGatesWarps,
                                     kGatesWarps * PrepMap::kGatesBytes + kAlignment, stream);
    if (error != cudaSuccess) {
        return error;
    }
    return dtype == GDN_DTYPE_BF16
               ? launch(fused_kernel<__nv_bfloat16>, p, blocks, FusedBlock::kThreads, gdn_sm90_fused_smem(), stream)
               : launch(fused_kernel<__half>, p, blocks, FusedBlock::kThreads, gdn_sm90_fused_smem(), stream);
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

int gdn_sm90_state_only_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                               struct CUstream_st *stream)
{
    return launch_state_of<Form::kStateOnly>(*prefill, dtype, num_sms, stream);
}

int gdn_sm90_state_output_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                                 struct CUstream_st *stream)
{
    return prefill->whole_V ? launch_state_of<Form::kWhole>(*prefill, dtype, num_sms, stream)
                            : launch_state_of<Form::kHalf>(*prefill, dtype, num_sms, stream);
}

/* Blocks of 16 columns read E half as often, those of 8 take half as long: where all of them run at once, the latter. */
int gdn_sm90_join_launch(const gdn_sm90_prefill *prefill, int32_t num_sms, struct CUstream_st *stream)
{
    const int64_t heads = sequences(*prefill) * prefill->num_v_heads;
    return heads * (GDN_SM90_DIM / 8) <= num_sms ? launch_join<8>(*prefill, heads, stream)
                                                 : launch_join<16>(*prefill, heads, stream);
}

int gdn_sm90_plan_waves_launch(const gdn_sm90_prefill *prefill, int64_t slots, gdn_sm90_wave *waves, int32_t count,
                               struct CUstream_st *stream)
{
    plan_waves_kernel<<<1, 1, 0, stream>>>(*prefill, slots, waves, count);
    return cudaPeekAtLastError();
}
