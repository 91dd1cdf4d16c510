/* A workload placed on a backend: the plan, the buffers with the layouts the problem asks for, the call, and the
 * outputs brought back as dense float32. Several copies of the data let a benchmark step past the caches. */
#ifndef GDN_TOOLS_WORKLOAD_RUN_H
#define GDN_TOOLS_WORKLOAD_RUN_H

#include "workload.h"

typedef enum run_buffer_id {
    RUN_Q, /* with packed strides also k and v */
    RUN_K,
    RUN_V,
    RUN_O,
    RUN_GATE,
    RUN_BETA,
    RUN_STATE,
    RUN_FINAL,
    RUN_CHECKPOINTS,
    RUN_NUM_ROTATED, /* those above exist once a copy, those below once */
    RUN_A_LOG = RUN_NUM_ROTATED,
    RUN_DT_BIAS,
    RUN_CU,
    RUN_READ_SLOTS,
    RUN_WRITE_SLOTS,
    RUN_TOKEN_SLOTS,
    RUN_HAS_INITIAL,
    RUN_NUM_TOKENS,
    RUN_CHECKPOINT_POSITIONS,
    RUN_CHECKPOINT_OFFSETS,
    RUN_WORKSPACE,
    RUN_NUM_BUFFERS
} run_buffer_id;

typedef struct run_buffer {
    void *data; /* backend memory; NULL: the call gets NULL */
    size_t bytes; /* of one copy */
    size_t pitch; /* from one copy to the next */
} run_buffer;

typedef struct workload_run {
    gdn_context *context; /* borrowed */
    const workload *load; /* borrowed */
    gdn_plan *plan;
    int64_t copies;
    bool packed; /* k and v lie in RUN_Q's buffer */
    size_t k_offset, v_offset; /* bytes from RUN_Q, when packed */
    run_buffer buffers[RUN_NUM_BUFFERS];
} workload_run;

typedef struct run_outputs { /* dense float32; NULL where the problem has none */
    float *o; /* [total_tokens, num_v_heads, V] */
    float *final; /* [num_seqs, num_v_heads, V, K], what each sequence wrote */
    float *checkpoints; /* [num_checkpoints, num_v_heads, V, K] */
    float *token_states; /* [num_seqs, tokens_per_row, num_v_heads, V, K] */
    const char *stray; /* an output that was written outside what the call describes, or NULL */
} run_outputs;

/* Bytes of one copy of the rotated buffers, to choose how many copies pass a cache. */
size_t workload_run_copy_bytes(const workload *load);

/* Plans, allocates and fills. On failure gdn_last_error() says why and everything is released. */
gdn_status workload_run_create(workload_run *run, gdn_context *context, const workload *load, int64_t copies);
void workload_run_destroy(workload_run *run);

/* Writes q, k, v, gates, states and poisoned outputs of a copy anew. */
gdn_status workload_run_fill(workload_run *run, int64_t copy);

/* The same for the token inputs, o and num_tokens only: the next step of a decode that keeps its states. */
gdn_status workload_run_fill_tokens(workload_run *run, int64_t copy);

gdn_status workload_run_call(const workload_run *run, int64_t copy, void *stream);

/* Waits for the work, then reads what a copy's buffers hold. */
gdn_status workload_run_outputs(const workload_run *run, int64_t copy, run_outputs *outputs);
void run_outputs_free(run_outputs *outputs);

/* Bytes of every buffer but the workspace that one call must touch at least once: inputs read, outputs written, states
 * read and written. */
double workload_min_bytes(const workload *load);

#endif
