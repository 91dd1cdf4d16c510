#include "judge.h"

#include "reference.h"
#include "tests/harness/tolerances.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double error_frobenius(const error_stats *stats)
{
    if (stats->non_finite > 0) {
        return INFINITY;
    }
    return stats->ref_sum > 0 ? sqrt(stats->diff_sum / stats->ref_sum) : stats->diff_sum > 0 ? INFINITY : 0;
}

/* Half the distance between neighbours of a 16-bit type around x. */
static double half_ulp(double x, gdn_dtype dtype)
{
    const int digits = dtype == GDN_DTYPE_BF16 ? 8 : 11, lowest = dtype == GDN_DTYPE_BF16 ? -125 : -13;
    int exponent = 0;
    (void)frexp(x, &exponent);
    return ldexp(0.5, (exponent > lowest ? exponent : lowest) - digits);
}

static double ratio(double numerator, double denominator)
{
    return denominator > 0 ? numerator / denominator : numerator > 0 ? INFINITY : 0;
}

static row_error compare_row(const float *got, const double *ref, int32_t dim, gdn_dtype dtype, int64_t at)
{
    const bool narrow = dtype == GDN_DTYPE_BF16 || dtype == GDN_DTYPE_F16;
    row_error row = {.at = at};
    double diff_sum = 0, ref_sum = 0;
    for (int32_t d = 0; d < dim; d++) {
        const double y = ref[d], x = got[d];
        if (!isfinite(x) && isfinite(y)) {
            row.non_finite++;
            continue;
        }
        if (!isfinite(y)) {
            row.unjudged++;
            continue;
        }
        const double diff = fabs(x - y);
        diff_sum += diff * diff;
        ref_sum += y * y;
        if (narrow) {
            row.excess = fmax(row.excess, diff - half_ulp(fabs(y) > fabs(x) ? y : x, dtype));
        }
    }
    row.diff = sqrt(diff_sum);
    row.ref = sqrt(ref_sum);
    return row;
}

void row_list_add(row_list *list, const float *got, int64_t got_stride, const double *ref, int64_t rows, int32_t dim,
                  gdn_dtype dtype, int64_t at, int64_t step)
{
    if (list->count + rows > list->capacity) {
        const int64_t capacity = 2 * (list->count + rows);
        row_error *const grown = realloc(list->rows, (size_t)capacity * sizeof(row_error));
        if (grown == NULL) {
            list->failed = true;
            return;
        }
        list->rows = grown;
        list->capacity = capacity;
    }
    for (int64_t r = 0; r < rows; r++) {
        list->rows[list->count++] = compare_row(got + r * got_stride, ref + r * dim, dim, dtype, at + r * step);
    }
}

bool row_list_finish(row_list *list, int64_t head, error_stats *stats)
{
    const bool good = !list->failed;
    double sum = 0;
    for (int64_t i = 0; i < list->count; i++) {
        sum += list->rows[i].ref * list->rows[i].ref;
    }
    const double rms = list->count > 0 ? sqrt(sum / (double)list->count) : 0;
    for (int64_t i = 0; i < list->count; i++) {
        const row_error *const row = &list->rows[i];
        const double error = ratio(row->diff, fmax(row->ref, rms));
        if (error > stats->worst_row || stats->rows == 0) {
            stats->worst_row = error;
            stats->worst_at = row->at;
            stats->worst_head = head;
        }
        stats->worst_excess = fmax(stats->worst_excess, ratio(fmax(row->excess, 0), rms));
        stats->non_finite += row->non_finite;
        stats->unjudged += row->unjudged;
        stats->diff_sum += row->diff * row->diff;
        stats->rows++;
    }
    stats->ref_sum += sum;
    free(list->rows);
    *list = (row_list){0};
    return good;
}

/* Moves one list's rows behind another's. */
static void append(row_list *to, row_list *from)
{
    if (to->count == 0 && !to->failed) {
        free(to->rows);
        *to = *from;
        *from = (row_list){0};
        return;
    }
    to->failed = to->failed || from->failed;
    if (from->count == 0) {
        free(from->rows);
        *from = (row_list){0};
        return;
    }
    const int64_t capacity = to->count + from->count;
    row_error *const grown = realloc(to->rows, ((size_t)capacity + 1) * sizeof(row_error));
    to->failed = to->failed || grown == NULL;
    if (grown != NULL) {
        memcpy(grown + to->count, from->rows, (size_t)from->count * sizeof(row_error));
        to->rows = grown;
        to->count = to->capacity = capacity;
    }
    free(from->rows);
    *from = (row_list){0};
}

/* What one head of one sequence, then one head, gives. */
typedef struct head_rows {
    row_list o, final, checkpoints, token_states;
} head_rows;

