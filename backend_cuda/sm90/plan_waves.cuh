/* Where the chunk table is cut into waves, when a cut could fall inside a segment. */
#ifndef GDN_CUDA_SM90_PLAN_WAVES_CUH
#define GDN_CUDA_SM90_PLAN_WAVES_CUH

#include "wave.cuh"

namespace gdn
{
namespace sm90
{

/* One thread: cuts the chunk table into waves. A cut that would fall inside a segment moves to the segment's start. */
__global__ void plan_waves_kernel(const __grid_constant__ gdn_sm90_prefill p, int64_t slots, gdn_sm90_wave *waves,
                                  int count)
{
    int64_t begin = 0;
    for (int w = 0; w < count; ++w) {
        int64_t end = begin + p.wave_slots < slots ? begin + p.wave_slots : slots;
        if (end < slots) {
            const gdn_chunk chunk = p.chunks[end];
            if (chunk.seq >= 0 && chunk.index > 0) {
                const int chunks = sequence_chunks(p, chunk.seq);
                const int length = gdn_sm90_segment_chunks(chunks, p.num_v_heads, p.head_k_dim);
                end -= length < chunks ? chunk.index % length : 0;
            }
        }
        waves[w] = {begin, end};
        begin = end;
    }
}

} // namespace sm90
} // namespace gdn

#endif
