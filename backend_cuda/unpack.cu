/* o from the float32 rows of a wave's chunks. */
#include "wave.cuh"

namespace gdn
{
namespace
{

struct Unpack {
    const gdn_chunk *chunks;
    int64_t num_rows; /* slots * value heads * C */
    int32_t num_v_heads, chunk_size, dim;
    const float *O;
    Rows dst;
};

/* A warp a row, a lane one element in 32, or four in 128 where o is float32, too. Rows past a chunk's length are another
 * sequence's or nobody's. */
template <bool kWide> __global__ void __launch_bounds__(kThreads, 4) unpack_kernel(const Unpack p)
{
    constexpr int kStep = kWide ? 128 : 32;
    const int lane = threadIdx.x % 32 * (kWide ? 4 : 1);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
    for (int64_t row = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) / 32; row < p.num_rows;
         row += stride) {
        const int64_t slot_head = row / p.chunk_size;
        const int32_t i = static_cast<int32_t>(row - slot_head * p.chunk_size);
        const int64_t slot = slot_head / p.num_v_heads;
        const gdn_chunk chunk = p.chunks[slot];
        if (chunk.seq < 0 || i >= chunk.length) {
            continue;
        }
        const int64_t at = p.dst.index(chunk, p.chunk_size, i, static_cast<int>(slot_head - slot * p.num_v_heads));
        const float *const src = p.O + row * p.dim;
        for (int d = lane; d < p.dim; d += kStep) {
            if constexpr (kWide) {
                store4(static_cast<float *>(p.dst.data) + at + d, load4(src + d));
            } else {
                store_element(p.dst.data, p.dst.dtype, at + d, src[d]);
            }
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_unpack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *O)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_problem *const problem = run->problem;
    const Unpack p = {wave->chunks,
                      static_cast<int64_t>(wave->num_slots) * problem->num_v_heads * wave->chunk_size,
                      problem->num_v_heads,
                      wave->chunk_size,
                      problem->head_v_dim,
                      O,
                      rows_of(run, problem->o, run->args->o)};
    constexpr int64_t kRowsPerBlock = kThreads / 32;
    const unsigned grid = grid_size((p.num_rows + kRowsPerBlock - 1) / kRowsPerBlock);
    if (p.dst.dtype == GDN_DTYPE_F32 && is_wide(p.dst, p.dim)) {
        unpack_kernel<true><<<grid, kThreads, 0, stream_of(run)>>>(p);
    } else {
        unpack_kernel<false><<<grid, kThreads, 0, stream_of(run)>>>(p);
    }
    return gdn_cuda_launched("unpack");
}
