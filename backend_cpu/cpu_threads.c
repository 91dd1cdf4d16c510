/* sched_getaffinity and CPU_COUNT. */
#define _GNU_SOURCE

#include "cpu_threads.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

#define PATH_SIZE 1024

/* The file's text, cut at the buffer's size; false where it cannot be read. Not through stdio, which allocates. */
static bool read_text(const char *path, char *text, size_t size)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    size_t used = 0;
    ssize_t got = 0;
    while (used < size - 1 && (got = read(file, text + used, size - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return got >= 0;
}

/* quota / period rounded up, 0 for no limit. */
static int32_t cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) {
        return 0;
    }
    const long long count = quota / period + (quota % period != 0);
    return count < INT32_MAX ? (int32_t)count : INT32_MAX;
}

/* The smaller of two limits, where 0 is none. */
static int32_t tighter(int32_t a, int32_t b)
{
    if (a == 0 || b == 0) {
        return a + b;
    }
    return a < b ? a : b;
}

/* Version 2: "200000 100000", or "max 100000". */
static int32_t quota_v2(const char *folder)
{
    char path[PATH_SIZE + 32];
    char line[128];
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    long long quota = 0;
    long long period = 0;
    if (!read_text(path, line, sizeof(line)) || sscanf(line, "%lld %lld", &quota, &period) != 2) {
        return 0;
    }
    return cpus(quota, period);
}

/* Version 1: one number a file, a quota of -1 for no limit. */
static int32_t quota_v1(const char *folder)
{
    char path[PATH_SIZE + 32];
    char line[128];
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (!read_text(path, line, sizeof(line))) {
        return 0;
    }
    const long long quota = atoll(line);
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    if (!read_text(path, line, sizeof(line))) {
        return 0;
    }
    return cpus(quota, atoll(line));
}

/* The tightest limit of a group and those it is in: from `mount`/`group` up to `mount`. A container often sees its own
 * group as the mount's root while its path still names the host's; the root is looked at in any case. */
static int32_t quota_upwards(const char *mount, const char *group, int32_t (*quota)(const char *folder))
{
    char folder[PATH_SIZE];
    const int written = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    if (written < 0 || (size_t)written >= sizeof(folder)) {
        return 0;
    }
    const size_t root = strlen(mount);
    int32_t limit = 0;
    for (;;) {
        limit = tighter(limit, quota(folder));
        if (strlen(folder) <= root) {
            return limit;
        }
        *strrchr(folder, '/') = '\0';
    }
}

/* Whether `word` is one of the comma-separated words of `list`. */
static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

int32_t gdn_cpu_quota(const char *proc, const char *cgroup)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    char text[4 * PATH_SIZE];
    if (!read_text(path, text, sizeof(text))) {
        return 0;
    }
    /* Lines "0::/group" (version 2) and "4:cpu,cpuacct:/group" (version 1). */
    int32_t limit = 0;
    char *next = text;
    while (*next != '\0') {
        char *const line = next;
        next += strcspn(next, "\n");
        if (*next != '\0') {
            *next++ = '\0';
        }
        char *const controllers = strchr(line, ':');
        char *const group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/') {
            continue;
        }
        *group = '\0';
        char mount[PATH_SIZE];
        if (controllers[1] == '\0') {
            limit = tighter(limit, quota_upwards(cgroup, group + 1, quota_v2));
        } else if (lists(controllers + 1, "cpu")) {
            const int written = snprintf(mount, sizeof(mount), "%s/%s", cgroup, controllers + 1);
            if (written > 0 && (size_t)written < sizeof(mount)) {
                limit = tighter(limit, quota_upwards(mount, group + 1, quota_v1));
            }
        }
    }
    return limit;
}

static int32_t affinity(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* More CPUs than a cpu_set_t holds: the count of those on line. */
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT32_MAX ? (int32_t)online : 1;
}

int32_t gdn_cpu_default_threads(void)
{
    const int32_t threads = tighter(affinity(), gdn_cpu_quota("/proc", "/sys/fs/cgroup"));
    return threads > 0 ? threads : 1;
}
