/* Rows of a chunk times a factor of their own. */
#include "wave.cuh"

namespace gdn
{
namespace
{

struct ScaleRows {
    const gdn_chunk *chunks;
    int64_t num_rows; /* slots * value heads * C */
    int32_t chunk_size, src_heads, width;
    HeadMap heads;
    gdn_row_factor factor;
    float scale;
    const float *G, *beta, *src;
    float *dst;
};

/* A warp a row, a lane one element in 32, or four in 128. An unused slot's rows become zeros. */
template <bool kWide> __global__ void __launch_bounds__(kThreads, 4) scale_rows_kernel(const ScaleRows p)
{
    constexpr int kStep = kWide ? 128 : 32;
    const int lane = threadIdx.x % 32 * (kWide ? 4 : 1);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
    for (int64_t row = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) / 32; row < p.num_rows;
         row += stride) {
        const int64_t slot_head = row / p.chunk_size;
        const int32_t i = static_cast<int32_t>(row - slot_head * p.chunk_size);
        const int64_t slot = slot_head / p.heads.num_v_heads;
        const int v_head = static_cast<int>(slot_head - slot * p.heads.num_v_heads);
        const int src_head = p.src_heads == p.heads.num_v_heads ? v_head : p.heads.k_head(v_head);
        float factor = p.factor == GDN_ROW_SCALE_DECAY ? p.scale : p.beta[row];
        if (p.factor != GDN_ROW_BETA) {
            factor *= DecaySums(p.G, slot_head, p.chunk_size).decay(i);
        }
        const bool used = p.chunks[slot].seq >= 0;
        const float *const src = p.src + ((slot * p.src_heads + src_head) * p.chunk_size + i) * p.width;
        float *const dst = p.dst + row * p.width;
        for (int d = lane; d < p.width; d += kStep) {
            if constexpr (kWide) {
                store4(dst + d, used ? scaled(factor, load4(src + d)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
            } else {
                dst[d] = used ? factor * src[d] : 0.0f;
            }
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_scale_rows(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                               gdn_row_factor factor, const float *G, const float *beta, const float *src,
                               int32_t src_heads, int32_t width, float *dst)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const ScaleRows p = {wave->chunks,
                         static_cast<int64_t>(wave->num_slots) * run->problem->num_v_heads * wave->chunk_size,
                         wave->chunk_size,
                         src_heads,
                         width,
                         head_map(run),
                         factor,
                         run->problem->scale,
                         G,
                         beta,
                         src,
                         dst};
    constexpr int64_t kRowsPerBlock = kThreads / 32;
    const unsigned grid = grid_size((p.num_rows + kRowsPerBlock - 1) / kRowsPerBlock);
    if (is_wide(width)) {
        scale_rows_kernel<true><<<grid, kThreads, 0, stream_of(run)>>>(p);
    } else {
        scale_rows_kernel<false><<<grid, kThreads, 0, stream_of(run)>>>(p);
    }
    return gdn_cuda_launched("scale_rows");
}
