/* The chunk table of checkpoints inside a chunk. */
#ifndef GDN_CUDA_SM90_CHECKPOINT_CHUNKS_CUH
#define GDN_CUDA_SM90_CHECKPOINT_CHUNKS_CUH

#include "checkpoints.cuh"

namespace gdn
{
namespace sm90
{

/* One block a sequence: a slot of `table`, which is all zeros, for each checkpoint inside a chunk. */
__global__ void checkpoint_chunks_kernel(const __grid_constant__ gdn_sm90_prefill p, int64_t slots, gdn_chunk *table)
{
    for (int seq = blockIdx.x; seq < p.num_seqs; seq += gridDim.x) {
        int64_t low = 0, high = slots; /* the table is sorted by sequence, unused slots are the last */
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            const int found = p.chunks[middle].seq;
            if (found >= 0 && found < seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low == slots || p.chunks[low].seq != seq) {
            continue; /* it is skipped */
        }
        const int64_t token = p.chunks[low].token;
        const Checkpoints all = checkpoints_of(p, seq);
        for (int64_t i = threadIdx.x; i < all.count; i += blockDim.x) {
            const int64_t position = position_of(p, all, i), entry = all.first + i;
            const int length = static_cast<int>(position % GDN_SM90_CHUNK);
            if (length > 0 && entry < p.num_checkpoints) {
                table[entry] = {token + position - length, seq, static_cast<int32_t>(position / GDN_SM90_CHUNK), length,
                                1};
            }
        }
    }
}

} // namespace sm90
} // namespace gdn

#endif
