/* The chunk table: every token in exactly one chunk, bounds that hold, waves whose steps follow one another. */
#include "check.h"
#include "random.h"
#include "schedule.h"

#include <string.h>

enum { MAX_SEQS = 12, MAX_TOKENS = 400, MAX_CHUNKS = MAX_SEQS + MAX_TOKENS };

static void chunks_cover_every_token_once(void **unused)
{
    (void)unused;
    test_random random = random_stream(401, 0);
    for (int round = 0; round < 2000; round++) {
        int64_t cu[MAX_SEQS + 1] = {0}, slots[MAX_SEQS];
        const int64_t seqs = 1 + random_index(&random, MAX_SEQS);
        int64_t longest = 0;
        for (int64_t n = 0; n < seqs; n++) {
            const int64_t length = random_index(&random, 3) == 0 ? 0 : random_index(&random, 34);
            cu[n + 1] = cu[n] + length;
            longest = length > longest ? length : longest;
            slots[n] = random_index(&random, 5) == 0 ? -1 : n;
        }
        gdn_problem p;
        REQUIRE_OK(gdn_problem_init(&p, 1, 1, 8, 8));
        p.max_seqs = seqs;
        p.max_tokens = cu[seqs] > 0 ? cu[seqs] : 1;
        p.max_seqlen = longest > 0 ? longest : 1;
        p.state_form = GDN_STATE_POOL;
        gdn_prefill_args args;
        REQUIRE_OK(gdn_prefill_args_init(&args));
        args.num_seqs = seqs;
        args.total_tokens = cu[seqs];
        args.cu_seqlens = cu;
        args.read_slots = slots;
        const int32_t C = (int32_t)(1 + random_index(&random, 20));
        const int64_t bound = gdn_schedule_bound(&p, C);
        assert_true(bound <= MAX_CHUNKS);
        gdn_chunk chunks[MAX_CHUNKS];
        int64_t used = -1;
        REQUIRE_OK(gdn_schedule_chunks(&p, &args, C, chunks, bound, &used));
        int seen[MAX_TOKENS] = {0}, of_seq[MAX_SEQS] = {0};
        for (int64_t i = 0; i < used; i++) {
            const gdn_chunk *const chunk = &chunks[i];
            assert_true(chunk->seq >= 0 && chunk->seq < seqs && slots[chunk->seq] >= 0);
            assert_true(i == 0 || chunk->seq >= chunks[i - 1].seq);
            assert_int_equal(chunk->index, of_seq[chunk->seq]++);
            assert_int_equal(chunk->token, cu[chunk->seq] + (int64_t)chunk->index * C);
            assert_true(chunk->length >= 0 && chunk->length <= C);
            assert_true(chunk->length == C || chunk->last);
            assert_int_equal(chunk->last, chunk->token + chunk->length == cu[chunk->seq + 1]);
            for (int64_t t = 0; t < chunk->length; t++) {
                seen[chunk->token + t]++;
            }
        }
        for (int64_t i = used; i < bound; i++) {
            assert_int_equal(chunks[i].seq, -1);
        }
        for (int64_t n = 0; n < seqs; n++) {
            assert_int_equal(of_seq[n] > 0, slots[n] >= 0);
            for (int64_t t = cu[n]; t < cu[n + 1]; t++) {
                assert_int_equal(seen[t], slots[n] >= 0);
            }
        }
    }
}

static void a_wave_runs_each_sequence_in_order(void **unused)
{
    (void)unused;
    /* Sequences 3 (its chunks 2, 3), 4 (one), 6 (three), then unused slots. */
    gdn_chunk chunks[8];
    memset(chunks, 0, sizeof(chunks));
    static const int32_t seqs[] = {3, 3, 4, 6, 6, 6, -1, -1};
    for (int i = 0; i < 8; i++) {
        chunks[i].seq = seqs[i];
    }
    int32_t lane_slot[64];
    gdn_wave wave = {
        .chunk_size = 16, .num_slots = 8, .num_lanes = 8, .num_steps = 8, .chunks = chunks, .lane_slot = lane_slot};
    gdn_schedule_wave(&wave);
    assert_int_equal(wave.num_lanes, 3);
    assert_int_equal(wave.num_steps, 3);
    static const int32_t want[3][3] = {{0, 2, 3}, {1, -1, 4}, {-1, -1, 5}};
    for (int step = 0; step < 3; step++) {
        for (int lane = 0; lane < 3; lane++) {
            assert_int_equal(lane_slot[step * 3 + lane], want[step][lane]);
        }
    }
}

static void bounds_hold_for_enormous_maxima(void **unused)
{
    (void)unused;
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 8, 8));
    p.max_seqs = INT32_MAX;
    p.max_tokens = (int64_t)1 << 58;
    p.max_seqlen = p.max_tokens;
    for (int32_t C = 1; C <= 64; C *= 8) {
        assert_true(gdn_schedule_bound(&p, C) >= p.max_tokens / C);
        assert_true(gdn_schedule_max_chunks(&p, C) >= p.max_tokens / C);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_every_token_once),
        cmocka_unit_test(a_wave_runs_each_sequence_in_order),
        cmocka_unit_test(bounds_hold_for_enormous_maxima),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
