/* The thread count that a control group allows, from made-up /proc and /sys/fs/cgroup trees. */
#define _GNU_SOURCE

#include "check.h"

#include "cpu_threads.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "cpu_threads_XXXXXX"; /* in the working directory */
static char proc[128], cgroup[128];

static void write_file(const char *folder, const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", folder, path);
    for (char *slash = full + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *const file = fopen(full, "w");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* A fresh pair of trees. */
static int set_up(void **state)
{
    (void)state;
    static int number;
    number++;
    snprintf(proc, sizeof(proc), "%s/%d/proc", root, number);
    snprintf(cgroup, sizeof(cgroup), "%s/%d/cgroup", root, number);
    return 0;
}

static void no_tree_means_no_limit(void **unused)
{
    (void)unused;
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
    write_file(proc, "self/cgroup", "0::/\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
}

static void version_2(void **unused)
{
    (void)unused;
    write_file(proc, "self/cgroup", "0::/a/b\n");
    write_file(cgroup, "a/b/cpu.max", "max 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
    write_file(cgroup, "a/b/cpu.max", "200000 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 2);
    write_file(cgroup, "a/b/cpu.max", "150000 100000\n"); /* one and a half: two threads */
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 2);
    write_file(cgroup, "a/b/cpu.max", "5000 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 1);
    write_file(cgroup, "a/b/cpu.max", "nonsense\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
}

static void the_tightest_of_the_parents(void **unused)
{
    (void)unused;
    write_file(proc, "self/cgroup", "0::/a/b/c\n");
    write_file(cgroup, "a/b/c/cpu.max", "800000 100000\n");
    write_file(cgroup, "a/cpu.max", "300000 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 3);
    /* A container: its path names the host's tree, its mount is its own group. */
    write_file(proc, "self/cgroup", "0::/host/only/path\n");
    write_file(cgroup, "cpu.max", "400000 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 4);
}

static void version_1(void **unused)
{
    (void)unused;
    write_file(proc, "self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/g\n3:cpuset:/g\n0::/\n");
    write_file(cgroup, "cpu,cpuacct/g/cpu.cfs_quota_us", "-1\n");
    write_file(cgroup, "cpu,cpuacct/g/cpu.cfs_period_us", "100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
    write_file(cgroup, "cpu,cpuacct/g/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 3);
    write_file(cgroup, "cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
    write_file(cgroup, "cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 1);
    /* "cpuset" and "cpuacct" are not "cpu". */
    write_file(proc, "self/cgroup", "4:cpuacct:/g\n3:cpuset:/g\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 0);
}

static void damaged_lines_are_passed_over(void **unused)
{
    (void)unused;
    char text[4096];
    memset(text, 'x', sizeof(text));
    memcpy(text, "0::/", 4);
    text[3000] = '\n';
    strcpy(text + 3001, "::\n:\n\n7\n0:cpu\n0::relative\n0::/a\n");
    write_file(proc, "self/cgroup", text);
    write_file(cgroup, "a/cpu.max", "100000 100000\n");
    assert_int_equal(gdn_cpu_quota(proc, cgroup), 1);
}

static void affinity_bounds_the_default(void **unused)
{
    (void)unused;
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
    assert_in_range(gdn_cpu_default_threads(), 1, CPU_COUNT(&all));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    assert_int_equal(gdn_cpu_default_threads(), 1);
    REQUIRE(sched_setaffinity(0, sizeof(all), &all) == 0);
}

static int remove_all(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    REQUIRE(mkdtemp(root) != NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_tree_means_no_limit, set_up),        cmocka_unit_test_setup(version_2, set_up),
        cmocka_unit_test_setup(the_tightest_of_the_parents, set_up),   cmocka_unit_test_setup(version_1, set_up),
        cmocka_unit_test_setup(damaged_lines_are_passed_over, set_up), cmocka_unit_test(affinity_bounds_the_default),
    };
    return cmocka_run_group_tests_name("cpu_threads", tests, NULL, remove_all);
}
