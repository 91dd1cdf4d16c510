/* The chunk table, built on the device from cu_seqlens and slots, and the check of all metadata.
 *
 * A row that is wrong is left out of the table, so that no later kernel follows a bad offset; the lowest such row is
 * reported in the fault word. Rows that are kept never overlap: their bounds do not fall below any bound before them.
 * With problem->check, slot conflicts and gate ranges are looked at first, and a call that has any writes nothing.
 */
#include "fault.cuh"
#include "schedule.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kScheduleThreads = 1024;

/* Every block walks all sequences, 1024 at a time, and writes its own part of the table; block 0 reports. */
__global__ void __launch_bounds__(kScheduleThreads, 1) schedule_kernel(const gdn_schedule s)
{
    __shared__ int64_t scratch[32];
    __shared__ int64_t ends[kScheduleThreads]; /* of each sequence's chunks, counted from the tile's first */
    __shared__ int64_t begins[kScheduleThreads];
    __shared__ int64_t lengths[kScheduleThreads];
    __shared__ int first_fault;

    const int64_t slot_begin = s.bound * blockIdx.x / gridDim.x;
    const int64_t slot_end = s.bound * (blockIdx.x + 1) / gridDim.x;
    const bool reports = blockIdx.x == 0;
    /* Not any code: block 0 may be reporting a row already. */
    const int32_t found = s.checked ? s.fault->code : GDN_FAULT_NONE;
    const bool refused = found == GDN_FAULT_SLOT_CONFLICT || found == GDN_FAULT_GATE;
    bool reported = refused;
    if (reports && !s.checked && threadIdx.x == 0) {
        *s.fault = gdn_metadata_fault{};
    }

    int64_t tile_base = 0; /* chunks of the tiles before */
    int64_t floor_before = 0;
    int64_t entries_before = 0; /* checkpoints at an interval, of the tiles before */
    for (int64_t tile = 0; tile < s.num_seqs && !refused; tile += kScheduleThreads) {
        const int64_t n = tile + threadIdx.x;
        const bool live = n < s.num_seqs;
        const Bounds b = live ? bounds_of(s, n) : Bounds{0, 0};

        /* The largest bound so far that lies inside the tokens. */
        const bool inside = live && b.begin >= 0 && b.begin <= s.total_tokens;
        const int64_t floor = block_scan(inside ? b.begin : 0, scratch, Max());
        const int64_t floor_here = Max()(floor, floor_before);
        floor_before = Max()(scratch[31], floor_before);
        __syncthreads();

        Verdict verdict = live ? judge(s, n, b, floor_here) : Verdict{GDN_FAULT_NONE, true, 0};
        bool kept = verdict.code == GDN_FAULT_NONE && !verdict.skipped;
        const int64_t length = b.end - b.begin;

        if (s.checkpoint_form == GDN_CHECKPOINT_EVERY) {
            /* A skipped sequence has its entries, too, so that where an entry is does not depend on slots. */
            const int64_t entries = live ? checkpoints_of(length, s.total_tokens, s.checkpoint_interval) : 0;
            const int64_t upto = entries_before + block_scan(entries, scratch, Add());
            entries_before += scratch[31];
            __syncthreads();
            if (kept && entries > 0 && upto > s.num_checkpoints) {
                verdict = {GDN_FAULT_CHECKPOINT, false, upto};
                kept = false;
            }
        }

        if (threadIdx.x == 0) {
            first_fault = kScheduleThreads;
        }
        __syncthreads();
        if (verdict.code != GDN_FAULT_NONE) {
            atomicMin(&first_fault, static_cast<int>(threadIdx.x));
        }
        __syncthreads();
        if (reports && !reported && first_fault == static_cast<int>(threadIdx.x)) {
            *s.fault = gdn_metadata_fault{verdict.code, 0, n, verdict.value};
        }
        reported = reported || first_fault < kScheduleThreads;

        int64_t count = 0;
        if (kept) {
            count = length > 0 ? (length + s.chunk_size - 1) / s.chunk_size : 1;
        }
        ends[threadIdx.x] = block_scan(count, scratch, Add());
        begins[threadIdx.x] = b.begin;
        lengths[threadIdx.x] = length;
        const int64_t tile_count = scratch[31];
        __syncthreads();

        const int64_t from = Max()(slot_begin, tile_base);
        const int64_t to = slot_end < tile_base + tile_count ? slot_end : tile_base + tile_count;
        for (int64_t slot = from + threadIdx.x; slot < to; slot += kScheduleThreads) {
            /* The first sequence whose chunks end past this slot. */
            const int64_t local = slot - tile_base;
            int low = 0;
            int high = kScheduleThreads - 1;
            while (low < high) {
                const int middle = (low + high) / 2;
                if (ends[middle] > local) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            const int64_t index = local - (low > 0 ? ends[low - 1] : 0);
            const int64_t left = lengths[low] - index * s.chunk_size;
            gdn_chunk chunk;
            chunk.token = begins[low] + index * s.chunk_size;
            chunk.seq = static_cast<int32_t>(tile + low);
            chunk.index = static_cast<int32_t>(index);
            chunk.length = static_cast<int32_t>(left < s.chunk_size ? left : s.chunk_size);
            chunk.last = left <= s.chunk_size;
            s.chunks[slot] = chunk;
        }
        tile_base += tile_count;
        __syncthreads();
    }
    for (int64_t slot = Max()(slot_begin, tile_base) + threadIdx.x; slot < slot_end; slot += kScheduleThreads) {
        s.chunks[slot] = gdn_chunk{0, -1, 0, 0, 0};
    }
}

__global__ void clear_fault_kernel(gdn_metadata_fault *fault)
{
    *fault = gdn_metadata_fault{};
}

/* A slot that row n writes must be read and written by no other row. */
__global__ void check_conflicts_kernel(const gdn_schedule s)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t n = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; n < s.num_seqs; n += stride) {
        const int64_t read = load_index(s.read_slots, s.slots_dtype, n);
        const int64_t write = load_index(s.write_slots, s.slots_dtype, n);
        if (read < 0 || write < 0) {
            continue;
        }
        for (int64_t m = 0; m < s.num_seqs; m++) {
            const int64_t other_read = load_index(s.read_slots, s.slots_dtype, m);
            const int64_t other_write = load_index(s.write_slots, s.slots_dtype, m);
            if (m != n && other_read >= 0 && other_write >= 0 && (other_read == write || other_write == write)) {
                report_fault(s.fault, GDN_FAULT_SLOT_CONFLICT, n, write);
                break;
            }
        }
    }
}

