/* A workload: one problem and, as dense host arrays, everything that one call of it is given. The random generator
 * and the file reader fill it, workload_run places it on a backend, the reference computes what must come out.
 * Values are float32, already rounded to the element types of the problem, so that all three see the same inputs. */
#ifndef GDN_TOOLS_WORKLOAD_H
#define GDN_TOOLS_WORKLOAD_H

#include <gdn/gdn.h>

#include <stdbool.h>

typedef struct workload {
    gdn_problem problem;
    int64_t num_seqs; /* sequences of a prefill, rows of a decode */
    int64_t total_tokens;
    int64_t *cu; /* [num_seqs + 1] first token of each sequence or row */

    float *q, *k; /* [total_tokens, num_k_heads, head_k_dim] */
    float *v; /* [total_tokens, num_v_heads, head_v_dim] */
    float *gate, *beta; /* [total_tokens, num_v_heads] */
    float *A_log, *dt_bias; /* [num_v_heads]; NULL unless the gates are raw (dt_bias: optional even then) */

    float *initial; /* [num_seqs, num_v_heads, V, K], what each sequence reads; NULL: zeros */
    bool wants_final; /* DENSE: a final state is asked for */
    uint8_t *has_initial; /* [num_seqs] or NULL: all */
    int64_t num_slots; /* POOL */
    int64_t *read_slots, *write_slots; /* [num_seqs]; POOL; write_slots NULL: none is written */
    int64_t *token_slots; /* [num_seqs, tokens_per_row] or NULL */
    int32_t *num_tokens; /* decode: [num_seqs] or NULL */

    int64_t num_checkpoints;
    int64_t *checkpoint_positions, *checkpoint_offsets; /* AT: [num_checkpoints], [num_seqs + 1] */
} workload;

/* Allocates cu, q, k, v, gate, beta (and A_log, dt_bias for raw gates) for the counts given; false: out of memory. */
bool workload_alloc(workload *load, const gdn_problem *problem, int64_t num_seqs, int64_t total_tokens);
void workload_free(workload *load);

/* Tokens of a sequence that are there (num_tokens for decode). */
int64_t workload_length(const workload *load, int64_t seq);
/* Its slots are negative: nothing of it is read or written. */
bool workload_skipped(const workload *load, int64_t seq);
/* It starts from load->initial, not from zeros. */
bool workload_has_state(const workload *load, int64_t seq);
/* Index of sequence seq's first checkpoint entry. */
int64_t workload_first_checkpoint(const workload *load, int64_t seq);
/* Elements of one sequence's state, over all heads. */
int64_t workload_state_size(const workload *load);

/* Rounds values to a dtype's grid in place. */
void workload_round(float *values, int64_t count, gdn_dtype dtype);

#endif
