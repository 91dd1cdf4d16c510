/* Which lanes have a checkpoint inside their chunk, and the storing of it. */
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"
#include "cpu_state_io.h"
#include "schedule.h"

/* "every n": the entries of the sequences before `seq`. Skipped sequences keep their places. *from and *sum carry on
 * from an earlier sequence. */
static int64_t entries_before(const gdn_prefill_run *run, int64_t seq, int64_t *from, int64_t *sum)
{
    for (; *from < seq; (*from)++) {
        int64_t token;
        int64_t length;
        gdn_schedule_sequence(run->problem, run->args, *from, &token, &length);
        *sum += length / run->problem->checkpoint_interval;
    }
    return *sum;
}

/* The first index in first..end-1 whose position is past `start`; positions increase. */
static int64_t first_past(const gdn_prefill_run *run, int64_t first, int64_t end, int64_t start)
{
    while (first < end) {
        const int64_t middle = first + (end - first) / 2;
        const gdn_dtype dtype = run->problem->checkpoint_index_dtype;
        if (gdn_load_index(run->args->checkpoint_positions, dtype, middle) > start) {
            end = middle;
        } else {
            first = middle + 1;
        }
    }
    return first;
}

gdn_status gdn_cpu_find_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                    int32_t step, int32_t round, int32_t *ends, int64_t *entries, bool *any)
{
    (void)device;
    const gdn_problem *const problem = run->problem;
    const bool every = problem->checkpoint_form == GDN_CHECKPOINT_EVERY;
    const gdn_dtype dtype = problem->checkpoint_index_dtype;
    int64_t from = 0;
    int64_t sum = 0;
    *any = false;
    for (int32_t lane = 0; lane < wave->num_lanes; lane++) {
        ends[lane] = 0;
        entries[lane] = -1;
        const int32_t slot = wave->lane_slot[(int64_t)step * wave->num_lanes + lane];
        if (slot < 0) {
            continue;
        }
        const gdn_chunk *const chunk = &wave->chunks[slot];
        const int64_t start = (int64_t)chunk->index * wave->chunk_size;
        int64_t position;
        int64_t entry;
        if (every) {
            const int64_t nth = start / problem->checkpoint_interval + round; /* from 0 */
            position = (nth + 1) * problem->checkpoint_interval;
            entry = entries_before(run, chunk->seq, &from, &sum) + nth;
        } else {
            const int64_t end = gdn_load_index(run->args->checkpoint_offsets, dtype, chunk->seq + 1);
            entry =
                first_past(run, gdn_load_index(run->args->checkpoint_offsets, dtype, chunk->seq), end, start) + round;
            if (entry >= end) {
                continue;
            }
            position = gdn_load_index(run->args->checkpoint_positions, dtype, entry);
        }
        if (position <= start + chunk->length) {
            ends[lane] = (int32_t)(position - start);
            entries[lane] = entry;
            *any = true;
        }
    }
    return GDN_OK;
}

typedef struct store_task {
    const gdn_problem *problem;
    const int64_t *entries;
    const float *S;
    void *checkpoints;
} store_task;

static void store_range(const void *data, int64_t begin, int64_t end)
{
    const store_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    for (int64_t i = begin; i < end; i++) {
        const int64_t entry = task->entries[i / problem->num_v_heads];
        if (entry >= 0) {
            gdn_cpu_state_store(task->checkpoints, &problem->checkpoints,
                                gdn_cpu_state_offset(&problem->checkpoints, entry, i % problem->num_v_heads), K, V,
                                task->S + i * K * V);
        }
    }
}

gdn_status gdn_cpu_store_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                     const int64_t *entries, const float *S)
{
    const store_task task = {run->problem, entries, S, run->args->checkpoints};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_lanes * run->problem->num_v_heads,
                         run->problem->head_k_dim * run->problem->head_v_dim, store_range, &task);
    return GDN_OK;
}
