/* L and P from the Gram matrices of key heads. */
#include "wave.cuh"

namespace gdn
{
namespace
{

struct Mask {
    const gdn_chunk *chunks;
    int64_t count; /* slots * value heads */
    int32_t chunk_size;
    HeadMap heads;
    float scale;
    const float *gram, *G, *beta;
    float *dst;
};

/* A block a matrix, a thread an element (i, j). Unused slots become zeros. */
template <bool kLower> __global__ void __launch_bounds__(kThreads, 4) mask_kernel(const Mask p)
{
    const int32_t C = p.chunk_size;
    for (int64_t slot_head = blockIdx.x; slot_head < p.count; slot_head += gridDim.x) {
        const int64_t slot = slot_head / p.heads.num_v_heads;
        const int v_head = static_cast<int>(slot_head - slot * p.heads.num_v_heads);
        const int64_t gram_head = slot * p.heads.num_k_heads + p.heads.k_head(v_head);
        const bool used = p.chunks[slot].seq >= 0;
        const DecaySums sums(p.G, slot_head, C);
        const float *const gram = p.gram + gram_head * C * C;
        float *const dst = p.dst + slot_head * C * C;
        for (int32_t e = threadIdx.x; e < C * C; e += kThreads) {
            const int32_t i = e / C;
            const int32_t j = e - i * C;
            float value = 0.0f;
            if (used && (kLower ? i > j : i >= j)) {
                value = (kLower ? p.beta[slot_head * C + i] : p.scale) * sums.ratio(i, j) * gram[e];
            }
            dst[e] = value;
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_mask(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, gdn_mask_kind kind,
                         const float *gram, const float *G, const float *beta, float *dst)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const Mask p = {wave->chunks,
                    wave->num_slots * static_cast<int64_t>(run->problem->num_v_heads),
                    wave->chunk_size,
                    head_map(run),
                    run->problem->scale,
                    gram,
                    G,
                    beta,
                    dst};
    const unsigned grid = grid_size(p.count);
    if (kind == GDN_MASK_L) {
        mask_kernel<true><<<grid, kThreads, 0, stream_of(run)>>>(p);
    } else {
        mask_kernel<false><<<grid, kThreads, 0, stream_of(run)>>>(p);
    }
    return gdn_cuda_launched("mask");
}
