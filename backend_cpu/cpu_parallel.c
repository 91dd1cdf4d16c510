/* getpid. */
#define _POSIX_C_SOURCE 200809L

#include "cpu_parallel.h"

#include "float_mode.h"

#include <stdatomic.h>
#include <unistd.h>

#if defined(_OPENMP) && !defined(__clang__)

/* The process that first used several threads, 0 before. */
static _Atomic int64_t first_process;

bool gdn_cpu_forked(void)
{
    const int64_t first = atomic_load(&first_process);
    return first != 0 && first != getpid();
}

static void note_process(void)
{
    int64_t none = 0;
    atomic_compare_exchange_strong(&first_process, &none, getpid());
}

#else

/* LLVM's runtime restarts its threads after a fork; without OpenMP there are none. */
bool gdn_cpu_forked(void)
{
    return false;
}

static void note_process(void)
{
}

#endif

/* The least that is worth handing to a thread: several times what it takes to wake one and wait for it. */
#define NANOSECONDS_A_THREAD 40000

int32_t gdn_cpu_num_threads(const gdn_device *device)
{
    const int32_t threads = gdn_cpu_device_of(device)->num_threads; /* 1 without OpenMP */
    if (threads == 1 || gdn_cpu_forked()) {
        return 1;
    }
    note_process();
    return threads;
}

int32_t gdn_cpu_most_team(const gdn_device *device, double nanoseconds)
{
    return nanoseconds <= NANOSECONDS_A_THREAD ? 1 : gdn_cpu_device_of(device)->num_threads;
}

int32_t gdn_cpu_team(const gdn_device *device, double nanoseconds)
{
    return gdn_cpu_most_team(device, nanoseconds) == 1 ? 1 : gdn_cpu_num_threads(device);
}

static void run_alone(int64_t count, gdn_cpu_range_fn fn, const void *task)
{
    const uint64_t mode = gdn_float_mode_enter();
    fn(task, 0, count);
    gdn_float_mode_restore(mode);
}

void gdn_cpu_parallel_for(const gdn_device *device, int64_t count, int64_t cost, gdn_cpu_range_fn fn, const void *task)
{
    if (count <= 0) {
        return;
    }
    const int32_t threads = count == 1 ? 1 : gdn_cpu_team(device, (double)count * ((double)cost + 1));
    if (threads == 1) {
        run_alone(count, fn, task);
        return;
    }
#ifdef _OPENMP
    /* A few blocks a thread, taken as they come: a core that is busy elsewhere holds up no one for long. */
    const int64_t block = (count - 1) / ((int64_t)threads * 4) + 1;
    const int64_t num_blocks = (count - 1) / block + 1;
    /* All threads or one: libgomp ends and makes threads anew where the count changes. */
#pragma omp parallel num_threads(threads)
    {
        const uint64_t mode = gdn_float_mode_enter();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < num_blocks; i++) {
            const int64_t begin = i * block;
            fn(task, begin, i + 1 < num_blocks ? begin + block : count);
        }
        gdn_float_mode_restore(mode);
    }
#endif
}
