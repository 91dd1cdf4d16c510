/* What `gdn bench` prints: a table for people, or JSON. */
#ifndef GDN_TOOLS_BENCH_REPORT_H
#define GDN_TOOLS_BENCH_REPORT_H

#include "bench_measure.h"

#include <cjson/cJSON.h>

void bench_print_machine(const char *backend, int threads, const ceilings *limits);
/* On a GPU (`device`) a call is also timed without a graph, and operations are counted in TFLOP/s. */
void bench_print_header(bool device);
void bench_print_row(const char *problem, const bench_result *result, const ceilings *limits);

/* Objects for the JSON output; NULL: out of memory. */
cJSON *bench_machine_json(const char *backend, int threads, const ceilings *limits);
cJSON *bench_row_json(const char *problem, const bench_result *result, const ceilings *limits);

#endif
