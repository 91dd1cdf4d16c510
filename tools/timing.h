/* Wall-clock times of repeated runs and what is said of them. */
#ifndef GDN_TOOLS_TIMING_H
#define GDN_TOOLS_TIMING_H

#include <stdbool.h>
#include <stddef.h>

double timing_now(void); /* seconds on a clock that never goes back */

/* Seconds on the clock that runs are timed by: that one, or the processor time of the whole process, which other work on
 * the machine disturbs less. It means the same as wall time where the process has one busy thread. */
double timing_clock(void);
void timing_use_processor_time(void);

#define TIMING_MAX_RUNS 4096

typedef struct timing {
    double seconds[TIMING_MAX_RUNS];
    int count;
} timing;

typedef struct timing_summary {
    double median, best; /* seconds */
    double low, high; /* the 10th and 90th percentile */
    int count;
} timing_summary;

/* False when there is no more room. */
bool timing_add(timing *times, double seconds);
timing_summary timing_summarise(timing *times); /* sorts */

/* Half of high - low, as a share of the median. */
double timing_spread(const timing_summary *summary);

#endif
