/* How many threads a call uses, and loops over independent items on them. The fused paths open their own teams
 * (fused_prefill.c, fused_decode.c). */
#ifndef GDN_CPU_PARALLEL_H
#define GDN_CPU_PARALLEL_H

#include "cpu_device.h"

/* Items begin..end-1 of a loop whose items touch disjoint outputs. */
typedef void (*gdn_cpu_range_fn)(const void *task, int64_t begin, int64_t end);

/* Runs fn over 0..count-1 on the device's threads, each in the library's float mode. `cost` is what one item takes, in
 * nanoseconds to within a factor of a few: little work is done by the calling thread alone, since waking others takes
 * longer, and longer still on a busy machine. Which thread takes which items is not fixed, so fn must compute an item
 * the same way wherever it runs. */
void gdn_cpu_parallel_for(const gdn_device *device, int64_t count, int64_t cost, gdn_cpu_range_fn fn, const void *task);

/* Threads a call on the device uses now: its own number, or 1 in a forked child that cannot have them. Who asks is taken
 * to use them. */
int32_t gdn_cpu_num_threads(const gdn_device *device);

/* The same for a call of so many nanoseconds of work on one thread, to within a factor of a few: 1 where waking others
 * would take longer. */
int32_t gdn_cpu_team(const gdn_device *device, double nanoseconds);

/* The most that can ever be for so much work: what a plan books scratch for. */
int32_t gdn_cpu_most_team(const gdn_device *device, double nanoseconds);

/* libgomp's threads do not survive fork(), and a child that asks for them waits for ever. The first process that used
 * several is remembered; in any other, calls use one thread. True there. */
bool gdn_cpu_forked(void);

#endif
