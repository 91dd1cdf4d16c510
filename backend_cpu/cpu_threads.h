/* How many threads this process may keep busy: what its affinity mask and its control group's quota allow. */
#ifndef GDN_CPU_THREADS_H
#define GDN_CPU_THREADS_H

#include <stdint.h>

/* At least 1. A machine's core count is not asked for: in a container it belongs to the host. */
int32_t gdn_cpu_default_threads(void);

/* CPUs' worth of time that the control group of a process allows, rounded up; 0 where nothing limits it. Reads
 * <proc>/self/cgroup and the controller files under <cgroup> (normally "/proc" and "/sys/fs/cgroup"), version 2 or 1. */
int32_t gdn_cpu_quota(const char *proc, const char *cgroup);

#endif
