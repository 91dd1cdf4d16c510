/* What the state kernel's warps share: sizes, the map of shared memory, and the run a block works off. */
#ifndef GDN_CUDA_FUSED_PREFILL_RUN_CUH
#define GDN_CUDA_FUSED_PREFILL_RUN_CUH

#include "device/tile.cuh"
#include "fused_prefill.h"

namespace gdn
{
namespace
{

constexpr int kBlocks = kChunk / 16;
constexpr int kStagedRecord = (GDN_FUSED_STAGED + 1023) / 1024 * 1024;

constexpr int kMaxWarps = 4; /* compute warps; with as many copy warps they may have 255 registers a thread */
constexpr int kCopyWarps = 4;
constexpr int kCopyThreads = kCopyWarps * 32;

static_assert(GDN_FUSED_STAGED % 16 == 0 && GDN_FUSED_RECORD % 16 == 0, "records are copied in 16-byte pieces");
static_assert(GDN_FUSED_P == GDN_FUSED_A + 10 * 512 && GDN_FUSED_DECAY_K == GDN_FUSED_P + 10 * 512,
              "A' and P are ten blocks of 512 bytes");

/* One stage: k tile | q tile | v tile | record. Stages and both wide tiles start at multiples of 1024 bytes, so that the
 * XOR of a piece's number is an XOR of the address. Behind the stages comes the Run. */
template <int K> struct StageMap {
    static constexpr uint32_t kQ = kChunk * K * 2;
    static constexpr uint32_t kV = 2 * kQ;

    static __host__ __device__ __forceinline__ uint32_t record(int warps)
    {
        return kV + kChunk * 16 * 2 * static_cast<uint32_t>(warps);
    }

    static __host__ __device__ __forceinline__ uint32_t bytes(int warps)
    {
        return record(warps) + kStagedRecord;
    }
};

/* Barriers of stage `stage`. Loads: the copy warps arrive once a chunk has landed, the compute warps wait. Uses: the compute
 * warps arrive once they are done with it and have left O, the copy warps wait. Neither side can come around to a stage's
 * barrier again before the other has left it, since each waits for the other once a round. */
__device__ __forceinline__ int loads_barrier(int stage)
{
    return 1 + stage;
}

__device__ __forceinline__ int uses_barrier(int stage)
{
    return 1 + GDN_FUSED_MAX_STAGES + stage;
}

static_assert(2 * GDN_FUSED_MAX_STAGES < 16, "a block has 16 barriers");

__device__ __forceinline__ int block_threads(const gdn_fused_prefill &p)
{
    return 32 * (p.warps + kCopyWarps);
}

/* The chunks of one sequence in this wave. */
struct Run {
    int64_t token; /* of the first chunk */
    int seq;
    int head, k_head;
    int v0; /* the block's first column of V */
    int first_slot; /* in the wave */
    int count; /* chunks */
    int index; /* of the first chunk in its sequence */
    int last_length; /* tokens of the last chunk */
    int last; /* the sequence ends in this wave */
    int some; /* 0: there is no run */
};

__device__ __forceinline__ int64_t run_base(const gdn_fused_prefill &p, const gdn_fused_operand &x, const Run &run)
{
    return p.equal_length ? run.seq * x.row_stride + static_cast<int64_t>(run.index) * kChunk * x.token_stride
                          : run.token * x.token_stride;
}

/* The first slot of the wave whose sequence is `seq` or a later one, by a 32-way search of one warp. */
__device__ __forceinline__ int find_slot(const gdn_fused_prefill &p, int seq)
{
    const gdn_chunk *const chunks = p.chunks + p.wave_begin;
    const int lane = threadIdx.x % 32;
    int low = 0, high = p.wave_slots;
    while (low < high) {
        const int step = (high - low + 31) / 32;
        const int probe = low + lane * step;
        /* Unused slots, at the end, have seq -1: larger than any as an unsigned number. */
        const bool before = probe < high && static_cast<unsigned>(chunks[probe].seq) < static_cast<unsigned>(seq);
        const int count = __popc(__ballot_sync(0xffffffffu, before));
        high = min(high, low + count * step);
        low = count == 0 ? low : low + (count - 1) * step + 1;
    }
    return low;
}

/* One warp: the run of the first sequence from `seq` on, in steps of p.lanes, that has chunks in this wave. False: none. */
__device__ __forceinline__ bool find_run(const gdn_fused_prefill &p, int seq, Run &run)
{
    const gdn_chunk *const chunks = p.chunks + p.wave_begin;
    for (;; seq += p.lanes) {
        const int begin = find_slot(p, seq);
        if (begin == p.wave_slots || chunks[begin].seq < 0) {
            return false;
        }
        const gdn_chunk first = chunks[begin];
        if (first.seq != seq) {
            continue; /* skipped */
        }
        const int end = find_slot(p, seq + 1);
        const gdn_chunk last = chunks[end - 1];
        run.seq = seq;
        run.first_slot = begin;
        run.count = last.length > 0 ? end - begin : 0; /* an empty sequence passes its state on */
        run.token = first.token;
        run.index = first.index;
        run.last_length = last.length;
        run.last = last.last;
        return true;
    }
}

} // namespace
} // namespace gdn

#endif