/* States of one head of one sequence, compared as the reference passes by them. */
typedef struct state_visit {
    const workload *load;
    const run_outputs *outputs;
    head_rows *part;
    int64_t seq, head;
    int64_t first_checkpoint, next_checkpoint, end_checkpoint; /* entries of the sequence; the next to compare */
} state_visit;

static void compare_state(const state_visit *visit, row_list *list, const float *states, int64_t index, const double *S,
                          gdn_dtype dtype)
{
    const gdn_problem *const p = &visit->load->problem;
    const int64_t matrix = (int64_t)p->head_v_dim * p->head_k_dim;
    const float *const got = states + index * workload_state_size(visit->load) + visit->head * matrix;
    row_list_add(list, got, p->head_k_dim, S, p->head_v_dim, p->head_k_dim, dtype, visit->seq, 0);
}

/* Tokens consumed at the next entry; -1 when none is left. */
static int64_t next_position(const state_visit *visit)
{
    const workload *const load = visit->load;
    if (visit->next_checkpoint >= visit->end_checkpoint) {
        return -1;
    }
    if (load->problem.checkpoint_form == GDN_CHECKPOINT_AT) {
        return load->checkpoint_positions[visit->next_checkpoint];
    }
    return (visit->next_checkpoint - visit->first_checkpoint + 1) * load->problem.checkpoint_interval;
}

static void visit_state(void *user, int64_t consumed, const double *S)
{
    state_visit *const visit = user;
    const workload *const load = visit->load;
    const gdn_problem *const p = &load->problem;
    const run_outputs *const outputs = visit->outputs;
    if (outputs->final != NULL && consumed == workload_length(load, visit->seq)) {
        const gdn_dtype dtype = p->state_form == GDN_STATE_POOL ? p->state.dtype : p->final_state.dtype;
        compare_state(visit, &visit->part->final, outputs->final, visit->seq, S, dtype);
    }
    if (outputs->token_states != NULL && consumed > 0) {
        const int64_t index = visit->seq * p->tokens_per_row + consumed - 1;
        if (load->token_slots[index] >= 0) {
            compare_state(visit, &visit->part->token_states, outputs->token_states, index, S, p->state.dtype);
        }
    }
    if (consumed == next_position(visit)) {
        compare_state(visit, &visit->part->checkpoints, outputs->checkpoints, visit->next_checkpoint, S,
                      p->checkpoints.dtype);
        visit->next_checkpoint++;
    }
}

/* Chooses heads, then sequences, then tokens, until the reference's cost fits. */
static void choose_scope(const workload *load, double budget, judgement *result)
{
    const int64_t heads = load->problem.num_v_heads;
    double tokens = 0;
    int64_t longest = 0;
    for (int64_t n = 0; n < load->num_seqs; n++) {
        tokens += (double)workload_length(load, n);
        longest = workload_length(load, n) > longest ? workload_length(load, n) : longest;
    }
    result->heads = heads;
    result->seqs = load->num_seqs;
    result->tokens = longest;
    const double one_head = tokens * reference_cost(load);
    if (budget <= 0 || one_head * (double)heads <= budget) {
        snprintf(result->scope, sizeof(result->scope), "all");
        return;
    }
    result->heads = one_head >= budget ? 1 : (int64_t)(budget / one_head);
    if (one_head > budget && load->num_seqs > 1) {
        const int64_t fit = (int64_t)(budget / one_head * (double)load->num_seqs);
        result->seqs = fit < 1 ? 1 : fit;
    }
    const double limit = budget / reference_cost(load) / (double)result->seqs;
    if (result->heads == 1 && (double)longest > limit) {
        result->tokens = (int64_t)limit > 0 ? (int64_t)limit : 1;
    }
    const bool cut = result->tokens < longest;
    snprintf(result->scope, sizeof(result->scope), "%lld/%lld heads, %lld/%lld seqs, %s%lld tokens",
             (long long)result->heads, (long long)heads, (long long)result->seqs, (long long)load->num_seqs,
             cut ? "first " : "", (long long)result->tokens);
}

/* One head of one sequence. */
static bool judge_pair(const workload *load, const run_outputs *outputs, int64_t seq, int32_t head, int64_t max_tokens,
                       head_rows *part)
{
    const gdn_problem *const p = &load->problem;
    const int32_t V = p->head_v_dim;
    const int64_t row = (int64_t)p->num_v_heads * V, there = workload_length(load, seq);
    const int64_t length = there < max_tokens ? there : max_tokens;
    double *const S = malloc((size_t)V * (size_t)p->head_k_dim * sizeof(double));
    double *const o = malloc(((size_t)(length * V) + 1) * sizeof(double));
    state_visit visit = {load, outputs, part, seq, head, 0, 0, 0};
    if (outputs->checkpoints != NULL) {
        visit.first_checkpoint = visit.next_checkpoint = workload_first_checkpoint(load, seq);
        visit.end_checkpoint = workload_first_checkpoint(load, seq + 1);
    }
    const bool good = S != NULL && o != NULL && reference_run(load, seq, head, length, o, S, visit_state, &visit);
    if (good) {
        const int64_t first = load->cu[seq];
        row_list_add(&part->o, outputs->o + first * row + (int64_t)head * V, row, o, length, V, p->o.dtype, first, 1);
    }
    free(S);
    free(o);
    return good;
}

