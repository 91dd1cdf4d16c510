/* The decay of a chunk: of the state across it, and of its keys to its end. */
#include "wave.cuh"

namespace gdn
{
namespace
{

struct DecayState {
    const gdn_chunk *chunks;
    const int32_t *slots; /* [num_lanes], of one step */
    const int32_t *ends; /* NULL: the chunk's length */
    int32_t num_lanes, chunk_size, K, V;
    int32_t pieces; /* blocks a (lane, head) */
    HeadMap heads;
    const float *G, *k, *src;
    float *tail, *dst;
};

/* A (lane, head) has C rows of K for the tail, then K rows of V for the state; its blocks take every pieces-th row. */
__global__ void __launch_bounds__(kThreads, 4) decay_state_kernel(const DecayState p)
{
    const int lane_idx = threadIdx.x % 32;
    const int64_t count = static_cast<int64_t>(p.num_lanes) * p.heads.num_v_heads * p.pieces;
    for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
        const int64_t lane_head = block / p.pieces;
        const int piece = static_cast<int>(block - lane_head * p.pieces);
        const int64_t lane = lane_head / p.heads.num_v_heads;
        const int v_head = static_cast<int>(lane_head - lane * p.heads.num_v_heads);
        const int32_t slot = p.slots[lane];
        int32_t end = 0;
        if (slot >= 0) {
            end = p.ends != nullptr ? p.ends[lane] : p.chunks[slot].length;
        }
        const int64_t slot_head = static_cast<int64_t>(slot > 0 ? slot : 0) * p.heads.num_v_heads + v_head;
        const DecaySums sums(p.G, slot_head, p.chunk_size);
        const float decay = end > 0 ? sums.decay(end - 1) : 0.0f;
        const int64_t key_row =
            (static_cast<int64_t>(slot > 0 ? slot : 0) * p.heads.num_k_heads + p.heads.k_head(v_head)) * p.chunk_size;
        const int64_t rows = p.chunk_size + (end > 0 ? p.K : 0);
        const int64_t warps = p.pieces * (kThreads / 32);
        for (int64_t row = piece * (kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
            if (row < p.chunk_size) {
                const int32_t i = static_cast<int32_t>(row);
                const float factor = i < end ? sums.ratio(end - 1, i) : 0.0f;
                float *const tail = p.tail + (lane_head * p.chunk_size + i) * p.K;
                for (int d = lane_idx; d < p.K; d += 32) {
                    tail[d] = i < end ? factor * p.k[(key_row + i) * p.K + d] : 0.0f;
                }
            } else {
                const int64_t at = (lane_head * p.K + row - p.chunk_size) * p.V;
                for (int d = lane_idx; d < p.V; d += 32) {
                    p.dst[at + d] = decay * p.src[at + d];
                }
            }
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_decay_state(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                int32_t step, const int32_t *ends, const float *G, const float *k, const float *src,
                                float *tail, float *dst)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    DecayState p = {};
    p.chunks = wave->chunks;
    p.slots = wave->lane_slot + static_cast<int64_t>(step) * wave->num_lanes;
    p.ends = ends;
    p.num_lanes = wave->num_lanes;
    p.chunk_size = wave->chunk_size;
    p.K = run->problem->head_k_dim;
    p.V = run->problem->head_v_dim;
    p.heads = head_map(run);
    p.G = G;
    p.k = k;
    p.src = src;
    p.tail = tail;
    p.dst = dst;
    /* Few (lane, head)s must still fill the device. */
    const int64_t pairs = static_cast<int64_t>(p.num_lanes) * p.heads.num_v_heads;
    const int64_t wanted = 8 * static_cast<int64_t>(gdn_cuda_device_of(device)->num_sms);
    const int64_t most = (p.chunk_size + p.K + kThreads / 32 - 1) / (kThreads / 32);
    const int64_t pieces = (wanted + pairs - 1) / pairs;
    p.pieces = static_cast<int32_t>(pieces < most ? pieces : most);
    decay_state_kernel<<<grid_size(pairs * p.pieces), kThreads, 0, stream_of(run)>>>(p);
    return gdn_cuda_launched("decay_state");
}
