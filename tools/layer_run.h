/* What `gdn prefill` and `gdn decode` share: saying what a layer file holds, timing, and reporting the errors. */
#ifndef GDN_TOOLS_LAYER_RUN_H
#define GDN_TOOLS_LAYER_RUN_H

#include "judge.h"
#include "layer_file.h"

void layer_print(const layer_file *layer, const char *path);

/* Prints the plan, then "time: ..." over at least min_time seconds of calls. */
gdn_status layer_time_prefill(workload_run *run, double min_time);
void layer_print_plan(const gdn_plan *plan);

typedef struct layer_report_options {
    const char *output; /* file to write the outputs to, or NULL */
    double max_error; /* negative: no limit */
    bool float64; /* compare with the float64 recurrence, too */
} layer_report_options;

/* Prints a line for each comparison, with ref.* of the file and with the float64 recurrence, and writes the outputs. Returns
 * CLI_FAILURE where an output is not finite, was written astray or is not written to the file, or its error is above the
 * limit. */
int layer_report(const char *command, const layer_file *layer, const run_outputs *outputs,
                 const layer_report_options *options);

#endif
