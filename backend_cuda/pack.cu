/* q, k and v of a wave's chunks as dense float32, q and k normalised. */
#include "device/gates.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

struct Pack {
    const gdn_chunk *chunks;
    int64_t num_rows; /* slots * heads * chunk_size */
    int32_t heads, chunk_size, dim, norm;
    float eps;
    Rows src;
    float *dst;
};

/* A warp a row, a lane one element in 32, or four in 128. Unused slots and rows past a chunk's length become zeros. */
template <typename T, bool kWide> __global__ void __launch_bounds__(kThreads, 4) pack_kernel(const Pack p)
{
    constexpr int kStep = kWide ? 128 : 32;
    const int lane = threadIdx.x % 32 * (kWide ? 4 : 1);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
    for (int64_t row = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) / 32; row < p.num_rows;
         row += stride) {
        const int64_t slot_head = row / p.chunk_size;
        const int32_t i = static_cast<int32_t>(row - slot_head * p.chunk_size);
        const int64_t slot = slot_head / p.heads;
        const int head = static_cast<int>(slot_head - slot * p.heads);
        const gdn_chunk chunk = p.chunks[slot];
        float *const dst = p.dst + row * p.dim;
        if (chunk.seq < 0 || i >= chunk.length) {
            for (int d = lane; d < p.dim; d += kStep) {
                if constexpr (kWide) {
                    store4(dst + d, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
                } else {
                    dst[d] = 0.0f;
                }
            }
            continue;
        }
        const T *const src = static_cast<const T *>(p.src.data) + p.src.index(chunk, p.chunk_size, i, head);
        float factor = 1.0f;
        if (p.norm != GDN_QK_NORM_NONE) {
            /* A lane always sums the same elements in the same order, whatever the strides. */
            float sum = 0.0f;
            for (int d0 = 0; d0 < p.dim; d0 += 128) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int d = d0 + static_cast<int>(threadIdx.x % 32) * 4 + e;
                    const float x = d < p.dim ? to_float(src[d]) : 0.0f;
                    sum += x * x;
                }
            }
            factor = norm_factor(warp_sum(sum), p.norm, p.eps);
        }
        for (int d = lane; d < p.dim; d += kStep) {
            if constexpr (kWide) {
                store4(dst + d, scaled(factor, load4(src + d)));
            } else {
                dst[d] = to_float(src[d]) * factor;
            }
        }
    }
}

template <typename T> void launch(const Pack &p, cudaStream_t stream)
{
    constexpr int64_t kRowsPerBlock = kThreads / 32;
    const unsigned grid = grid_size((p.num_rows + kRowsPerBlock - 1) / kRowsPerBlock);
    if (is_wide(p.src, p.dim)) {
        pack_kernel<T, true><<<grid, kThreads, 0, stream>>>(p);
    } else {
        pack_kernel<T, false><<<grid, kThreads, 0, stream>>>(p);
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_pack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                         gdn_pack_source source, float *dst)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const bool is_v = source == GDN_PACK_V;
    const gdn_layout &layout = is_v ? problem->v : source == GDN_PACK_Q ? problem->q : problem->k;
    Pack p = {};
    p.chunks = wave->chunks;
    p.heads = is_v ? problem->num_v_heads : problem->num_k_heads;
    p.chunk_size = wave->chunk_size;
    p.num_rows = static_cast<int64_t>(wave->num_slots) * p.heads * p.chunk_size;
    p.dim = is_v ? problem->head_v_dim : problem->head_k_dim;
    p.norm = is_v ? GDN_QK_NORM_NONE : problem->qk_norm;
    p.eps = problem->qk_norm_eps;
    p.src = rows_of(run, layout, is_v ? args->v : source == GDN_PACK_Q ? args->q : args->k);
    p.dst = dst;
    switch (layout.dtype) {
    case GDN_DTYPE_BF16:
        launch<__nv_bfloat16>(p, stream_of(run));
        break;
    case GDN_DTYPE_F16:
        launch<__half>(p, stream_of(run));
        break;
    default:
        launch<float>(p, stream_of(run));
        break;
    }
    return gdn_cuda_launched("pack");
}
