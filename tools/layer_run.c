#include "layer_run.h"

#include "cli.h"
#include "plan_text.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>

/* Reference operations allowed before only some heads are judged: a few seconds of a small machine. */
static const double float64_budget = 3e10;

void layer_print(const layer_file *layer, const char *path)
{
    static const char *const gates[] = {"log_decay", "decay", "raw"};
    static const char *const betas[] = {"value", "logit"};
    static const char *const norms[] = {"none", "rsqrt", "eps_outside"};
    const gdn_problem *const p = &layer->load.problem;
    printf("input: %s\n", path);
    if (layer->source[0] != 0) {
        /* A file's own words: plain text, whatever they hold, for a terminal. */
        printf("  from ");
        for (const char *c = layer->source; *c != 0; c++) {
            putchar((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c);
        }
        putchar('\n');
    }
    printf("  %lld tokens in %lld sequence%s, %d k heads of %d, %d v heads of %d, %s, gates %s, beta %s, norm %s%s\n",
           (long long)layer->load.total_tokens, (long long)layer->load.num_seqs, layer->load.num_seqs == 1 ? "" : "s",
           (int)p->num_k_heads, (int)p->head_k_dim, (int)p->num_v_heads, (int)p->head_v_dim, gdn_dtype_name(p->q.dtype),
           gates[p->gate_form], betas[p->beta_form], norms[p->qk_norm],
           layer->load.initial != NULL ? ", with initial states" : "");
}

void layer_print_plan(const gdn_plan *plan)
{
    char *const text = plan_text(plan);
    if (text != NULL) {
        printf("%s", text);
    }
    free(text);
}

gdn_status layer_time_prefill(workload_run *run, double min_time)
{
    layer_print_plan(run->plan);
    static timing times; /* too large for a stack */
    times.count = 0;
    double first = 0;
    const double start = timing_now();
    for (bool again = true; again;) {
        const double before = timing_now();
        gdn_status status = workload_run_call(run, 0, NULL);
        if (status == GDN_OK) {
            status = gdn_synchronize(run->context, NULL);
        }
        if (status == GDN_OK && first == 0) {
            status = gdn_plan_check(run->plan, run->buffers[RUN_WORKSPACE].data, NULL);
        }
        if (status != GDN_OK) {
            return status;
        }
        const double now = timing_now();
        if (first == 0) {
            first = now - before;
        } else if (!timing_add(&times, now - before)) {
            break;
        }
        again = now - start < min_time || times.count < 1;
    }
    const timing_summary summary = timing_summarise(&times);
    printf("time: %.3f ms median of %d calls after the first (%.3f ms), %.0f tokens/s\n", 1e3 * summary.median,
           summary.count, 1e3 * first, (double)run->load->total_tokens / summary.median);
    return GDN_OK;
}

static int report_line(const char *command, const char *what, const error_stats *stats, const char *place,
                       double max_error)
{
    if (stats->rows == 0 && stats->non_finite == 0) {
        return CLI_SUCCESS;
    }
    printf("error of %s: relative Frobenius %.2e, worst row %.2e (%s %lld, head %lld)\n", what, error_frobenius(stats),
           stats->worst_row, place, (long long)stats->worst_at, (long long)stats->worst_head);
    if (stats->unjudged > 0) {
        printf("  %lld elements of the reference are not finite and left out of that\n", (long long)stats->unjudged);
    }
    if (stats->non_finite > 0) {
        return cli_fail(command, "%s: %lld elements are not finite", what, (long long)stats->non_finite);
    }
    if (max_error >= 0 && stats->unjudged > 0) {
        return cli_fail(command, "%s: --max-error %g needs a finite reference", what, max_error);
    }
    if (max_error >= 0 && error_frobenius(stats) > max_error) {
        return cli_fail(command, "%s: relative Frobenius error %.3e is above --max-error %g", what,
                        error_frobenius(stats), max_error);
    }
    return CLI_SUCCESS;
}

static bool compare_o(const layer_file *layer, const float *o, error_stats *stats)
{
    const gdn_problem *const p = &layer->load.problem;
    const int64_t tokens = layer->load.cu[layer->load.num_seqs], V = p->head_v_dim, row = p->num_v_heads * V;
    bool good = true;
    for (int64_t h = 0; h < p->num_v_heads; h++) {
        row_list rows = {0};
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t at = t * row + h * V;
            row_list_add(&rows, o + at, row, layer->ref_o + at, 1, p->head_v_dim, p->o.dtype, t, 1);
        }
        good = row_list_finish(&rows, h, stats) && good;
    }
    return good;
}

static bool compare_final(const layer_file *layer, const float *final, error_stats *stats)
{
    const gdn_problem *const p = &layer->load.problem;
    const int64_t matrix = (int64_t)p->head_v_dim * p->head_k_dim;
    bool good = true;
    for (int64_t h = 0; h < p->num_v_heads; h++) {
        row_list rows = {0};
        for (int64_t n = 0; n < layer->load.num_seqs; n++) {
            const int64_t at = (n * p->num_v_heads + h) * matrix;
            row_list_add(&rows, final + at, p->head_k_dim, layer->ref_final + at, p->head_v_dim, p->head_k_dim,
                         GDN_DTYPE_F32, n, 0);
        }
        good = row_list_finish(&rows, h, stats) && good;
    }
    return good;
}

static int compare(const char *command, const layer_file *layer, const run_outputs *outputs, double max_error,
                   bool float64)
{
    int code = CLI_SUCCESS;
    error_stats o = {0}, final = {0};
    if (outputs->stray != NULL) {
        return cli_fail(command, "%s was written outside its tensor", outputs->stray);
    }
    if ((layer->ref_o != NULL && !compare_o(layer, outputs->o, &o)) ||
        (layer->ref_final != NULL && outputs->final != NULL && !compare_final(layer, outputs->final, &final))) {
        return cli_fail(command, "out of memory");
    }
    code |= report_line(command, "o against ref.o", &o, "token", max_error);
    code |= report_line(command, "final_state against ref.final_state", &final, "sequence", max_error);
    judgement result;
    if (float64) {
        if (!judge(&layer->load, outputs, float64_budget, &result)) {
            return cli_fail(command, "out of memory");
        }
        char what[160];
        snprintf(what, sizeof(what), "o against float64 (%s)", result.scope);
        code |= report_line(command, what, &result.o, "token", max_error);
        snprintf(what, sizeof(what), "final_state against float64 (%s)", result.scope);
        code |= report_line(command, what, &result.final, "sequence", max_error);
    }
    return code;
}

int layer_report(const char *command, const layer_file *layer, const run_outputs *outputs,
                 const layer_report_options *options)
{
    const int code = compare(command, layer, outputs, options->max_error, options->float64);
    if (options->output == NULL) {
        return code;
    }
    char error[1024], program[32];
    snprintf(program, sizeof(program), "gdn %s", command);
    if (!layer_write_outputs(layer, options->output, outputs->o, outputs->final, program, error, sizeof(error))) {
        return cli_fail(command, "%s", error);
    }
    printf("output: %s\n", options->output);
    return code;
}
