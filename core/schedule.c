#include "schedule.h"

#include "numeric.h"

int64_t gdn_schedule_max_chunks(const gdn_problem *problem, int32_t chunk_size)
{
    const int64_t longest = problem->max_seqlen > 0 ? problem->max_seqlen : problem->max_tokens;
    const int64_t chunks = longest / chunk_size + (longest % chunk_size != 0);
    return chunks > 0 ? chunks : 1;
}

int64_t gdn_schedule_bound(const gdn_problem *problem, int32_t chunk_size)
{
    /* A sequence of n tokens has at most n / C + 1 chunks, and an empty one has 1. */
    const int64_t full = problem->max_tokens / chunk_size;
    const int64_t by_tokens = full > INT64_MAX - problem->max_seqs ? INT64_MAX : full + problem->max_seqs;
    const int64_t each = gdn_schedule_max_chunks(problem, chunk_size);
    const int64_t by_length = problem->max_seqs > INT64_MAX / each ? INT64_MAX : problem->max_seqs * each;
    return by_tokens < by_length ? by_tokens : by_length;
}

void gdn_schedule_sequence(const gdn_problem *problem, const gdn_prefill_args *args, int64_t seq, int64_t *token,
                           int64_t *length)
{
    if (problem->cu_seqlens_dtype == GDN_DTYPE_NONE) {
        *length = args->total_tokens / args->num_seqs;
        *token = seq * *length;
        return;
    }
    *token = gdn_load_index(args->cu_seqlens, problem->cu_seqlens_dtype, seq);
    *length = gdn_load_index(args->cu_seqlens, problem->cu_seqlens_dtype, seq + 1) - *token;
}

bool gdn_schedule_skipped(const gdn_problem *problem, const void *read_slots, const void *write_slots, int64_t row)
{
    return problem->state_form == GDN_STATE_POOL &&
           (gdn_load_index(read_slots, problem->slots_dtype, row) < 0 ||
            (write_slots != NULL && gdn_load_index(write_slots, problem->slots_dtype, row) < 0));
}

gdn_status gdn_schedule_chunks(const gdn_problem *problem, const gdn_prefill_args *args, int32_t chunk_size,
                               gdn_chunk *chunks, int64_t bound, int64_t *used)
{
    int64_t count = 0;
    for (int64_t seq = 0; seq < args->num_seqs; seq++) {
        if (gdn_schedule_skipped(problem, args->read_slots, args->write_slots, seq)) {
            continue;
        }
        int64_t token;
        int64_t length;
        gdn_schedule_sequence(problem, args, seq, &token, &length);
        const int64_t num_chunks = length == 0 ? 1 : length / chunk_size + (length % chunk_size != 0);
        if (num_chunks > bound - count) {
            return gdn_fail(GDN_ERROR_INTERNAL,
                            "chunk schedule: sequence %lld needs %lld chunks, %lld of %lld are left", (long long)seq,
                            (long long)num_chunks, (long long)(bound - count), (long long)bound);
        }
        for (int64_t index = 0; index < num_chunks; index++) {
            const int64_t left = length - index * chunk_size;
            chunks[count++] = (gdn_chunk){
                .token = token + index * chunk_size,
                .seq = (int32_t)seq,
                .index = (int32_t)index,
                .length = left < chunk_size ? (int32_t)left : chunk_size,
                .last = index + 1 == num_chunks,
            };
        }
    }
    *used = count;
    for (int64_t slot = count; slot < bound; slot++) {
        chunks[slot] = (gdn_chunk){.seq = -1};
    }
    return GDN_OK;
}

void gdn_schedule_wave(gdn_wave *wave)
{
    int32_t lanes = 0;
    int32_t steps = 0;
    int32_t step = 0;
    for (int32_t slot = 0; slot < wave->num_slots && wave->chunks[slot].seq >= 0; slot++) {
        const bool same = slot > 0 && wave->chunks[slot].seq == wave->chunks[slot - 1].seq;
        step = same ? step + 1 : 0;
        lanes += !same;
        steps = step + 1 > steps ? step + 1 : steps;
    }
    wave->num_lanes = lanes;
    wave->num_steps = steps;

    for (int32_t i = 0; i < lanes * steps; i++) {
        wave->lane_slot[i] = -1;
    }
    int32_t lane = -1;
    for (int32_t slot = 0; slot < wave->num_slots && wave->chunks[slot].seq >= 0; slot++) {
        const bool same = slot > 0 && wave->chunks[slot].seq == wave->chunks[slot - 1].seq;
        step = same ? step + 1 : 0;
        lane += !same;
        wave->lane_slot[step * lanes + lane] = slot;
    }
}
