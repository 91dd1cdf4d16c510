/* A recorded layer: a safetensors file with the inputs of one call and, optionally, what came out of it elsewhere.
 *
 *   q, k           [T, num_k_heads, head_k_dim]        F32, BF16 or F16, one dtype for q, k and v
 *   v              [T, num_v_heads, head_v_dim]
 *   a  (or log_decay, decay)   [T, num_v_heads]        F32 or the dtype of q
 *   b  (or beta)               [T, num_v_heads]
 *   A_log, dt_bias [num_v_heads]                       F32; raw gates only, dt_bias optional
 *   cu_seqlens     [N + 1]                             I32 or I64; optional: one sequence
 *   initial_state  [N, num_v_heads, V, K]              F32, BF16 or F16; optional: zeros
 *   ref.o, ref.final_state                             optional: to compare with
 *
 * Metadata: gdn.gate = raw (default) | log_decay | decay; gdn.beta = logit (default) | value; gdn.norm = rsqrt (default)
 * | none | eps_outside; gdn.norm_eps; gdn.head_map = grouped (default) | tiled; gdn.scale; gdn.source. */
#ifndef GDN_TOOLS_LAYER_FILE_H
#define GDN_TOOLS_LAYER_FILE_H

#include "safetensors.h"
#include "workload.h"

typedef struct layer_file {
    safetensors_file *file;
    workload load; /* a DENSE prefill */
    const char *source; /* gdn.source, or "" */
    double *ref_o; /* [T, num_v_heads, V] or NULL */
    double *ref_final; /* [N, num_v_heads, V, K] or NULL */
} layer_file;

/* False: `error` holds one line. io is GDN_DTYPE_NONE, or the dtype to round q, k, v to and to ask o in. */
bool layer_open(layer_file *layer, const char *path, gdn_dtype io, char *error, size_t error_size);
void layer_close(layer_file *layer);

/* Writes o and final_state (NULL: none) beside what made them. o is stored in the problem's o dtype, states as F32. */
bool layer_write_outputs(const layer_file *layer, const char *path, const float *o, const float *final,
                         const char *producer, char *error, size_t error_size);

#endif