/* The sequence a token belongs to, or -1. */
__device__ int64_t sequence_of(const gdn_schedule &s, int64_t token)
{
    if (s.equal_length) {
        return token / s.row_length;
    }
    int64_t low = 0;
    int64_t high = s.num_seqs; /* the first bound past the token is in low + 1..high, if any */
    if (load_index(s.cu_seqlens, s.cu_dtype, s.num_seqs) <= token) {
        return -1;
    }
    while (low + 1 < high) {
        const int64_t middle = (low + high) / 2;
        if (load_index(s.cu_seqlens, s.cu_dtype, middle) <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

__global__ void check_gates_kernel(const gdn_schedule s, const Rows gate, int32_t form, int32_t num_heads)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    const int64_t count = s.total_tokens * num_heads;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += stride) {
        const int64_t token = i / num_heads;
        const int head = static_cast<int>(i % num_heads);
        const int64_t n = sequence_of(s, token);
        if (n < 0 || (s.read_slots && load_index(s.read_slots, s.slots_dtype, n) < 0) ||
            (s.write_slots && load_index(s.write_slots, s.slots_dtype, n) < 0)) {
            continue;
        }
        const int64_t at = (s.equal_length ? n * gate.row_stride + (token - n * s.row_length) * gate.token_stride
                                           : token * gate.token_stride) +
                           head * gate.head_stride;
        const float x = load_element(gate.data, gate.dtype, at);
        if (x > (form == GDN_GATE_DECAY ? 1.0f : 0.0f) || (form == GDN_GATE_DECAY && x < 0.0f)) {
            report_fault(s.fault, GDN_FAULT_GATE, token, head);
        }
    }
}

gdn_status check(const gdn_prefill_run *run, const gdn_schedule &s)
{
    clear_fault_kernel<<<1, 1, 0, stream_of(run)>>>(s.fault);
    GDN_TRY(gdn_cuda_launched("clear_fault"));
    if (s.write_slots != nullptr && s.num_seqs > 0) {
        check_conflicts_kernel<<<grid_size((s.num_seqs + kThreads - 1) / kThreads), kThreads, 0, stream_of(run)>>>(s);
        GDN_TRY(gdn_cuda_launched("check_conflicts"));
    }
    const int64_t gates = s.total_tokens * run->problem->num_v_heads;
    if (run->problem->gate_form != GDN_GATE_RAW && gates > 0 && s.num_seqs > 0) {
        check_gates_kernel<<<grid_size((gates + kThreads - 1) / kThreads), kThreads, 0, stream_of(run)>>>(
            s, rows_of(run, run->problem->gate, run->args->gate), run->problem->gate_form, run->problem->num_v_heads);
        GDN_TRY(gdn_cuda_launched("check_gates"));
    }
    return GDN_OK;
}

} // namespace
} // namespace gdn

