/* Timing one workload on one context. */
#ifndef GDN_TOOLS_BENCH_MEASURE_H
#define GDN_TOOLS_BENCH_MEASURE_H

#include "ceilings.h"
#include "cuda_driver.h"
#include "judge.h"
#include "timing.h"

typedef struct bench_settings {
    int64_t repeat; /* runs to time; 0: as many as min_time holds, at least 5 */
    double min_time; /* seconds */
    double budget; /* reference operations of the error columns; 0: leave them out */
    cuda_driver *driver; /* NULL: the backend computes on the host */
} bench_settings;

typedef struct bench_result {
    char backend[256]; /* the plan's line: name and description */
    char implementation[64];
    char chunk[32]; /* "64 tokens", or "" */
    size_t workspace;
    int64_t copies; /* of the data, stepped through so that no cache holds them */
    int64_t batch; /* calls timed as one run */
    int64_t tokens; /* of one call, skipped sequences left out */
    timing_summary time; /* of one call; on a GPU of one in a captured graph */
    double eager; /* on a GPU: seconds of a call queued after another, without a graph; else 0 */
    double first; /* seconds of the very first call */
    double flops, bytes; /* the least one call must do and move */
    judgement errors;
    bool judged;
    const char *stray;
} bench_result;

/* GDN_OK, or what failed: gdn_last_error() or `error` says it in one line. */
gdn_status bench_measure(gdn_context *context, const workload *load, const bench_settings *settings,
                         bench_result *result, char *error, size_t error_size);

/* The least operations of a call, as docs/performance.md counts them: on the host 6 K V a token and v head, which any
 * algorithm needs; on a GPU the dense chunk form with chunks of 64, 6 K V + 4 C V + 4 C K / r. */
double bench_min_flops(const workload *load, bool on_host);

/* Seconds no implementation can beat on a machine with these ceilings; 0: unknown. */
double bench_floor(const bench_result *result, const ceilings *limits);

#endif
