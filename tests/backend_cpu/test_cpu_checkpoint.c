/* Which lanes have a checkpoint inside their chunk: every entry found once, against a plain count. */
#include "cpu_fixture.h"

enum { C = 16, MOST = 400 };

static const int64_t lengths[] = {50, 0, 16, 3, 33, 15};

typedef struct expected {
    int64_t seq, position;
} expected;

/* Runs find_checkpoints over waves of `wave_chunks` and marks what it reports. */
static void find_all(fixture_wave *f, int32_t wave_chunks, int32_t rounds, const expected *entries, int64_t count)
{
    gdn_device *const device = fixture_open(1, GDN_BLAS_OFF);
    int32_t times[MOST] = {0};
    int32_t ends[64];
    int64_t found[64];
    for (int32_t first = 0; first < f->wave.num_slots; first += wave_chunks) {
        const int32_t left = f->wave.num_slots - first;
        int32_t lane_slot[64 * 64];
        gdn_wave wave = {.chunk_size = C,
                         .num_slots = left < wave_chunks ? left : wave_chunks,
                         .chunks = f->chunks + first,
                         .lane_slot = lane_slot};
        gdn_schedule_wave(&wave);
        for (int32_t step = 0; step < wave.num_steps; step++) {
            bool more = true;
            for (int32_t round = 0; round <= rounds; round++) {
                bool any;
                REQUIRE_OK(gdn_cpu_find_checkpoints(device, &f->run, &wave, step, round, ends, found, &any));
                bool seen = false;
                for (int32_t lane = 0; lane < wave.num_lanes; lane++) {
                    const int32_t slot = wave.lane_slot[step * wave.num_lanes + lane];
                    if (found[lane] < 0) {
                        assert_int_equal(ends[lane], 0);
                        continue;
                    }
                    seen = true;
                    assert_in_range(found[lane], 0, count - 1);
                    const gdn_chunk *const chunk = &wave.chunks[slot];
                    times[found[lane]]++;
                    assert_int_equal(chunk->seq, entries[found[lane]].seq);
                    assert_int_equal(chunk->index * C + ends[lane], entries[found[lane]].position);
                    assert_in_range(ends[lane], 1, chunk->length);
                }
                assert_int_equal(any, seen);
                assert_true(more || !seen); /* none after a round without */
                more = seen;
            }
            assert_false(more); /* `rounds` is enough */
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const bool skipped = f->args.read_slots && ((const int64_t *)f->args.read_slots)[entries[i].seq] < 0;
        assert_int_equal(times[i], !skipped);
    }
    fixture_close(device);
}

static void every_n_tokens(void **unused)
{
    (void)unused;
    static const int32_t intervals[] = {1, 2, 3, 7, 15, 16, 17, 32, 33, 50, 51, 2147483647};
    for (size_t i = 0; i < COUNT_OF(intervals); i++) {
        expected entries[MOST];
        int64_t count = 0;
        for (int64_t seq = 0; seq < (int64_t)COUNT_OF(lengths); seq++) {
            for (int64_t p = intervals[i]; p <= lengths[seq]; p += intervals[i]) {
                entries[count++] = (expected){seq, p};
            }
        }
        fixture_wave f;
        fixture_wave_open(&f, 1, 1, 4, 4, C, COUNT_OF(lengths), lengths);
        f.problem.checkpoint_form = GDN_CHECKPOINT_EVERY;
        f.problem.checkpoint_interval = intervals[i];
        const int32_t rounds = (C - 1) / intervals[i] + 1;
        find_all(&f, 64, rounds, entries, count);
        find_all(&f, 1, rounds, entries, count);
        find_all(&f, 3, rounds, entries, count);
        fixture_wave_close(&f);
    }
}

/* A skipped sequence's entries keep their places. */
static void skipped_sequences_keep_their_places(void **unused)
{
    (void)unused;
    expected entries[MOST];
    int64_t count = 0;
    for (int64_t seq = 0; seq < (int64_t)COUNT_OF(lengths); seq++) {
        for (int64_t p = 5; p <= lengths[seq]; p += 5) {
            entries[count++] = (expected){seq, p};
        }
    }
    const int64_t slots[] = {-1, 0, 1, -5, 2, 3};
    fixture_wave f;
    fixture_wave_open(&f, 1, 1, 4, 4, C, COUNT_OF(lengths), lengths);
    f.problem.checkpoint_form = GDN_CHECKPOINT_EVERY;
    f.problem.checkpoint_interval = 5;
    f.problem.state_form = GDN_STATE_POOL;
    f.args.read_slots = slots;
    int64_t used;
    const int64_t bound = gdn_schedule_bound(&f.problem, C);
    REQUIRE_OK(gdn_schedule_chunks(&f.problem, &f.args, C, f.chunks, bound, &used));
    f.wave.num_slots = (int32_t)used;
    find_all(&f, 4, 4, entries, count);
    fixture_wave_close(&f);
}

static void at_given_positions(void **unused)
{
    (void)unused;
    static const int32_t positions32[] = {1, 15, 16, 17, 49, 50, 16, 2,  3,  33, 1,  2, 3,
                                          4, 5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15};
    static const int32_t offsets32[] = {0, 6, 6, 7, 9, 10, 25};
    int64_t positions[25], offsets[7];
    expected entries[25];
    for (int i = 0; i < 25; i++) {
        positions[i] = positions32[i];
    }
    for (int n = 0; n < 7; n++) {
        offsets[n] = offsets32[n];
        for (int64_t i = n < 6 ? offsets32[n] : 25; i < (n < 6 ? offsets32[n + 1] : 25); i++) {
            entries[i] = (expected){n, positions32[i]};
        }
    }
    for (int wide = 0; wide < 2; wide++) {
        fixture_wave f;
        fixture_wave_open(&f, 1, 1, 4, 4, C, COUNT_OF(lengths), lengths);
        f.problem.checkpoint_form = GDN_CHECKPOINT_AT;
        f.problem.checkpoint_index_dtype = wide ? GDN_DTYPE_I64 : GDN_DTYPE_I32;
        f.args.checkpoint_positions = wide ? (const void *)positions : positions32;
        f.args.checkpoint_offsets = wide ? (const void *)offsets : offsets32;
        find_all(&f, 64, C, entries, 25);
        find_all(&f, 2, C, entries, 25);
        fixture_wave_close(&f);
    }
}

static void only_named_entries_are_stored(void **unused)
{
    (void)unused;
    enum { HV = 2, K = 5, V = 6 };
    const int64_t two[] = {4, 4};
    fixture_wave f;
    fixture_wave_open(&f, 1, HV, K, V, C, 2, two);
    f.problem.checkpoints = (gdn_state_layout){
        .dtype = GDN_DTYPE_F32, .slot_stride = HV * K * V, .head_stride = K * V, .v_stride = 1, .k_stride = V};
    float *const S = fixture_poisoned((int64_t)2 * HV * K * V);
    for (int i = 0; i < 2 * HV * K * V; i++) {
        S[i] = (float)i;
    }
    float *const stored = fixture_poisoned((int64_t)3 * HV * K * V);
    f.args.checkpoints = stored;
    const int64_t entries[] = {-1, 2};
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_store_checkpoints(device, &f.run, &f.wave, entries, S));
    fixture_close(device);
    for (int i = 0; i < 2 * HV * K * V; i++) {
        assert_true(isnan(stored[i]));
    }
    assert_memory_equal(stored + 2 * HV * K * V, S + HV * K * V, HV * K * V * sizeof(float));
    free(S);
    free(stored);
    fixture_wave_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_n_tokens),
        cmocka_unit_test(skipped_sequences_keep_their_places),
        cmocka_unit_test(at_given_positions),
        cmocka_unit_test(only_named_entries_are_stored),
    };
    return cmocka_run_group_tests_name("cpu_checkpoint", tests, NULL, NULL);
}