using namespace gdn;

void gdn_cuda_describe(const gdn_prefill_run *run, int32_t chunk_size, gdn_schedule *schedule)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    gdn_schedule &s = *schedule;
    s = {};
    s.num_seqs = args->num_seqs;
    s.total_tokens = args->total_tokens;
    s.max_seqlen = problem->max_seqlen > 0 ? problem->max_seqlen : problem->max_tokens;
    s.row_length = row_length(run);
    s.num_slots = args->num_slots;
    s.num_checkpoints = args->num_checkpoints;
    s.chunk_size = chunk_size;
    s.equal_length = is_equal_length(run);
    s.cu_dtype = problem->cu_seqlens_dtype;
    s.slots_dtype = problem->slots_dtype;
    s.checkpoint_form = problem->checkpoint_form;
    s.checkpoint_interval = problem->checkpoint_interval;
    s.checkpoint_dtype = problem->checkpoint_index_dtype;
    s.checked = problem->check != 0;
    s.cu_seqlens = args->cu_seqlens;
    s.read_slots = pool ? args->read_slots : nullptr;
    s.write_slots = pool ? args->write_slots : nullptr;
    s.checkpoint_positions = args->checkpoint_positions;
    s.checkpoint_offsets = args->checkpoint_offsets;
    s.fault = reinterpret_cast<gdn_metadata_fault *>(run->workspace);
}

gdn_status gdn_cuda_schedule(const gdn_device *device, const gdn_prefill_run *run, int32_t chunk_size,
                             gdn_chunk *chunks, int64_t bound, int64_t *used)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    gdn_schedule s;
    gdn_cuda_describe(run, chunk_size, &s);
    s.bound = bound;
    s.chunks = chunks;
    if (s.checked) {
        GDN_TRY(check(run, s));
    }
    constexpr int64_t kSlotsPerBlock = 8 * kScheduleThreads;
    const int64_t blocks = (bound + kSlotsPerBlock - 1) / kSlotsPerBlock;
    schedule_kernel<<<grid_size(blocks < 1 ? 1 : blocks < 64 ? blocks : 64), kScheduleThreads, 0, stream_of(run)>>>(s);
    *used = bound;
    return gdn_cuda_launched("schedule");
}
