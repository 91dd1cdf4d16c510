/* What `gdn prefill` and `gdn decode` share: saying what a layer file holds, timing, and reporting the errors. */
#ifndef GDN_TOOLS_LAYER_RUN_H
#define GDN_TOOLS_LAYER_RUN_H

#include "judge.h"
#include "layer_file.h"

void layer_print(const layer_file *layer, const char *path);

/* Prints the plan, then "time: ..." over at least min_time seconds of calls. */
gdn_status layer_time_prefill(workload_run *run, double min_time);
void layer_print_plan(const gdn_plan *plan);

/* Prints a line for each comparison: with ref.* of the file, and with the float64 recurrence if asked. Returns
 * CLI_FAILURE where an output is not finite, was written astray, or its error is above max_error (negative: no limit). */
int layer_report(const char *command, const layer_file *layer, const run_outputs *outputs, double max_error,
                 bool float64);

#endif
