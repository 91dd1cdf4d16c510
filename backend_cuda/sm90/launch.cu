/* Which kernels a run takes, by its head dims; those for K = V = 128, and the fused form, which is theirs alone. */
#include "checkpoint_chunks.cuh"
#include "fused_gates.cuh"
#include "fused_kernel.cuh"
#include "launch.cuh"
#include "pieces_kernel.cuh"
#include "plan_waves.cuh"

using namespace gdn::sm90;

namespace
{

constexpr size_t kFusedSmem = StateMap<Form::kFused>::kBytes + kAlignment;

cudaError_t launch_pieces(const gdn_sm90_prefill &p, int32_t dtype, int32_t num_sms, cudaStream_t stream)
{
    const int64_t heads = 2 * static_cast<int64_t>(p.num_v_heads); /* and halves of V */
    const int64_t items = sequences(p) * p.max_segments * heads;
    const int64_t blocks = p.share > 0       ? p.share_blocks
                           : p.pieces > 0    ? p.piece_units * heads
                           : items < num_sms ? items
                                             : num_sms;
    constexpr int kThreads = StateBlock<Form::kPieces, false>::kThreads;
    constexpr size_t kSmem = StateMap<Form::kPieces>::kBytes + kAlignment;
    return dtype == GDN_DTYPE_BF16 ? launch(pieces_kernel<__nv_bfloat16>, p, blocks, kThreads, kSmem, stream)
                                   : launch(pieces_kernel<__half>, p, blocks, kThreads, kSmem, stream);
}

const Launchers kLaunchers128x128 = {launch_prep<128>, launch_state<Form::kStateOnly, Usual>, launch_join<128>,
                                     launch_pieces};

/* By K alone. */
const Launchers &launchers_of_k(const gdn_sm90_prefill &p)
{
    return p.head_k_dim == 64 ? kLaunchers64 : p.head_k_dim == 256 ? kLaunchers256 : kLaunchers128x128;
}

const Launchers &launchers_of(const gdn_sm90_prefill &p)
{
    return p.head_k_dim == 128 && p.any_dims ? kLaunchers128 : launchers_of_k(p);
}

template <typename T> cudaError_t launch_fused(const gdn_sm90_prefill &p, int32_t num_sms, cudaStream_t stream)
{
    const int64_t groups = (p.num_v_heads + kGatesWarps - 1) / kGatesWarps;
    const int64_t chunks = p.wave_slots * groups, most = static_cast<int64_t>(kGatesBlocks) * num_sms;
    const int64_t gates_blocks = chunks < most ? chunks : most;
    const int64_t items = static_cast<int64_t>(p.num_seqs) * p.num_v_heads;
    const int64_t blocks = p.share > 0 ? p.share_blocks : items < num_sms ? items : num_sms;
    const cudaError_t error = launch(p.planned ? gates_kernel<T, true> : gates_kernel<T, false>, p, gates_blocks,
                                     32 * kGatesWarps, kGatesWarps * PrepMap::kGatesBytes + kAlignment, stream);
    return error != cudaSuccess
               ? error
               : launch(fused_kernel<T>, p, blocks, FusedBlock::kThreads, kFusedSmem, stream, p.overlap != 0);
}

} // namespace

size_t gdn_sm90_smem(void)
{
    static_assert(kFusedSmem >= StateMap<Form::kHalf>::kBytes + kAlignment &&
                      kFusedSmem >= StateMap<Form::kWhole, Dims<256>>::kBytes + kAlignment,
                  "");
    return kFusedSmem;
}

int gdn_sm90_fused_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream)
{
    return dtype == GDN_DTYPE_BF16 ? launch_fused<__nv_bfloat16>(*prefill, num_sms, stream)
                                   : launch_fused<__half>(*prefill, num_sms, stream);
}

int gdn_sm90_prep_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream)
{
    return launchers_of_k(*prefill).prep(*prefill, dtype, num_sms, stream);
}

int gdn_sm90_state_only_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                               struct CUstream_st *stream)
{
    return launchers_of(*prefill).state_only(*prefill, dtype, num_sms, stream);
}

int gdn_sm90_state_output_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                                 struct CUstream_st *stream)
{
    return launchers_of(*prefill).state_output(*prefill, dtype, num_sms, stream);
}

int gdn_sm90_join_launch(const gdn_sm90_prefill *prefill, int32_t num_sms, struct CUstream_st *stream)
{
    return launchers_of_k(*prefill).join(*prefill, num_sms, stream);
}

int gdn_sm90_checkpoint_chunks_launch(const gdn_sm90_prefill *prefill, int64_t slots, gdn_chunk *table,
                                      struct CUstream_st *stream)
{
    const size_t bytes = static_cast<size_t>(prefill->num_checkpoints) * sizeof(gdn_chunk);
    const cudaError_t error = cudaMemsetAsync(table, 0, bytes, stream);
    if (error != cudaSuccess) {
        return error;
    }
    const int blocks = prefill->num_seqs < 1024 ? prefill->num_seqs : 1024;
    checkpoint_chunks_kernel<<<blocks, 128, 0, stream>>>(*prefill, slots, table);
    return cudaPeekAtLastError();
}

int gdn_sm90_plan_waves_launch(const gdn_sm90_prefill *prefill, int64_t slots, gdn_sm90_wave *waves, int32_t count,
                               struct CUstream_st *stream)
{
    plan_waves_kernel<<<1, 1, 0, stream>>>(*prefill, slots, waves, count);
    return cudaPeekAtLastError();
}
