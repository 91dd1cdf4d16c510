/* The loops over threads: each item once, in the library's float mode, the callers' mode kept, and after a fork. */
#define _GNU_SOURCE

#include "cpu_fixture.h"

#include "cpu_parallel.h"
#include "fused_share.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MOST = 1000 };

typedef struct counts {
    _Atomic int times[MOST];
    _Atomic int subnormal_results;
    volatile float tiny;
} counts;

static void count_range(const void *task, int64_t begin, int64_t end)
{
    counts *const c = *(counts *const *)task;
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&c->times[i], 1);
        if (c->tiny * 0.5f != 0.0f) {
            atomic_fetch_add(&c->subnormal_results, 1);
        }
    }
}

/* Whether there is such a mode at all: valgrind has none. */
static bool machine_can_flush(void)
{
#if defined(__x86_64__)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8000);
    const bool can = (_mm_getcsr() & 0x8000) != 0;
    _mm_setcsr(mode);
    return can;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static void each_item_runs_once(void **unused)
{
    (void)unused;
    const bool flushes = machine_can_flush();
    static const int64_t sizes[] = {0, 1, 2, 3, 16, 17, 999, 1000};
    static const int64_t costs[] = {0, 1, 1000, 1000000, INT64_C(1) << 40};
    for (size_t t = 0; t < COUNT_OF(fixture_threads); t++) {
        gdn_device *const device = fixture_open(fixture_threads[t], GDN_BLAS_OFF);
        for (size_t s = 0; s < COUNT_OF(sizes) * COUNT_OF(costs); s++) {
            const int64_t size = sizes[s % COUNT_OF(sizes)];
            counts c = {.tiny = 1e-38f};
            counts *const task = &c;
            gdn_cpu_parallel_for(device, size, costs[s / COUNT_OF(sizes)], count_range, &task);
            for (int64_t i = 0; i < MOST; i++) {
                assert_int_equal(c.times[i], i < size);
            }
            if (flushes) {
                assert_int_equal(c.subnormal_results, 0);
            }
        }
        fixture_close(device);
    }
}

static void the_callers_float_mode_comes_back(void **unused)
{
    (void)unused;
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    counts c = {.tiny = 1e-38f};
    counts *const task = &c;
    gdn_cpu_parallel_for(device, MOST, 1000000, count_range, &task);
    assert_true(c.tiny * 0.5f != 0.0f);
    fixture_close(device);
}

/* Several host threads, each with a device of its own and one that all share. */
static gdn_device *shared;

static void *use_devices(void *unused)
{
    gdn_device *const own = fixture_open(2, GDN_BLAS_OFF);
    for (int round = 0; round < 20; round++) {
        counts c = {.tiny = 1};
        counts *const task = &c;
        gdn_cpu_parallel_for(round % 2 ? own : shared, MOST, 1000, count_range, &task);
        for (int64_t i = 0; i < MOST; i++) {
            if (c.times[i] != 1) {
                return &shared;
            }
        }
    }
    fixture_close(own);
    return unused;
}

static void devices_may_be_used_from_several_threads(void **unused)
{
    (void)unused;
    shared = fixture_open(2, GDN_BLAS_OFF);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        REQUIRE(pthread_create(&threads[i], NULL, use_devices, NULL) == 0);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        void *result;
        REQUIRE(pthread_join(threads[i], &result) == 0);
        assert_null(result);
    }
    fixture_close(shared);
}

/* In the child: with the parent's device, and with one of its own. */
static int run_child(gdn_device *inherited)
{
    alarm(20);
    gdn_device *own;
    const gdn_device_options options = fixture_options(4, GDN_BLAS_OFF);
    if (gdn_backend_cpu.open(&own, &options) != GDN_OK) {
        return 1;
    }
    gdn_device *const devices[] = {inherited, own};
    for (size_t d = 0; d < COUNT_OF(devices); d++) {
        counts c = {.tiny = 1};
        counts *const task = &c;
        gdn_cpu_parallel_for(devices[d], MOST, 1000000, count_range, &task);
        for (int64_t i = 0; i < MOST; i++) {
            if (c.times[i] != 1) {
                return 2;
            }
        }
        char note[160] = "";
        gdn_backend_cpu.note(devices[d], note, sizeof(note));
        const bool said = strstr(note, "1 thread") != NULL;
        if (said != gdn_cpu_forked() || (gdn_cpu_num_threads(devices[d]) == 1) != gdn_cpu_forked()) {
            return 3;
        }
    }
    gdn_backend_cpu.close(own);
    return 0;
}

static void a_forked_child_finishes_and_says_what_it_does(void **unused)
{
    (void)unused;
    gdn_device *const device = fixture_open(4, GDN_BLAS_OFF);
    if (gdn_cpu_num_threads(device) == 1) {
        fixture_close(device); /* built without OpenMP: no thread to lose */
        skip();
    }
    counts c = {.tiny = 1};
    counts *const task = &c;
    gdn_cpu_parallel_for(device, MOST, 1000000, count_range, &task);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        _exit(run_child(device));
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    char note[160] = "";
    gdn_backend_cpu.note(device, note, sizeof(note));
    assert_string_equal(note, "");
    assert_int_equal(gdn_cpu_num_threads(device), 4);
    gdn_cpu_parallel_for(device, MOST, 1000000, count_range, &task);
    fixture_close(device);
}

/* Whichever threads come, and in whatever order: each begins with its own, and none is left or done twice. */
static void each_bundle_is_taken_once(void **unused)
{
    (void)unused;
    for (int lanes = 1; lanes <= 70; lanes += 23) {
        for (int count = 0; count < 3 * lanes; count += 1 + lanes / 9) {
            for (int present = 1; present <= lanes; present += 1 + lanes / 5) {
                gdn_bundles bundles = {.count = count, .lanes = lanes};
                int times[MOST] = {0}, turn[MOST] = {0}, working = present;
                for (int lane = lanes - 1; working > 0; lane = lane > 0 ? lane - 1 : lanes - 1) {
                    if (lane < lanes - present || turn[lane] < 0) {
                        continue; /* a thread that the call did not get, or that has finished */
                    }
                    const bool first = turn[lane] == 0;
                    const int64_t bundle = gdn_bundles_take(&bundles, lane, &turn[lane]);
                    if (bundle < 0) {
                        turn[lane] = -1;
                        working--;
                        continue;
                    }
                    REQUIRE(bundle < count);
                    REQUIRE(!first || lane >= count || bundle == lane || times[lane] == 1);
                    times[bundle]++;
                }
                for (int i = 0; i < count; i++) {
                    REQUIRE(times[i] == 1);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_runs_once),
        cmocka_unit_test(each_bundle_is_taken_once),
        cmocka_unit_test(the_callers_float_mode_comes_back),
        cmocka_unit_test(devices_may_be_used_from_several_threads),
        cmocka_unit_test(a_forked_child_finishes_and_says_what_it_does),
    };
    return cmocka_run_group_tests_name("cpu_parallel", tests, NULL, NULL);
}
