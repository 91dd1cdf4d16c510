/* Checkpoints: where each lane's next one is, and storing states there. */
#include "state_tile.cuh"

namespace gdn
{
namespace
{

constexpr int kFindThreads = 256;

struct Find {
    const gdn_chunk *chunks;
    const int32_t *first_slots; /* [num_lanes]: lanes' slots at step 0 */
    const int32_t *slots; /* at this step */
    int32_t num_lanes, chunk_size, round, interval, index_dtype, equal_length, cu_dtype;
    int64_t row_length, total_tokens, num_checkpoints;
    const void *cu_seqlens, *positions, *offsets;
    int32_t *ends;
    int64_t *entries;
};

__device__ int64_t length_of(const Find &f, int64_t seq)
{
    return f.equal_length ? f.row_length
                          : load_index(f.cu_seqlens, f.cu_dtype, seq + 1) - load_index(f.cu_seqlens, f.cu_dtype, seq);
}

__device__ void put(const Find &f, int32_t lane, int64_t end, int64_t entry)
{
    const bool there = entry >= 0 && entry < f.num_checkpoints;
    f.ends[lane] = there ? static_cast<int32_t>(end) : 0;
    f.entries[lane] = there ? entry : -1;
}

/* A thread a lane: the round-th position inside the chunk, by bisection. */
__global__ void __launch_bounds__(kThreads, 4) find_positions_kernel(const Find f)
{
    const int32_t lane = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (lane >= f.num_lanes) {
        return;
    }
    const int32_t slot = f.slots[lane];
    if (slot < 0) {
        put(f, lane, 0, -1);
        return;
    }
    const gdn_chunk chunk = f.chunks[slot];
    const int64_t start = static_cast<int64_t>(chunk.index) * f.chunk_size;
    const int64_t end = load_index(f.offsets, f.index_dtype, chunk.seq + 1);
    int64_t low = load_index(f.offsets, f.index_dtype, chunk.seq);
    int64_t high = end;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (load_index(f.positions, f.index_dtype, middle) > start) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const int64_t entry = low + f.round;
    const int64_t position = entry < end ? load_index(f.positions, f.index_dtype, entry) - start : 0;
    put(f, lane, position, position >= 1 && position <= chunk.length ? entry : -1);
}

/* Sum of x over the threads before this one; *total gets the sum over all. */
__device__ int64_t exclusive_sum(int64_t x, int64_t *warp_sums, int64_t *total)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int64_t sum = x;
    for (int offset = 1; offset < 32; offset *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, sum, offset);
        sum += lane >= offset ? other : 0;
    }
    __syncthreads();
    if (lane == 31) {
        warp_sums[warp] = sum;
    }
    __syncthreads();
    int64_t before = 0;
    int64_t all = 0;
#pragma unroll 1
    for (int w = 0; w < kFindThreads / 32; w++) {
        before += w < warp ? warp_sums[w] : 0;
        all += warp_sums[w];
    }
    *total = all;
    return before + sum - x;
}

/* At an interval n, a sequence's entries follow those of all sequences before it. One block: a thread a lane adds up
 * the sequences between the lane before and its own. */
__global__ void __launch_bounds__(kFindThreads) find_intervals_kernel(const Find f)
{
    __shared__ int64_t warp_sums[kFindThreads / 32];
    const int32_t first_slot = f.first_slots[0];
    int64_t total = 0;
    int64_t before = 0;
    if (first_slot >= 0) {
        const int64_t first_seq = f.chunks[first_slot].seq;
        int64_t sum = 0;
        for (int64_t seq = threadIdx.x; seq < first_seq; seq += kFindThreads) {
            sum += checkpoints_of(length_of(f, seq), f.total_tokens, f.interval);
        }
        (void)exclusive_sum(sum, warp_sums, &total);
        before = total;
    }
    for (int32_t tile = 0; tile < f.num_lanes; tile += kFindThreads) {
        const int32_t lane = tile + static_cast<int32_t>(threadIdx.x);
        const int32_t slot0 = lane < f.num_lanes ? f.first_slots[lane] : -1;
        int64_t sum = 0;
        if (slot0 >= 0 && lane > 0) {
            const int64_t from = f.chunks[f.first_slots[lane - 1]].seq;
            for (int64_t seq = from; seq < f.chunks[slot0].seq; seq++) {
                sum += checkpoints_of(length_of(f, seq), f.total_tokens, f.interval);
            }
        }
        const int64_t base = before + exclusive_sum(sum, warp_sums, &total) + sum;
        before += total;
        if (lane >= f.num_lanes) {
            continue;
        }
        const int32_t slot = f.slots[lane];
        if (slot < 0) {
            put(f, lane, 0, -1);
            continue;
        }
        const gdn_chunk chunk = f.chunks[slot];
        const int64_t start = static_cast<int64_t>(chunk.index) * f.chunk_size;
        const int64_t which = start / f.interval + f.round; /* the sequence's which-th entry, from 0 */
        const int64_t end = (which + 1) * f.interval - start;
        put(f, lane, end, end <= chunk.length ? base + which : -1);
    }
}

struct Store {
    TileGrid grid;
    const int64_t *entries;
    States dst;
    const float *S;
};

__global__ void __launch_bounds__(kThreads, 4) store_checkpoints_kernel(const Store s)
{
    __shared__ TileBuffer buffer;
    for (int64_t block = blockIdx.x; block < s.grid.count; block += gridDim.x) {
        const TilePlace at(s.grid, block);
        const int64_t entry = s.entries[at.lane];
        if (entry >= 0) {
            store_tile(s.grid, at, s.S + at.dense(s.grid), s.dst, entry, buffer);
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_find_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                     int32_t step, int32_t round, int32_t *ends, int64_t *entries, bool *any)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    Find f = {};
    f.chunks = wave->chunks;
    f.first_slots = wave->lane_slot;
    f.slots = wave->lane_slot + static_cast<int64_t>(step) * wave->num_lanes;
    f.num_lanes = wave->num_lanes;
    f.chunk_size = wave->chunk_size;
    f.round = round;
    f.interval = problem->checkpoint_interval;
    f.index_dtype = problem->checkpoint_index_dtype;
    f.equal_length = is_equal_length(run);
    f.cu_dtype = problem->cu_seqlens_dtype;
    f.row_length = row_length(run);
    f.total_tokens = args->total_tokens;
    f.num_checkpoints = args->num_checkpoints;
    f.cu_seqlens = args->cu_seqlens;
    f.positions = args->checkpoint_positions;
    f.offsets = args->checkpoint_offsets;
    f.ends = ends;
    f.entries = entries;
    *any = true;
    if (problem->checkpoint_form == GDN_CHECKPOINT_AT) {
        const unsigned grid = grid_size((f.num_lanes + kThreads - 1) / kThreads);
        find_positions_kernel<<<grid, kThreads, 0, stream_of(run)>>>(f);
    } else {
        find_intervals_kernel<<<1, kFindThreads, 0, stream_of(run)>>>(f);
    }
    return gdn_cuda_launched("find_checkpoints");
}

gdn_status gdn_cuda_store_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                      const int64_t *entries, const float *S)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const Store s = {tile_grid(run, wave->num_lanes), entries,
                     states_of(run->problem->checkpoints, run->args->checkpoints), S};
    store_checkpoints_kernel<<<grid_size(s.grid.count), dim3(kTile, kTileRows), 0, stream_of(run)>>>(s);
    return gdn_cuda_launched("store_checkpoints");
}