bool judge(const workload *load, const run_outputs *outputs, double budget, judgement *result)
{
    memset(result, 0, sizeof(*result));
    choose_scope(load, budget, result);
    const int64_t seqs = result->seqs, pairs = result->heads * seqs;
    head_rows *const parts = calloc((size_t)pairs + 1, sizeof(*parts));
    bool good = parts != NULL;
#pragma omp parallel for schedule(dynamic) reduction(&& : good) if (pairs > 1)
    for (int64_t pair = 0; pair < pairs; pair++) {
        const int32_t head = (int32_t)(pair / seqs * load->problem.num_v_heads / result->heads);
        const int64_t seq = pair % seqs * load->num_seqs / seqs;
        if (good && !workload_skipped(load, seq)) {
            good = judge_pair(load, outputs, seq, head, result->tokens, &parts[pair]);
        }
    }
    for (int64_t pair = 0; parts != NULL && pair < pairs; pair++) {
        head_rows *const part = &parts[pair], *const first = &parts[pair / seqs * seqs];
        if (part != first) {
            append(&first->o, &part->o);
            append(&first->final, &part->final);
            append(&first->checkpoints, &part->checkpoints);
            append(&first->token_states, &part->token_states);
        }
    }
    for (int64_t i = 0; parts != NULL && i < result->heads && seqs > 0; i++) {
        const int64_t head = i * load->problem.num_v_heads / result->heads;
        head_rows *const rows = &parts[i * seqs];
        good = row_list_finish(&rows->o, head, &result->o) && good;
        good = row_list_finish(&rows->final, head, &result->final) && good;
        good = row_list_finish(&rows->checkpoints, head, &result->checkpoints) && good;
        good = row_list_finish(&rows->token_states, head, &result->token_states) && good;
    }
    free(parts);
    return good;
}

error_bounds judge_bounds(const workload *load, const char *backend, gdn_dtype dtype, bool is_state, bool hard)
{
    const gdn_problem *const p = &load->problem;
    const bool narrow = dtype == GDN_DTYPE_BF16 || dtype == GDN_DTYPE_F16;
    const bool narrow_io = p->q.dtype != GDN_DTYPE_F32, cuda = strcmp(backend, "cuda") == 0;
    const double times = hard ? TOLERANCE_REPEATED_KEYS : 1; /* for operands of 16 bits */
    if (!cuda && p->numerics == GDN_NUMERICS_BF16) {
        return (error_bounds){times * TOLERANCE_CPU_BF16, times * TOLERANCE_TENSOR_CORE_ROW, 0};
    }
    if (cuda && (p->numerics == GDN_NUMERICS_BF16 || (narrow_io && p->numerics == GDN_NUMERICS_DEFAULT))) {
        const double standard = is_state ? TOLERANCE_STANDARD_STATE : TOLERANCE_STANDARD_O;
        const double tensor_core = is_state ? TOLERANCE_TENSOR_CORE_STATE : TOLERANCE_TENSOR_CORE_O;
        return (error_bounds){hard ? times * tensor_core : standard, times * TOLERANCE_TENSOR_CORE_ROW, 0};
    }
    if (p->numerics == GDN_NUMERICS_TF32) {
        return (error_bounds){TOLERANCE_TF32, TOLERANCE_TF32_ROW, 0};
    }
    if (narrow) { /* float32 products; the output's own rounding comes on top, and is bounded element by element */
        const double unit = dtype == GDN_DTYPE_BF16 ? 0x1p-9 : 0x1p-12;
        return (error_bounds){2 * unit + TOLERANCE_ROUNDED, 2 * unit + 2 * TOLERANCE_ROUNDED, TOLERANCE_ROUNDED};
    }
    const double mild = cuda ? TOLERANCE_GPU_FROBENIUS : TOLERANCE_FROBENIUS;
    return (error_bounds){hard ? TOLERANCE_FROBENIUS_ADVERSARIAL : mild, TOLERANCE_ROW, 0};
}

bool error_within(const error_stats *stats, const error_bounds *bounds)
{
    return stats->non_finite == 0 && error_frobenius(stats) <= bounds->frobenius &&
           (bounds->row == 0 || stats->worst_row <= bounds->row) &&
           (bounds->excess == 0 || stats->worst_excess <= bounds->excess);
}
