/* Checkpoints anywhere, for the kernels of Dims<K>. One after p = 64 c + r tokens, 0 < r < 64, wants what a run of p tokens
 * leaves. The chain stores the state before chunk c where the checkpoint goes; later that state runs over a chunk of r tokens, a
 * slot of a table like that of the run, one a checkpoint. So the chains of o know nothing of it. */
#ifndef GDN_CUDA_SM90_CHECKPOINTS_CUH
#define GDN_CUDA_SM90_CHECKPOINTS_CUH

#include "wave.cuh"

namespace gdn
{
namespace sm90
{

/* A sequence's: entries first .. first + count, their positions increasing. */
struct Checkpoints {
    int64_t first, count;
};

__device__ __forceinline__ Checkpoints checkpoints_of(const gdn_sm90_prefill &p, int seq)
{
    if (p.checkpoint_interval > 0) {
        return {p.checkpoint_bases[seq], sequence_tokens(p, seq) / p.checkpoint_interval};
    }
    const int64_t first = load_index(p.checkpoint_offsets, p.checkpoint_index_dtype, seq);
    return {first, load_index(p.checkpoint_offsets, p.checkpoint_index_dtype, seq + 1) - first};
}

/* Tokens before the i-th. */
__device__ __forceinline__ int64_t position_of(const gdn_sm90_prefill &p, const Checkpoints &all, int64_t i)
{
    return p.checkpoint_interval > 0 ? (i + 1) * p.checkpoint_interval
                                     : load_index(p.checkpoint_positions, p.checkpoint_index_dtype, all.first + i);
}

/* The first at `token` or after it; their count if there is none. */
__device__ __forceinline__ int64_t first_from(const gdn_sm90_prefill &p, const Checkpoints &all, int64_t token)
{
    int64_t low = 0, high = all.count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (position_of(p, all, middle) < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Full chunks until a state is wanted, of at most `rest`, after `consumed` ones of the sequence. */
__device__ __forceinline__ int chunks_to_checkpoint(const gdn_sm90_prefill &p, int seq, int consumed, int rest)
{
    if (!p.checkpoints.data) {
        return rest;
    }
    const Checkpoints all = checkpoints_of(p, seq);
    const int64_t i = first_from(p, all, static_cast<int64_t>(consumed + 1) * GDN_SM90_CHUNK);
    return i < all.count ? static_cast<int>(min(position_of(p, all, i) / GDN_SM90_CHUNK - consumed, int64_t{rest}))
                         : rest;
}

} // namespace sm90
} // namespace gdn

#endif
