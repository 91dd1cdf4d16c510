#include "verify_problem.h"

#include "judge.h"
#include "plan_text.h"
#include "random_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One output's line; true where it is within its bounds. */
static bool report_output(const verify_style *style, const char *name, const error_stats *stats,
                          const error_bounds *bounds)
{
    if (stats->rows == 0 && stats->non_finite == 0) {
        return true;
    }
    const bool good = error_within(stats, bounds);
    if (good && style->quiet) {
        return true;
    }
    printf("  %s %-12s frobenius %.2e (<= %.1e)  row %.2e (<= %.1e)", good ? "PASS" : "FAIL", name,
           error_frobenius(stats), bounds->frobenius, stats->worst_row, bounds->row);
    if (bounds->excess > 0) {
        printf("  past half an ulp %.1e (<= %.1e)", stats->worst_excess, bounds->excess);
    }
    if (!good) {
        printf("  worst at %s %lld, head %lld", strcmp(name, "o") == 0 ? "token" : "sequence",
               (long long)stats->worst_at, (long long)stats->worst_head);
    }
    if (stats->non_finite > 0) {
        printf("  %lld elements not finite", (long long)stats->non_finite);
    }
    printf("\n");
    return good;
}

static bool report_outputs(const verify_style *style, const problem_text *text, const workload *load,
                           const char *backend, const run_outputs *outputs)
{
    judgement result;
    if (!judge(load, outputs, 0, &result)) {
        printf("  FAIL out of memory for the reference\n");
        return false;
    }
    const gdn_problem *const p = &load->problem;
    const bool hard = text->keys == TEXT_KEYS_REPEATED;
    const gdn_dtype final_dtype = p->state_form == GDN_STATE_POOL ? p->state.dtype : p->final_state.dtype;
    const struct {
        const char *name;
        const error_stats *stats;
        gdn_dtype dtype;
    } parts[] = {
        {"o", &result.o, p->o.dtype},
        {"final_state", &result.final, final_dtype},
        {"checkpoints", &result.checkpoints, p->checkpoints.dtype},
        {"token_states", &result.token_states, p->state.dtype},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const error_bounds bounds = judge_bounds(load, backend, parts[i].dtype, i > 0, hard);
        good = report_output(style, parts[i].name, parts[i].stats, &bounds) && good;
    }
    if (outputs->stray != NULL) {
        printf("  FAIL %s was written outside what the call describes\n", outputs->stray);
    }
    return good && outputs->stray == NULL;
}

verdict verify_problem(gdn_context *context, const problem_text *text, bool drawn, const verify_style *style)
{
    workload load;
    workload_run run = {0};
    run_outputs outputs = {0};
    if (!random_inputs(&load, text)) {
        printf("  FAIL out of memory for the inputs\n");
        return VERDICT_FAIL;
    }
    gdn_status status = workload_run_create(&run, context, &load, 1);
    if (status == GDN_OK) {
        char *const plan = style->verbose ? plan_text(run.plan) : NULL;
        printf("%s", plan != NULL ? plan : "");
        free(plan);
        status = workload_run_call(&run, 0, NULL);
    }
    if (status == GDN_OK) {
        status = gdn_plan_check(run.plan, run.buffers[RUN_WORKSPACE].data, NULL);
    }
    if (status == GDN_OK) {
        status = workload_run_outputs(&run, 0, &outputs);
    }
    verdict result = VERDICT_FAIL;
    if (status == GDN_ERROR_UNSUPPORTED && drawn) {
        result = VERDICT_SKIP;
        if (!style->quiet) {
            printf("  SKIP %s\n", gdn_last_error());
        }
    } else if (status != GDN_OK) {
        printf("  FAIL %s: %s\n", gdn_status_string(status), gdn_last_error());
    } else if (report_outputs(style, text, &load, gdn_context_backend(context), &outputs)) {
        result = VERDICT_PASS;
    }
    run_outputs_free(&outputs);
    workload_run_destroy(&run);
    workload_free(&load);
    return result;
}
