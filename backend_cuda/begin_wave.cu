/* Lanes of a wave: which chunk slots follow one another. */
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kLaneThreads = 1024;

/* A sequence's chunks are consecutive slots and only its first can have index 0, so slot s is step min(s, index) of
 * lane "sequences that begin in slots 1..s". One block walks the slots; lane_slot holds -1 everywhere before. */
__global__ void __launch_bounds__(kLaneThreads)
    begin_wave_kernel(const gdn_chunk *chunks, int32_t num_slots, int32_t num_lanes, int32_t *lane_slot)
{
    __shared__ int32_t warp_totals[32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int32_t before = 0;
    for (int32_t tile = 0; tile < num_slots; tile += kLaneThreads) {
        const int32_t slot = tile + static_cast<int32_t>(threadIdx.x);
        int32_t seq = -1;
        int32_t index = 0;
        if (slot < num_slots) {
            seq = chunks[slot].seq;
            index = chunks[slot].index;
        }
        const bool begins = seq >= 0 && slot > 0 && index == 0;
        const unsigned mask = __ballot_sync(0xffffffffu, begins);
        int32_t count = __popc(mask & (0xffffffffu >> (31 - lane)));
        if (lane == 0) {
            warp_totals[warp] = __popc(mask);
        }
        __syncthreads();
        int32_t total = 0;
        for (int w = 0; w < kLaneThreads / 32; w++) {
            count += w < warp ? warp_totals[w] : 0;
            total += warp_totals[w];
        }
        if (seq >= 0) {
            const int32_t step = slot < index ? slot : index;
            lane_slot[static_cast<int64_t>(step) * num_lanes + before + count] = slot;
        }
        before += total;
        __syncthreads();
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_begin_wave(const gdn_device *device, const gdn_prefill_run *run, gdn_wave *wave)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const size_t entries = static_cast<size_t>(wave->num_steps) * static_cast<size_t>(wave->num_lanes);
    GDN_CUDA_TRY(cudaMemsetAsync(wave->lane_slot, 0xff, entries * sizeof(int32_t), stream_of(run)));
    begin_wave_kernel<<<1, kLaneThreads, 0, stream_of(run)>>>(wave->chunks, wave->num_slots, wave->num_lanes,
                                                              wave->lane_slot);
    return gdn_cuda_launched("begin_wave");
}
