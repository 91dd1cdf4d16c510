/* The one-line problem syntax of `gdn verify` and `gdn bench`: space-separated key=value pairs, for example
 *
 *     heads=16/32 dim=128 seqs=8x1024,70,0,5 dtype=bf16 gates=raw beta=logit norm=rsqrt state=pool:f32 decay=weak
 *
 * problem_text_keys() lists every key, its values and its default. Parsing is strict: an unknown or repeated key, a
 * wrong value or a combination that means nothing is an error that names the key, the value and what is allowed. */
#ifndef GDN_TOOLS_PROBLEM_TEXT_H
#define GDN_TOOLS_PROBLEM_TEXT_H

#include <gdn/gdn.h>

#include <stdbool.h>

typedef enum text_strides {
    TEXT_STRIDES_DENSE,
    TEXT_STRIDES_PACKED, /* q, k and v are slices of one row a token, as a model's projection gives them */
    TEXT_STRIDES_PADDED /* every head, token and slot is followed by a gap */
} text_strides;

typedef enum text_decay { /* regimes of the gate, and two extremes */
                          TEXT_DECAY_STANDARD, /* A ~ U(1, 16), dt = exp(U(ln 1e-3, ln 0.1)), a ~ N(0, 1): a model's initialisation */
                          TEXT_DECAY_WEAK, /* log decay = ln U(0, 1) / 16, every fourth head 0 */
                          TEXT_DECAY_STRONG, /* log decay = ln U(0, 1) */
                          TEXT_DECAY_NONE, /* log decay = 0 */
                          TEXT_DECAY_RESET /* weak, and one token in fifty forgets everything */
} text_decay;

typedef enum text_keys {
    TEXT_KEYS_RANDOM,
    TEXT_KEYS_REPEATED /* one key for all tokens of a head: the worst-conditioned I + L */
} text_keys;

typedef enum text_initial {
    TEXT_INITIAL_ALL, /* every sequence starts from a random state */
    TEXT_INITIAL_ZERO, /* no state is passed (dense), has_initial_state is 0 everywhere (pool) */
    TEXT_INITIAL_MIXED, /* has_initial_state alternates; the states of the others hold NaN */
    TEXT_INITIAL_TINY /* as ALL, with states and v of 1e-39: to time subnormal numbers, which are flushed to 0 */
} text_initial;

typedef enum text_update { TEXT_UPDATE_INPLACE, TEXT_UPDATE_SEPARATE, TEXT_UPDATE_NONE } text_update;

#define TEXT_MAX_GROUPS 256
#define TEXT_MAX_SEQS ((int64_t)1 << 20)
#define TEXT_MAX_TOKENS ((int64_t)1 << 26)

typedef struct text_group { /* count sequences of one length */
    int64_t count, length;
} text_group;

/* A problem as typed. Words are indices into the key's list of values. */
typedef struct problem_text {
    int64_t op; /* gdn_operation */
    int64_t num_k_heads, num_v_heads, head_k_dim, head_v_dim;
    int64_t tokens; /* 0: what seqs says */
    int64_t num_groups; /* 0: one sequence of `tokens` */
    text_group groups[TEXT_MAX_GROUPS];
    int64_t rows, tokens_per_row;
    int64_t num_tokens; /* 1: random counts 0..tokens_per_row */
    int64_t dtype; /* index into f32, bf16, f16 */
    int64_t gate_dtype; /* 1: that of q */
    int64_t gates, beta, beta_scale, norm;
    double norm_eps;
    double scale; /* NAN: auto */
    int64_t head_map, numerics, chunk, segments;
    int64_t state_form, state_dtype, final_dtype, layout;
    int64_t cu; /* index into i64, i32, none */
    int64_t slots; /* index into i64, i32 */
    int64_t update, initial, skip, token_slots;
    int64_t checkpoint_form, checkpoint_interval;
    int64_t strides;
    int64_t workspace;
    int64_t check;
    int64_t decay, keys, seed;
} problem_text;

/* False: `error` holds one line and *text is undefined. */
bool problem_text_parse(problem_text *text, const char *line, char *error, size_t error_size);

/* The canonical line: parses back to the same problem; defaults are left out. False where it does not fit. */
bool problem_text_format(const problem_text *text, char *line, size_t size);

/* The key table as help text, one key a line. */
void problem_text_keys(char *help, size_t size);

int64_t problem_text_num_seqs(const problem_text *text); /* or rows */
int64_t problem_text_total_tokens(const problem_text *text);
int64_t problem_text_longest(const problem_text *text);

/* The gdn_problem that the text describes, layouts and maxima included. Its values may still be refused by
 * gdn_plan_create: that is the library's to say. */
void problem_text_build(const problem_text *text, gdn_problem *problem);

#endif
