/* The check of one row of a call's metadata (its bounds, slots and checkpoint positions), a thread a row. */
#ifndef GDN_CUDA_SCHEDULE_CUH
#define GDN_CUDA_SCHEDULE_CUH

#include "device/element.cuh"
#include "schedule.h"

namespace gdn
{

struct Bounds {
    int64_t begin, end;
};

static __device__ __forceinline__ Bounds bounds_of(const gdn_schedule &s, int64_t n)
{
    if (s.equal_length) {
        return {n * s.row_length, (n + 1) * s.row_length};
    }
    return {load_index(s.cu_seqlens, s.cu_dtype, n), load_index(s.cu_seqlens, s.cu_dtype, n + 1)};
}

/* Inclusive scan over the block, which leaves the last sum in scratch[31]; `op` is associative, 0 changes no sum. `scratch` has
 * 32 entries; the caller synchronises between uses. */
template <typename Op> __device__ __forceinline__ int64_t block_scan(int64_t x, int64_t *scratch, Op op)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, x, offset);
        if (lane >= offset) {
            x = op(other, x);
        }
    }
    if (lane == 31) {
        scratch[warp] = x;
    }
    __syncthreads();
    if (warp == 0) {
        int64_t total = lane < static_cast<int>(blockDim.x / 32) ? scratch[lane] : 0;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const int64_t other = __shfl_up_sync(0xffffffffu, total, offset);
            if (lane >= offset) {
                total = op(other, total);
            }
        }
        scratch[lane] = total;
    }
    __syncthreads();
    return warp > 0 ? op(scratch[warp - 1], x) : x;
}

struct Add {
    __device__ int64_t operator()(int64_t a, int64_t b) const
    {
        return a + b;
    }
};

struct Max {
    __device__ int64_t operator()(int64_t a, int64_t b) const
    {
        return a > b ? a : b;
    }
};

struct Verdict {
    int32_t code; /* gdn_fault */
    bool skipped; /* by a negative slot */
    int64_t value;
};

/* Positions strictly increasing in 1..length; offsets ordered and inside. */
static __device__ __forceinline__ Verdict judge_positions(const gdn_schedule &s, int64_t n, int64_t length)
{
    const int64_t first = load_index(s.checkpoint_offsets, s.checkpoint_dtype, n);
    const int64_t end = load_index(s.checkpoint_offsets, s.checkpoint_dtype, n + 1);
    if (first < 0 || end < first || end > s.num_checkpoints || (n == 0 && first != 0)) {
        return {GDN_FAULT_CHECKPOINT, false, first < 0 || n == 0 ? first : end};
    }
    int64_t last = 0;
    for (int64_t i = first; i < end; i++) {
        const int64_t position = load_index(s.checkpoint_positions, s.checkpoint_dtype, i);
        if (position <= last || position > length) {
            return {GDN_FAULT_CHECKPOINT, false, position};
        }
        last = position;
    }
    return {GDN_FAULT_NONE, false, 0};
}

/* `floor` is the largest bound before this row's that lies inside the tokens. */
static __device__ __forceinline__ Verdict judge(const gdn_schedule &s, int64_t n, const Bounds &b, int64_t floor)
{
    if (b.begin < 0 || b.begin > s.total_tokens || b.begin < floor || (n == 0 && b.begin != 0)) {
        return {GDN_FAULT_CU_SEQLENS, false, b.begin};
    }
    if (b.end < b.begin || b.end > s.total_tokens) {
        return {GDN_FAULT_CU_SEQLENS, false, b.end};
    }
    if (b.end - b.begin > s.max_seqlen) {
        return {GDN_FAULT_SEQLEN, false, b.end - b.begin};
    }
    const int64_t read = s.read_slots ? load_index(s.read_slots, s.slots_dtype, n) : 0;
    const int64_t write = s.write_slots ? load_index(s.write_slots, s.slots_dtype, n) : 0;
    const bool skipped = read < 0 || write < 0;
    if (!skipped && s.read_slots && read >= s.num_slots) {
        return {GDN_FAULT_READ_SLOT, false, read};
    }
    if (!skipped && s.write_slots && write >= s.num_slots) {
        return {GDN_FAULT_WRITE_SLOT, false, write};
    }
    if (s.checkpoint_form == GDN_CHECKPOINT_AT) {
        const Verdict verdict = judge_positions(s, n, b.end - b.begin);
        if (verdict.code != GDN_FAULT_NONE) {
            return verdict;
        }
    }
    return {GDN_FAULT_NONE, skipped, 0};
}

} // namespace gdn

#endif
