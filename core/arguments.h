/* The pointers of a run, seen as strided arrays with names: one set of checks for prefill and decode. */
#ifndef GDN_CORE_ARGUMENTS_H
#define GDN_CORE_ARGUMENTS_H

#include "context.h"
#include "strides.h"

typedef struct gdn_argument {
    const char *name;
    const void *ptr;
    size_t element; /* bytes of one */
    uint32_t alignment; /* that the pointer must have */
    gdn_dims dims; /* what the run touches of it */
    bool output;
    bool required; /* NULL is an error if there are elements */
    const char *may_equal; /* (optional) the argument this one may coincide with exactly */
} gdn_argument;

#define GDN_MAX_ARGUMENTS 24

typedef struct gdn_arguments {
    int32_t count;
    gdn_argument item[GDN_MAX_ARGUMENTS];
} gdn_arguments;

/* The arguments both operations have. */
typedef struct gdn_common_args {
    const void *q, *k, *v;
    void *o;
    const void *gate, *beta;
    const float *A_log, *dt_bias;
    void *state, *final_state;
    int64_t num_slots;
    const void *read_slots, *write_slots;
    const uint8_t *has_initial_state;
} gdn_common_args;

/* Copies them from a gdn_prefill_args or gdn_decode_args, whose fields have the same names. */
#define GDN_COMMON_ARGS(args)                                                                                       \
    {                                                                                                               \
        .q = (args)->q, .k = (args)->k, .v = (args)->v, .o = (args)->o, .gate = (args)->gate, .beta = (args)->beta, \
        .A_log = (args)->A_log, .dt_bias = (args)->dt_bias, .state = (args)->state,                                 \
        .final_state = (args)->final_state, .num_slots = (args)->num_slots, .read_slots = (args)->read_slots,       \
        .write_slots = (args)->write_slots, .has_initial_state = (args)->has_initial_state                          \
    }

/* Lists them for `seqs` sequences (or rows); the token tensors as [rows, tokens, heads, dim]. */
void gdn_arguments_add_common(gdn_arguments *arguments, const gdn_problem *problem, const gdn_common_args *args,
                              int64_t seqs, int64_t rows, int64_t tokens);

/* One pointer the problem's options may leave no use for. */
typedef struct gdn_unused_rule {
    bool used;
    const void *ptr;
    const char *name;
    const char *when; /* the option that gives it a use */
} gdn_unused_rule;

/* A pointer passed without a use is a mistake worth telling: refused by name. */
gdn_status gdn_arguments_check_unused(const gdn_unused_rule *rules, size_t count);
gdn_status gdn_arguments_check_common_unused(const gdn_problem *problem, const gdn_common_args *args);

/* Token tensor [rows, tokens, heads, dim] (rows 1 and packed tokens for a prefill with cu_seqlens; dim 0 for gates). */
void gdn_arguments_add_tokens(gdn_arguments *arguments, const char *name, const void *ptr, const gdn_layout *layout,
                              int64_t rows, int64_t tokens, int64_t heads, int64_t dim, bool output);
/* States [slots, num_v_heads, V, K] of the problem. */
void gdn_arguments_add_states(gdn_arguments *arguments, const char *name, const void *ptr,
                              const gdn_state_layout *layout, const gdn_problem *problem, int64_t slots, bool output,
                              bool required);
/* A dense array of `count` elements of `dtype`. */
void gdn_arguments_add_array(gdn_arguments *arguments, const char *name, const void *ptr, gdn_dtype dtype,
                             int64_t count, bool required);

/* NULL, alignment, a pointer the device cannot use, outputs that overlap anything: refused by name. The workspace takes
 * part as an output. */
gdn_status gdn_arguments_check(const gdn_arguments *arguments, const gdn_context *context, void *workspace,
                               size_t workspace_size, size_t workspace_needed);

#endif
