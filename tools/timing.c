#include "timing.h"

#include <stdlib.h>
#include <time.h>

static clockid_t run_clock = CLOCK_MONOTONIC;

static double read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double timing_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double timing_clock(void)
{
    return read_clock(run_clock);
}

void timing_use_processor_time(void)
{
    run_clock = CLOCK_PROCESS_CPUTIME_ID;
}

bool timing_add(timing *times, double seconds)
{
    if (times->count == TIMING_MAX_RUNS) {
        return false;
    }
    times->seconds[times->count++] = seconds;
    return true;
}

static int compare_seconds(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

timing_summary timing_summarise(timing *times)
{
    timing_summary summary = {.count = times->count};
    if (times->count == 0) {
        return summary;
    }
    qsort(times->seconds, (size_t)times->count, sizeof(double), compare_seconds);
    const int last = times->count - 1;
    const double *const sorted = times->seconds;
    summary.median = 0.5 * (sorted[last / 2] + sorted[(last + 1) / 2]);
    summary.best = sorted[0];
    summary.low = sorted[last / 10];
    summary.high = sorted[last - last / 10];
    return summary;
}

double timing_spread(const timing_summary *summary)
{
    return summary->median > 0 ? 0.5 * (summary->high - summary->low) / summary->median : 0;
}
