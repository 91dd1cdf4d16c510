/* What the schedule kernel does, for fused runs that do without it: which sequences are to be computed, where their chunks
 * would lie in a chunk table, and the fault word. Of up to GDN_SM90_MOST_PLANNED sequences, without checkpoints and without
 * the checks of gdn_problem.check. */
#ifndef GDN_CUDA_SM90_FUSED_PLAN_CUH
#define GDN_CUDA_SM90_FUSED_PLAN_CUH

#include "../schedule.cuh"
#include "prefill.h"

namespace gdn
{
namespace sm90
{

/* The sequences, as a block has judged them. */
struct Plan {
    int64_t scratch[32];
    int ends[GDN_SM90_MOST_PLANNED]; /* of each sequence's chunks, where those that are not computed have none */
    int begins[GDN_SM90_MOST_PLANNED]; /* tokens */
    int lengths[GDN_SM90_MOST_PLANNED];
    int first_fault;
};

/* What a thread knows of the row of its number. */
struct PlannedRow {
    Bounds bounds;
    Verdict verdict;

    __device__ __forceinline__ bool kept() const
    {
        return verdict.code == GDN_FAULT_NONE && !verdict.skipped;
    }
};

/* All threads, at least one a sequence. */
__device__ __forceinline__ PlannedRow judge_row(const gdn_schedule &s, int64_t *scratch)
{
    const int64_t n = threadIdx.x;
    const bool live = n < s.num_seqs;
    PlannedRow row = {{0, 0}, {GDN_FAULT_NONE, true, 0}};
    if (live) {
        row.bounds = bounds_of(s, n);
    }
    /* The largest bound so far that lies inside the tokens. */
    const bool inside = live && row.bounds.begin >= 0 && row.bounds.begin <= s.total_tokens;
    const int64_t floor = block_scan(inside ? row.bounds.begin : 0, scratch, Max());
    if (live) {
        row.verdict = judge(s, n, row.bounds, floor);
    }
    return row;
}

/* All threads: the fault of the lowest row that has one, or that there is none. */
__device__ __forceinline__ void report_row(const gdn_schedule &s, const PlannedRow &row, int *first_fault)
{
    if (threadIdx.x == 0) {
        *first_fault = GDN_SM90_MOST_PLANNED;
        *s.fault = gdn_metadata_fault{};
    }
    __syncthreads();
    if (row.verdict.code != GDN_FAULT_NONE) {
        atomicMin(first_fault, static_cast<int>(threadIdx.x));
    }
    __syncthreads();
    if (*first_fault == static_cast<int>(threadIdx.x) && *first_fault < s.num_seqs) {
        *s.fault = gdn_metadata_fault{row.verdict.code, 0, threadIdx.x, row.verdict.value};
    }
}

/* All threads of each block: the plan; the first block also leaves `runs` and the fault word, and no items taken. */
__device__ __forceinline__ void plan_sequences(const gdn_sm90_prefill &p, Plan &plan)
{
    const PlannedRow row = judge_row(p.schedule, plan.scratch);
    __syncthreads();
    const int64_t length = row.bounds.end - row.bounds.begin;
    const int64_t count = !row.kept() ? 0 : length > 0 ? (length + GDN_SM90_CHUNK - 1) / GDN_SM90_CHUNK : 1;
    const int end = static_cast<int>(block_scan(count, plan.scratch, Add()));
    plan.ends[threadIdx.x] = end;
    plan.begins[threadIdx.x] = static_cast<int>(row.bounds.begin);
    plan.lengths[threadIdx.x] = static_cast<int>(length);
    if (blockIdx.x == 0) {
        report_row(p.schedule, row, &plan.first_fault);
        if (threadIdx.x < p.num_seqs) {
            const int first = end - static_cast<int>(count);
            p.runs[threadIdx.x] = row.kept() ? gdn_sm90_run{first, end} : gdn_sm90_run{-1, -1};
        }
        if (threadIdx.x == 0) {
            *p.next_item = 0;
        }
        for (int n = threadIdx.x; p.share > 0 && n < p.share_blocks; n += blockDim.x) {
            p.passed[n].index = 0;
        }
    }
    __syncthreads();
}

/* The chunk of a slot; seq -1 past the last. */
__device__ __forceinline__ gdn_chunk planned_chunk(const Plan &plan, int slot)
{
    gdn_chunk chunk = {0, -1, 0, 0, 0};
    int low = 0, high = GDN_SM90_MOST_PLANNED - 1; /* the first sequence whose chunks end past the slot */
    if (slot >= plan.ends[high]) {
        return chunk;
    }
    while (low < high) {
        const int middle = (low + high) / 2;
        if (plan.ends[middle] > slot) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const int index = slot - (low > 0 ? plan.ends[low - 1] : 0);
    const int left = plan.lengths[low] - index * GDN_SM90_CHUNK;
    chunk.token = plan.begins[low] + index * GDN_SM90_CHUNK;
    chunk.seq = low;
    chunk.index = index;
    chunk.length = min(left, GDN_SM90_CHUNK);
    chunk.last = left <= GDN_SM90_CHUNK;
    return chunk;
}

} // namespace sm90
} // namespace gdn

#endif
