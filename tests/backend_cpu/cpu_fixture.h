/* What the tests of single operations share: a device, and a wave of chunks made by hand. */
#ifndef GDN_TESTS_CPU_FIXTURE_H
#define GDN_TESTS_CPU_FIXTURE_H

#include "check.h"
#include "random.h"

#include "cpu_backend.h"
#include "cpu_device.h"
#include "cpu_ops.h"
#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline void *fixture_alloc(void *user, size_t size, size_t alignment)
{
    (void)user;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static inline void fixture_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static inline void fixture_log(void *user, gdn_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static inline gdn_device_options fixture_options(int32_t num_threads, gdn_blas blas)
{
    return (gdn_device_options){
        .num_threads = num_threads,
        .blas = blas,
        .allocator = {fixture_alloc, fixture_free, NULL},
        .log = fixture_log,
    };
}

static inline gdn_device *fixture_open(int32_t num_threads, gdn_blas blas)
{
    const gdn_device_options options = fixture_options(num_threads, blas);
    gdn_device *device;
    REQUIRE_OK(gdn_backend_cpu.open(&device, &options));
    return device;
}

static inline void fixture_close(gdn_device *device)
{
    gdn_backend_cpu.close(device);
}

/* count floats of NaN: what nothing may be left of. */
static inline float *fixture_poisoned(int64_t count)
{
    const size_t bytes = (count > 0 ? (size_t)count : 1) * sizeof(float);
    float *const data = malloc(bytes);
    REQUIRE(data != NULL);
    memset(data, 0xff, bytes);
    return data;
}

static inline float *fixture_normal(test_random *random, int64_t count)
{
    float *const data = fixture_poisoned(count);
    for (int64_t i = 0; i < count; i++) {
        data[i] = (float)random_normal(random);
    }
    return data;
}

/* One wave of all the chunks of packed sequences of the given lengths. */
typedef struct fixture_wave {
    gdn_problem problem;
    gdn_prefill_args args;
    gdn_prefill_run run;
    gdn_wave wave;
    int64_t cu[65];
    gdn_chunk *chunks;
} fixture_wave;

static inline void fixture_wave_open(fixture_wave *f, int32_t H, int32_t HV, int32_t K, int32_t V, int32_t chunk_size,
                                     int32_t num_seqs, const int64_t *lengths)
{
    memset(f, 0, sizeof(*f));
    REQUIRE_OK(gdn_problem_init(&f->problem, H, HV, K, V));
    REQUIRE_OK(gdn_prefill_args_init(&f->args));
    for (int32_t n = 0; n < num_seqs; n++) {
        f->cu[n + 1] = f->cu[n] + lengths[n];
        f->problem.max_seqlen = lengths[n] > f->problem.max_seqlen ? lengths[n] : f->problem.max_seqlen;
    }
    f->problem.max_seqs = num_seqs;
    f->problem.max_tokens = f->cu[num_seqs];
    f->args.num_seqs = num_seqs;
    f->args.total_tokens = f->cu[num_seqs];
    f->args.cu_seqlens = f->cu;
    f->run = (gdn_prefill_run){.problem = &f->problem, .args = &f->args};
    const int64_t bound = gdn_schedule_bound(&f->problem, chunk_size);
    int64_t used;
    f->chunks = malloc((size_t)bound * sizeof(gdn_chunk));
    REQUIRE(f->chunks != NULL);
    REQUIRE_OK(gdn_schedule_chunks(&f->problem, &f->args, chunk_size, f->chunks, bound, &used));
    int32_t *const lane_slot = malloc((size_t)(used * used) * sizeof(int32_t));
    REQUIRE(lane_slot != NULL);
    f->wave = (gdn_wave){.chunk_size = chunk_size,
                         .num_slots = (int32_t)used,
                         .num_lanes = (int32_t)used,
                         .num_steps = (int32_t)used,
                         .chunks = f->chunks,
                         .lane_slot = lane_slot};
    gdn_schedule_wave(&f->wave);
}

static inline void fixture_wave_close(fixture_wave *f)
{
    free(f->chunks);
    free(f->wave.lane_slot);
}

/* The thread counts that every operation's bits are compared over. */
static const int32_t fixture_threads[] = {1, 2, 3, 7, 17};

#endif
