/* States of a wave's lanes: taken from the caller at a sequence's start, handed back at its end, carried between. */
#include "state_tile.cuh"

namespace gdn
{
namespace
{

struct StateMove {
    TileGrid grid;
    const gdn_chunk *chunks;
    const int32_t *lane_slot;
    int32_t num_lanes, num_steps;
    States initial; /* data NULL: zeros */
    States final; /* data NULL: not wanted */
    const void *read_slots, *write_slots; /* NULL: a sequence's own number */
    int32_t slots_dtype;
    const uint8_t *has_initial_state;
    float *S;
    float *carry;
};

/* Whether the sequence starts from a state, and from which slot. */
__device__ bool initial_slot(const StateMove &m, int32_t seq, int64_t *slot)
{
    *slot = m.read_slots != nullptr ? load_index(m.read_slots, m.slots_dtype, seq) : seq;
    return m.initial.data != nullptr && (m.has_initial_state == nullptr || m.has_initial_state[seq] != 0);
}

__global__ void __launch_bounds__(kThreads, 4) load_states_kernel(const StateMove m)
{
    __shared__ TileBuffer buffer;
    for (int64_t block = blockIdx.x; block < m.grid.count; block += gridDim.x) {
        const TilePlace at(m.grid, block);
        const int32_t first = m.lane_slot[at.lane];
        if (first < 0) {
            continue;
        }
        const gdn_chunk chunk = m.chunks[first];
        float *const S = m.S + at.dense(m.grid);
        int64_t slot = 0;
        if (chunk.index == 0 && initial_slot(m, chunk.seq, &slot)) {
            load_tile(m.grid, at, m.initial, slot, S, buffer);
            continue;
        }
        const float *const carry = m.carry + at.head * static_cast<int64_t>(m.grid.K) * m.grid.V;
        for (int y = threadIdx.y; y < kTile; y += kTileRows) {
            const int k = at.k0 + y;
            const int v = at.v0 + static_cast<int>(threadIdx.x);
            if (k < m.grid.K && v < m.grid.V) {
                const int64_t e = static_cast<int64_t>(k) * m.grid.V + v;
                S[e] = chunk.index == 0 ? 0.0f : carry[e];
            }
        }
    }
}

/* The state of a sequence of no tokens: bits as they are where the element types agree. */
__device__ void pass_on(const StateMove &m, const TilePlace &at, int32_t seq, int64_t to)
{
    int64_t from = 0;
    const bool there = initial_slot(m, seq, &from);
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int k = at.k0 + static_cast<int>(threadIdx.x);
        const int v = at.v0 + y;
        if (k >= m.grid.K || v >= m.grid.V) {
            continue;
        }
        const int64_t src = m.initial.index(from, at.head, k, v);
        const int64_t dst = m.final.index(to, at.head, k, v);
        if (there && m.initial.dtype == m.final.dtype && m.final.dtype != GDN_DTYPE_F32) {
            static_cast<uint16_t *>(m.final.data)[dst] = static_cast<const uint16_t *>(m.initial.data)[src];
        } else {
            store_element(m.final.data, m.final.dtype, dst,
                          there ? load_element(m.initial.data, m.initial.dtype, src) : 0.0f);
        }
    }
}

__global__ void __launch_bounds__(kThreads, 4) store_states_kernel(const StateMove m)
{
    __shared__ TileBuffer buffer;
    for (int64_t block = blockIdx.x; block < m.grid.count; block += gridDim.x) {
        const TilePlace at(m.grid, block);
        const int32_t first = m.lane_slot[at.lane];
        if (first < 0) {
            continue;
        }
        const int32_t steps = lane_steps(m.lane_slot, m.num_steps, m.num_lanes, at.lane);
        const gdn_chunk chunk = m.chunks[first + steps - 1];
        const float *const S = m.S + at.dense(m.grid);
        if (!chunk.last) {
            float *const carry = m.carry + at.head * static_cast<int64_t>(m.grid.K) * m.grid.V;
            for (int y = threadIdx.y; y < kTile; y += kTileRows) {
                const int k = at.k0 + y;
                const int v = at.v0 + static_cast<int>(threadIdx.x);
                if (k < m.grid.K && v < m.grid.V) {
                    const int64_t e = static_cast<int64_t>(k) * m.grid.V + v;
                    carry[e] = S[e];
                }
            }
            continue;
        }
        if (m.final.data == nullptr) {
            continue;
        }
        const int64_t slot = m.write_slots != nullptr ? load_index(m.write_slots, m.slots_dtype, chunk.seq) : chunk.seq;
        if (chunk.index == 0 && chunk.length == 0) {
            pass_on(m, at, chunk.seq, slot);
        } else {
            store_tile(m.grid, at, S, m.final, slot, buffer);
        }
    }
}

StateMove move_of(const gdn_prefill_run *run, const gdn_wave *wave, float *S, float *carry)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    StateMove m = {};
    m.grid = tile_grid(run, wave->num_lanes);
    m.chunks = wave->chunks;
    m.lane_slot = wave->lane_slot;
    m.num_lanes = wave->num_lanes;
    m.num_steps = wave->num_steps;
    m.initial = states_of(problem->state, args->state);
    if (!pool) {
        m.final = states_of(problem->final_state, args->final_state);
    } else if (args->write_slots != nullptr) {
        m.final = m.initial;
    }
    m.read_slots = pool ? args->read_slots : nullptr;
    m.write_slots = pool ? args->write_slots : nullptr;
    m.slots_dtype = problem->slots_dtype;
    m.has_initial_state = args->has_initial_state;
    m.S = S;
    m.carry = carry;
    return m;
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_load_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *S,
                                const float *carry)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const StateMove m = move_of(run, wave, S, const_cast<float *>(carry));
    load_states_kernel<<<grid_size(m.grid.count), dim3(kTile, kTileRows), 0, stream_of(run)>>>(m);
    return gdn_cuda_launched("load_states");
}

gdn_status gdn_cuda_store_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                 const float *S, float *carry)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const StateMove m = move_of(run, wave, const_cast<float *>(S), carry);
    store_states_kernel<<<grid_size(m.grid.count), dim3(kTile, kTileRows), 0, stream_of(run)>>>(m);
    return gdn_cuda_launched("store_states");
}
