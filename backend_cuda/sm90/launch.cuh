/* Launches of the kernels for one pair of head dims: grids, shared memory. */
#ifndef GDN_CUDA_SM90_LAUNCH_CUH
#define GDN_CUDA_SM90_LAUNCH_CUH

#include "join_kernel.cuh"
#include "prep_kernel.cuh"
#include "state_kernel.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace sm90
{

/* Tiles start at the first multiple of 1024 bytes inside what a block is given. */
constexpr size_t kAlignment = 1024;

/* Launches of one wave's kernels. */
struct Launchers {
    cudaError_t (*prep)(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream);
    cudaError_t (*state_only)(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream);
    cudaError_t (*join)(const gdn_sm90_prefill &p, int32_t num_sms, cudaStream_t stream);
    cudaError_t (*state_output)(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream);
};

/* launch_dims.cu: of Dims<K>. Those of K = 128 have neither prep nor join, which do not depend on V. */
extern const Launchers kLaunchers64, kLaunchers128, kLaunchers256;

/* overlap: by programmatic dependent launch. */
template <typename Kernel>
cudaError_t launch(Kernel kernel, const gdn_sm90_prefill &p, int64_t blocks, int threads, size_t smem,
                   cudaStream_t stream, bool overlap = false)
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
    if (overlap) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(static_cast<unsigned>(threads));
        config.dynamicSmemBytes = smem;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, kernel, p);
    }
    kernel<<<static_cast<unsigned>(blocks), threads, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

template <int kHeadK>
cudaError_t launch_prep(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream)
{
    using Tiles = PrepTiles<kHeadK>;
    constexpr size_t kSmem = Tiles::kBytes + kAlignment;
    const int64_t groups = (p.heads_per_group + p.heads_per_job - 1) / p.heads_per_job;
    const int64_t jobs = p.wave_slots * groups * p.num_k_heads;
    const int64_t planning = p.pieces > 0;
    const int64_t most = static_cast<int64_t>(num_sms) * Tiles::kPerMultiprocessor - planning;
    const int64_t blocks = (jobs < most ? jobs : most) + planning;
    const auto kernel = dtype == GDN_DTYPE_BF16 ? prep_kernel<__nv_bfloat16, kHeadK> : prep_kernel<__half, kHeadK>;
    return launch(kernel, p, blocks, kPrepThreads, kSmem, stream);
}

/* Sequences that a wave can have. */
inline int64_t sequences(const gdn_sm90_prefill &p)
{
    return p.num_seqs < p.wave_slots ? p.num_seqs : p.wave_slots;
}

template <typename T, Form kForm, typename D> struct StateLaunch {
    static cudaError_t queue(const gdn_sm90_prefill &p, int32_t num_sms, cudaStream_t stream);
};

template <typename T, Form kForm, typename D>
cudaError_t StateLaunch<T, kForm, D>::queue(const gdn_sm90_prefill &p, int32_t num_sms, cudaStream_t stream)
{
    using Block = StateBlock<kForm, D::kPlain>;
    static_assert(kStageFits<kForm, D>(), "shared memory");
    constexpr size_t kSmem = StateMap<kForm, D>::kBytes + kAlignment;
    const int64_t segments = p.checkpoint_pass ? p.wave_slots : sequences(p) * p.max_segments;
    const int kinds = kHasOutputs<kForm> || p.checkpoint_pass ? 1 : 2; /* F and E */
    const int64_t items = segments * p.num_v_heads * (p.v_tiles / kVTiles<kForm>)*kinds;
    const int64_t most = static_cast<int64_t>(num_sms) * Block::kPerMultiprocessor;
    return launch(state_kernel<T, kForm, D>, p, items < most ? items : most, Block::kThreads, kSmem, stream);
}

/* state_256_half.cu and state_256_whole.cu: ptxas takes half a minute for each of these, so they are compiled side by side. */
extern template struct StateLaunch<__nv_bfloat16, Form::kHalf, Dims<256>>;
extern template struct StateLaunch<__nv_bfloat16, Form::kWhole, Dims<256>>;
extern template struct StateLaunch<__half, Form::kHalf, Dims<256>>;
extern template struct StateLaunch<__half, Form::kWhole, Dims<256>>;

template <Form kForm, typename D>
cudaError_t launch_state(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream)
{
    return dtype == GDN_DTYPE_BF16 ? StateLaunch<__nv_bfloat16, kForm, D>::queue(p, num_sms, stream)
                                   : StateLaunch<__half, kForm, D>::queue(p, num_sms, stream);
}

template <typename D>
cudaError_t launch_state_output(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream)
{
    if constexpr (D::kPlain) {
        if (p.whole_V) {
            return launch_state<Form::kWhole, D>(p, dtype, num_sms, stream);
        }
    }
    return launch_state<Form::kHalf, D>(p, dtype, num_sms, stream);
}

template <int kColumns, int kDim>
cudaError_t launch_join_of(const gdn_sm90_prefill &p, int64_t heads, cudaStream_t stream)
{
    const int64_t items = heads * (kDim / kColumns);
    constexpr int64_t kMost = 1024;
    return launch(join_kernel<kColumns, kDim>, p, items < kMost ? items : kMost, kJoinThreads,
                  JoinMap<kColumns, kDim>::kBytes + kAlignment, stream);
}

/* Blocks of 16 columns read E half as often, those of 8 take half as long: where all of them run at once, the latter. */
template <int kDim> cudaError_t launch_join(const gdn_sm90_prefill &p, int32_t num_sms, cudaStream_t stream)
{
    const int64_t heads = sequences(p) * p.num_v_heads;
    return heads * (kDim / 8) <= num_sms ? launch_join_of<8, kDim>(p, heads, stream)
                                         : launch_join_of<16, kDim>(p, heads, stream);
}

} // namespace sm90
} // namespace gdn

#endif
