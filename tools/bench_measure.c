#include "bench_measure.h"

#include "plan_text.h"
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_COPIES 64
static const double least_run = 100e-6; /* seconds a timed run should last, for the clock's sake */

static int64_t cache_bytes(const bench_settings *settings)
{
    if (settings->driver != NULL) {
        return cuda_driver_l2_bytes(settings->driver);
    }
    long bytes = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return bytes > 0 ? bytes : INT64_C(32) << 20;
}

/* Copies of the data that together pass the last cache four times. A CPU prefill keeps one: its data passes the
 * caches in any case, or is as warm as what a model has just written. */
static int64_t choose_copies(const workload *load, const bench_settings *settings)
{
    if (settings->driver == NULL && load->problem.operation == GDN_OPERATION_PREFILL) {
        return 1;
    }
    const int64_t one = (int64_t)workload_run_copy_bytes(load) + 1;
    const int64_t copies = 4 * cache_bytes(settings) / one + 1;
    return copies > MAX_COPIES ? MAX_COPIES : copies;
}

static int64_t live_tokens(const workload *load)
{
    int64_t tokens = 0;
    for (int64_t n = 0; n < load->num_seqs; n++) {
        tokens += workload_skipped(load, n) ? 0 : workload_length(load, n);
    }
    return tokens;
}

double bench_min_flops(const workload *load, bool on_host)
{
    const gdn_problem *const p = &load->problem;
    const double K = p->head_k_dim, V = p->head_v_dim, C = 64, ratio = (double)p->num_v_heads / p->num_k_heads;
    const bool plain = on_host || p->operation == GDN_OPERATION_DECODE;
    const double one = 6 * K * V + (plain ? 0 : 4 * C * V + 4 * C * K / ratio);
    return one * p->num_v_heads * (double)live_tokens(load);
}

double bench_floor(const bench_result *result, const ceilings *limits)
{
    const double compute = limits->flops > 0 ? result->flops / limits->flops : 0;
    const double traffic = limits->bytes > 0 ? result->bytes / limits->bytes : 0;
    return compute > traffic ? compute : traffic;
}

static gdn_status call_and_wait(const workload_run *run, int64_t copy)
{
    const gdn_status status = workload_run_call(run, copy, NULL);
    return status == GDN_OK ? gdn_synchronize(run->context, NULL) : status;
}

static bool enough(const bench_settings *settings, const timing *times, double start)
{
    if (settings->repeat > 0) {
        return times->count >= settings->repeat;
    }
    return times->count >= 5 && timing_now() - start >= settings->min_time;
}

static gdn_status time_on_host(const workload_run *run, const bench_settings *settings, bench_result *result,
                               timing *times)
{
    int64_t copy = 0;
    const double before = timing_clock();
    gdn_status status = call_and_wait(run, copy++ % run->copies);
    result->batch = (int64_t)(least_run / (timing_clock() - before)) + 1;
    const double start = timing_now();
    while (status == GDN_OK && !enough(settings, times, start)) {
        const double run_start = timing_clock();
        for (int64_t i = 0; status == GDN_OK && i < result->batch; i++) {
            status = workload_run_call(run, copy++ % run->copies, NULL);
        }
        if (!timing_add(times, (timing_clock() - run_start) / (double)result->batch)) {
            break;
        }
        progress_show("gdn bench: run %d, %.0f s", times->count, timing_now() - start);
    }
    return status;
}

/* One graph that calls each copy in turn; a run is one replay. */
static gdn_status time_on_device(const workload_run *run, const bench_settings *settings, bench_result *result,
                                 timing *times, char *error, size_t error_size)
{
    cuda_graph *graph = NULL;
    if (!cuda_capture_begin(settings->driver, error, error_size)) {
        return GDN_ERROR_DEVICE;
    }
    gdn_status status = GDN_OK;
    result->batch = run->copies < 8 && result->first < 1e-3 ? 8 : run->copies;
    for (int64_t i = 0; status == GDN_OK && i < result->batch; i++) {
        status = workload_run_call(run, i % run->copies, cuda_driver_stream(settings->driver));
    }
    const bool captured = cuda_capture_end(settings->driver, &graph, error, error_size);
    if (status == GDN_OK && !captured) {
        status = GDN_ERROR_DEVICE;
    }
    for (int warm = 0; status == GDN_OK && warm < 3; warm++) {
        status = cuda_graph_seconds(settings->driver, graph) >= 0 ? GDN_OK : GDN_ERROR_DEVICE;
    }
    const double start = timing_now();
    while (status == GDN_OK && !enough(settings, times, start)) {
        const double seconds = cuda_graph_seconds(settings->driver, graph);
        if (seconds < 0) {
            snprintf(error, error_size, "replaying the graph failed on the device");
            status = GDN_ERROR_DEVICE;
        } else if (!timing_add(times, seconds / (double)result->batch)) {
            break;
        }
        progress_show("gdn bench: run %d, %.0f s", times->count, timing_now() - start);
    }
    cuda_graph_free(settings->driver, &graph);
    return status;
}

