/* The judge: GDN token by token in double, straight from the definition
 *     S <- alpha S;  u = beta (v - k S);  S <- S + k^T u;  o = scale q S
 * It reads a problem and its argument struct as the library does (pointers in host memory) and shares no
 * code with it. */
#ifndef GDN_TESTS_REFERENCE_H
#define GDN_TESTS_REFERENCE_H

#include <gdn/gdn.h>

#include <stdbool.h>

/* Rows of tokens are numbered as total_tokens (prefill) or row * tokens_per_row + t (decode). */
typedef struct reference_result {
    int64_t num_rows; /* sequences or decode rows */
    int64_t num_tokens;
    double *o; /* [num_tokens, HV, V] */
    bool *token_written; /* [num_tokens]: the call writes this row of o */
    double *state; /* [num_rows, HV, V, K]: after the row's last token */
    bool *row_done; /* [num_rows]: not skipped */
    int64_t num_checkpoints; /* entries the call has, written or not */
    double *checkpoints; /* [num_checkpoints, HV, V, K] */
    bool *checkpoint_written;
    double *token_states; /* decode with token_slots: [num_tokens, HV, V, K] */

    /* Squares of the terms that a chunk adds up to each result (reference_terms.h). */
    double *o_terms; /* [num_tokens, HV] */
    double *state_terms; /* [num_rows, HV] */
    double *checkpoint_terms; /* [num_checkpoints, HV] */
} reference_result;

reference_result reference_prefill(const gdn_problem *problem, const gdn_prefill_args *args);
reference_result reference_decode(const gdn_problem *problem, const gdn_decode_args *args);
void reference_free(reference_result *result);

/* The gate formulas in double. */
double reference_log_decay(double a, double A_log, double dt_bias);
double reference_beta(double b, double beta_scale);

/* Which q/k head value head hv reads. */
int32_t reference_k_head(const gdn_problem *problem, int32_t hv);

#endif
