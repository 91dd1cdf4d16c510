/* Judging outputs against the float64 recurrence, or against stored tensors: relative Frobenius error, the worst row,
 * and for 16-bit outputs the worst element beyond its own rounding. */
#ifndef GDN_TOOLS_JUDGE_H
#define GDN_TOOLS_JUDGE_H

#include "workload_run.h"

/* A row is one vector of o, or one v row of a state. Its error is ||d|| / max(||ref||, RMS row norm), the RMS taken
 * over all judged rows of that head. */
typedef struct error_stats {
    double diff_sum, ref_sum; /* sums of squares */
    double worst_row;
    int64_t worst_at, worst_head; /* token (o) or sequence (states), and v head, of the worst row */
    double
        worst_excess; /* 16-bit: most (|d| - half an ulp) / RMS row norm of an element; 0 or less: all in half an ulp */
    int64_t non_finite; /* elements not finite where the reference is */
    int64_t unjudged; /* elements whose reference is not finite: there is no error to speak of */
    int64_t rows;
} error_stats;

double error_frobenius(const error_stats *stats);

/* One row compared; rows of a head are collected, then summed up together, since their scale is the head's. */
typedef struct row_error {
    double diff, ref; /* norms */
    double excess; /* most |d| - half an ulp of an element */
    int64_t at; /* token or sequence */
    int64_t non_finite, unjudged;
} row_error;

typedef struct row_list {
    row_error *rows;
    int64_t count, capacity;
    bool failed; /* out of memory: rows are missing */
} row_list;

/* Compares `rows` rows of `dim` elements and appends them; `at` names the first, `step` leads to the next (0: the same
 * for all, as the v rows of one sequence's state). */
void row_list_add(row_list *list, const float *got, int64_t got_stride, const double *ref, int64_t rows, int32_t dim,
                  gdn_dtype dtype, int64_t at, int64_t step);
/* Adds the rows of one head to *stats and empties the list. False: rows were missing. */
bool row_list_finish(row_list *list, int64_t head, error_stats *stats);

typedef struct judgement {
    error_stats o, final, checkpoints, token_states; /* rows is 0 where there was nothing to judge */
    int64_t heads, seqs, tokens; /* how much was judged: v heads, sequences, tokens of each at most */
    char scope[96]; /* the same in words: "all", or "4 of 32 heads" */
} judgement;

/* Judges as much as `budget` floating-point operations of reference allow (0: everything). False: out of memory. */
bool judge(const workload *load, const run_outputs *outputs, double budget, judgement *result);

/* What a result must stay within. */
typedef struct error_bounds {
    double frobenius;
    double row; /* 0: not bounded */
    double excess; /* 16-bit outputs of float32 products; 0: not bounded */
} error_bounds;

/* The bounds of the library's promise for an output of this dtype. `hard` says ill-conditioned inputs. */
error_bounds judge_bounds(const workload *load, const char *backend, gdn_dtype dtype, bool is_state, bool hard);
bool error_within(const error_stats *stats, const error_bounds *bounds);

#endif
