#include "bench_report.h"

#include <stdio.h>

void bench_print_machine(const char *backend, int threads, const ceilings *limits)
{
    printf("backend: %s\n", backend);
    if (limits->flops > 0) {
        printf("ceiling: %.1f GFLOP/s, %s%s", 1e-9 * limits->flops, limits->flops_source, threads > 0 ? "" : "\n");
        if (threads > 0) {
            printf(", %d thread%s\n", threads, threads == 1 ? "" : "s");
        }
    }
    if (limits->bytes > 0) {
        printf("ceiling: %.1f GB/s read and written, %s\n", 1e-9 * limits->bytes, limits->bytes_source);
    }
}

void bench_print_header(bool device)
{
    printf("%-20s %10s %10s %7s", "implementation", "median ms", "best ms", "spread");
    if (device) {
        printf(" %9s", "eager ms");
    }
    printf(" %9s %10s %9s %8s %6s %9s %9s %9s %9s %9s  %s\n", "first ms", "tokens/s", device ? "TFLOP/s" : "GFLOP/s",
           "GB/s", "floor", "work MiB", "o error", "o row", "S error", "S row", "judged; problem");
}

void bench_print_row(const char *problem, const bench_result *result, const ceilings *limits)
{
    const double seconds = result->time.median, floor_seconds = bench_floor(result, limits);
    char share[16] = "-";
    if (floor_seconds > 0) {
        snprintf(share, sizeof(share), "%.0f%%", 100 * floor_seconds / seconds);
    }
    const bool device = result->eager > 0;
    printf("%-20s %10.4f %10.4f %6.1f%%", result->implementation, 1e3 * seconds, 1e3 * result->time.best,
           100 * timing_spread(&result->time));
    if (device) {
        printf(" %9.4f", 1e3 * result->eager);
    }
    printf(" %9.3f %10.0f %9.2f %8.2f %6s %9.2f", 1e3 * result->first, (double)result->tokens / seconds,
           (device ? 1e-12 : 1e-9) * result->flops / seconds, 1e-9 * result->bytes / seconds, share,
           (double)result->workspace / 0x1p20);
    if (result->judged) {
        const judgement *const e = &result->errors;
        printf(" %9.1e %9.1e %9.1e %9.1e  %s; ", error_frobenius(&e->o), e->o.worst_row, error_frobenius(&e->final),
               e->final.worst_row, e->scope);
    } else {
        printf(" %9s %9s %9s %9s  none; ", "-", "-", "-", "-");
    }
    printf("%s\n", problem);
    fflush(stdout);
}

cJSON *bench_machine_json(const char *backend, int threads, const ceilings *limits)
{
    cJSON *const item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "backend", backend);
    if (threads > 0) {
        cJSON_AddNumberToObject(item, "threads", threads);
    }
    if (limits->flops > 0) {
        cJSON_AddNumberToObject(item, "ceiling_flops", limits->flops);
        cJSON_AddStringToObject(item, "ceiling_flops_source", limits->flops_source);
    }
    if (limits->bytes > 0) {
        cJSON_AddNumberToObject(item, "ceiling_bytes", limits->bytes);
        cJSON_AddStringToObject(item, "ceiling_bytes_source", limits->bytes_source);
    }
    return item;
}

static void add_error(cJSON *item, const char *name, const error_stats *stats)
{
    if (stats->rows > 0) {
        cJSON *const error = cJSON_AddObjectToObject(item, name);
        cJSON_AddNumberToObject(error, "frobenius", error_frobenius(stats));
        cJSON_AddNumberToObject(error, "worst_row", stats->worst_row);
        cJSON_AddNumberToObject(error, "not_finite", (double)stats->non_finite);
    }
}

cJSON *bench_row_json(const char *problem, const bench_result *result, const ceilings *limits)
{
    const double seconds = result->time.median, floor_seconds = bench_floor(result, limits);
    cJSON *const item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "problem", problem);
    cJSON_AddStringToObject(item, "implementation", result->implementation);
    cJSON_AddStringToObject(item, "chunk", result->chunk);
    cJSON_AddNumberToObject(item, "workspace_bytes", (double)result->workspace);
    cJSON_AddNumberToObject(item, "runs", result->time.count);
    cJSON_AddNumberToObject(item, "calls_per_run", (double)result->batch);
    cJSON_AddNumberToObject(item, "copies", (double)result->copies);
    cJSON_AddNumberToObject(item, "first_seconds", result->first);
    cJSON_AddNumberToObject(item, "median_seconds", seconds);
    cJSON_AddNumberToObject(item, "best_seconds", result->time.best);
    if (result->eager > 0) {
        cJSON_AddNumberToObject(item, "eager_seconds", result->eager);
    }
    cJSON_AddNumberToObject(item, "p10_seconds", result->time.low);
    cJSON_AddNumberToObject(item, "p90_seconds", result->time.high);
    cJSON_AddNumberToObject(item, "tokens", (double)result->tokens);
    cJSON_AddNumberToObject(item, "tokens_per_second", (double)result->tokens / seconds);
    cJSON_AddNumberToObject(item, "min_flops", result->flops);
    cJSON_AddNumberToObject(item, "flops_per_second", result->flops / seconds);
    cJSON_AddNumberToObject(item, "min_bytes", result->bytes);
    cJSON_AddNumberToObject(item, "bytes_per_second", result->bytes / seconds);
    if (floor_seconds > 0) {
        cJSON_AddNumberToObject(item, "share_of_floor", floor_seconds / seconds);
    }
    if (result->judged) {
        cJSON_AddStringToObject(item, "judged", result->errors.scope);
        add_error(item, "o_error", &result->errors.o);
        add_error(item, "state_error", &result->errors.final);
        add_error(item, "checkpoint_error", &result->errors.checkpoints);
        add_error(item, "token_state_error", &result->errors.token_states);
    }
    return item;
}