/* Calls queued one after another without a graph: as long as the device needs, or the host to queue them. The median of
 * five rows of calls of at least 2 ms each. */
static gdn_status time_eagerly(const workload_run *run, const bench_settings *settings, bench_result *result)
{
    static timing times;
    void *const stream = cuda_driver_stream(settings->driver);
    const int64_t calls = 1 + (int64_t)(2e-3 / (result->time.median > 1e-6 ? result->time.median : 1e-6));
    gdn_status status = GDN_OK;
    times.count = 0;
    while (status == GDN_OK && times.count < 5) {
        const double start = timing_now();
        for (int64_t i = 0; status == GDN_OK && i < calls; i++) {
            status = workload_run_call(run, i % run->copies, stream);
        }
        status = status == GDN_OK ? gdn_synchronize(run->context, stream) : status;
        (void)timing_add(&times, (timing_now() - start) / (double)calls);
    }
    result->eager = timing_summarise(&times).median;
    return status;
}

/* The error of a fresh call: timed calls in place have moved the states on. */
static gdn_status judge_fresh(workload_run *run, const bench_settings *settings, bench_result *result, char *error,
                              size_t error_size)
{
    run_outputs outputs = {0};
    progress_show("gdn bench: computing the float64 reference");
    gdn_status status = workload_run_fill(run, 0);
    if (status == GDN_OK) {
        status = call_and_wait(run, 0);
    }
    if (status == GDN_OK) {
        status = gdn_plan_check(run->plan, run->buffers[RUN_WORKSPACE].data, NULL);
    }
    if (status == GDN_OK) {
        status = workload_run_outputs(run, 0, &outputs);
    }
    if (status == GDN_OK && !judge(run->load, &outputs, settings->budget, &result->errors)) {
        snprintf(error, error_size, "out of memory for the reference");
        status = GDN_ERROR_OUT_OF_MEMORY;
    }
    result->judged = status == GDN_OK;
    result->stray = outputs.stray;
    run_outputs_free(&outputs);
    return status;
}

gdn_status bench_measure(gdn_context *context, const workload *load, const bench_settings *settings,
                         bench_result *result, char *error, size_t error_size)
{
    static timing times; /* too large for a stack */
    workload_run run;
    times.count = 0;
    error[0] = 0;
    memset(result, 0, sizeof(*result));
    result->copies = choose_copies(load, settings);
    result->tokens = live_tokens(load);
    result->flops = bench_min_flops(load, settings->driver == NULL);
    result->bytes = workload_min_bytes(load);
    progress_show("gdn bench: placing %lld cop%s of the inputs", (long long)result->copies,
                  result->copies == 1 ? "y" : "ies");
    gdn_status status = workload_run_create(&run, context, load, result->copies);
    if (status != GDN_OK) {
        return status;
    }
    plan_text_value(run.plan, "implementation", result->implementation, sizeof(result->implementation));
    plan_text_value(run.plan, "chunk size", result->chunk, sizeof(result->chunk));
    plan_text_line(run.plan, "backend", result->backend, sizeof(result->backend));
    result->workspace = gdn_plan_workspace_size(run.plan);

    const double before = timing_clock();
    status = call_and_wait(&run, 0);
    result->first = timing_clock() - before;
    if (status == GDN_OK) {
        status = settings->driver != NULL ? time_on_device(&run, settings, result, &times, error, error_size)
                                          : time_on_host(&run, settings, result, &times);
    }
    result->time = timing_summarise(&times);
    if (status == GDN_OK && settings->driver != NULL) {
        status = time_eagerly(&run, settings, result);
    }
    if (status == GDN_OK && settings->budget > 0) {
        status = judge_fresh(&run, settings, result, error, error_size);
    }
    progress_clear();
    workload_run_destroy(&run);
    return status;
}
