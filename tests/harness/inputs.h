/* Builds a complete call, problem, buffers and arguments, from a compact description.
 *
 *     case_spec spec = {.label = "...", .seed = 1, .num_k_heads = 2, .num_v_heads = 4, .length = 70};
 *     test_case c;
 *     case_build(&c, &spec);      host buffers: inputs filled, outputs full of NaN
 *     case_put(&c, CASE_V, t, h, d, x);      exact values where a test wants them
 *     ... execute.h runs it, judge.h compares it with the reference ...
 *     case_free(&c);
 *
 * A zero in a spec is the plain choice, named at each field. */
#ifndef GDN_TESTS_INPUTS_H
#define GDN_TESTS_INPUTS_H

#include <gdn/gdn.h>

#include <stdbool.h>

/* How each token's log decay is drawn. */
typedef enum gate_regime {
    GATES_STANDARD, /* A ~ U(1, 16), dt = exp(U(ln 1e-3, ln 0.1)), a ~ N(0, 1): a model's initialisation */
    GATES_WEAK, /* ln U(0, 1) / 16, and every fourth head exactly 0 */
    GATES_STRONG, /* ln U(0, 1) */
    GATES_CONSTANT, /* spec->gate at every token */
    GATES_MIXED_ZEROS, /* half the tokens exactly 0, the others U(-0.5, 0) */
    GATES_RESET, /* one -inf (or what the form has for it) in every 64 tokens, the others -0.05 */
    GATES_WIDE, /* U(-20, -1e-4) */
    GATES_SMALL, /* U(-0.015, -0.005) */
    GATES_ALTERNATE, /* runs of 64 tokens of -0.01 and of -8 */
    NUM_GATE_REGIMES
} gate_regime;

typedef enum beta_regime {
    BETAS_STANDARD, /* sigmoid(N(0, 1)), times beta_scale */
    BETAS_CONSTANT /* spec->beta at every token */
} beta_regime;

typedef enum key_regime {
    KEYS_NORMAL, /* N(0, 1), of unit length unless the call normalises */
    KEYS_EQUAL, /* q and k one fixed unit vector, 1/sqrt(K) everywhere */
    KEYS_POSITIVE /* U(0, 1), of unit length unless the call normalises: highly correlated */
} key_regime;

typedef enum operand_style {
    OPERANDS_DENSE,
    OPERANDS_PACKED, /* q, k, v are views of one [q | k | v] row; a and b of one [a | b] row */
    OPERANDS_PADDED, /* every operand has odd token and head strides of its own */
    OPERANDS_INTERLEAVED, /* gate and beta alternate: head stride 2; q, k, v, o [heads, tokens, dim] */
    OPERANDS_SHIFTED, /* dense, each base pointer one element off its 16-byte boundary; alignment says so */
    OPERANDS_PADDED_ROWS, /* as PADDED, but gate and beta have a head stride of 1 */
    OPERANDS_PACKED_WITH_OUTPUT /* as PACKED, and o beside them: [q | k | v | o] */
} operand_style;

typedef enum state_style {
    STATES_VK, /* [V, K], dense */
    STATES_KV, /* [K, V], dense */
    STATES_PADDED, /* [V, K], gaps after each row, head and slot */
    STATES_SHIFTED /* [V, K], the base one element off; alignment says so */
} state_style;

typedef struct case_spec {
    const char *label; /* what a failure prints first */
    uint64_t seed;
    bool adversarial; /* judged by the bound for ill-conditioned inputs */
    gdn_operation operation;

    int32_t num_k_heads; /* 0: 1 */
    int32_t num_v_heads; /* 0: num_k_heads */
    int32_t head_k_dim; /* 0: 32 */
    int32_t head_v_dim; /* 0: head_k_dim */
    gdn_head_map head_map;

    const int64_t *lengths; /* prefill: of each sequence; NULL: num_seqs sequences of `length` */
    int64_t length; /* prefill */
    int64_t num_seqs; /* 0: 1; of a decode call: rows */
    int64_t extra_tokens; /* prefill: token rows past cu_seqlens[N] */
    bool equal_length; /* prefill: no cu_seqlens */
    int32_t tokens_per_row; /* decode; 0: 1 */
    const int32_t *num_tokens; /* decode, or NULL */
    const int64_t *token_slots; /* decode, or NULL */

    gdn_dtype dtype, gate_dtype, beta_dtype, state_dtype, final_dtype; /* 0: F32 */
    gdn_dtype cu_dtype, slots_dtype, checkpoint_dtype; /* 0: I64 */

    gdn_gate_form gate_form;
    gdn_beta_form beta_form;
    float beta_scale; /* 0: 1 */
    gdn_qk_norm qk_norm;
    float qk_norm_eps; /* 0: 1e-6; below 0: 0 */
    bool has_scale; /* else the default, 1/sqrt(head_k_dim) */
    float scale;
    gdn_numerics numerics;
    int32_t chunk_size, num_segments;

    gate_regime gates;
    double gate; /* log decay of GATES_CONSTANT */
    bool no_dt_bias;
    beta_regime betas;
    double beta;
    key_regime keys;
    double value_size; /* standard deviation of v; 0: 1 */
    double state_size; /* of the initial states; 0: 0.2 */

    operand_style operands;
    state_style states, finals;

    gdn_state_form state_form;
    bool no_initial_state, no_final_state; /* DENSE */
    bool in_place; /* DENSE: final_state is state. POOL: write_slots is read_slots */
    int64_t num_slots; /* POOL; 0: 2 * num_seqs + 1 */
    const int64_t *read_slots, *write_slots; /* POOL; NULL: slot 2n is read, 2n + 1 written (or 2n, in place) */
    bool no_write_slots; /* POOL */
    const uint8_t *has_initial_state; /* or NULL */

    gdn_checkpoint_form checkpoint_form;
    int32_t checkpoint_interval;
    const int64_t *checkpoint_positions, *checkpoint_offsets;
    int64_t spare_checkpoints; /* entries beyond those the call fills */

    size_t max_workspace;
    int64_t spare_seqs, spare_tokens; /* how far the plan's maxima are above the run */
    int64_t max_seqlen; /* 0: leave max_tokens to bound it */
} case_spec;

typedef enum case_operand {
    CASE_Q,
    CASE_K,
    CASE_V,
    CASE_O,
    CASE_GATE,
    CASE_BETA,
    CASE_A_LOG,
    CASE_DT_BIAS,
    CASE_CU_SEQLENS,
    CASE_STATE,
    CASE_FINAL_STATE,
    CASE_READ_SLOTS,
    CASE_WRITE_SLOTS,
    CASE_TOKEN_SLOTS,
    CASE_HAS_INITIAL_STATE,
    CASE_NUM_TOKENS,
    CASE_CHECKPOINTS,
    CASE_CHECKPOINT_POSITIONS,
    CASE_CHECKPOINT_OFFSETS,
    CASE_NUM_OPERANDS
} case_operand;

/* One allocation; several operands may be views of it. */
typedef struct case_buffer {
    size_t bytes; /* 0: not there */
    size_t shift; /* bytes its base is off a 256-byte boundary */
    unsigned char *before; /* as built: inputs filled, the rest 0xFF, which is NaN in every float type */
    unsigned char *after; /* what a run left */
    bool written; /* the call may write into it */
} case_buffer;

typedef struct case_view {
    int32_t buffer; /* -1: the argument is NULL */
    size_t offset; /* bytes */
} case_view;

typedef struct test_case {
    case_spec spec; /* with the zeros replaced */
    gdn_problem problem;
    int64_t total_tokens; /* prefill: rows of q; decode: rows * tokens_per_row */
    int64_t num_checkpoints;
    case_buffer buffer[CASE_NUM_OPERANDS];
    case_view view[CASE_NUM_OPERANDS];
} test_case;

void case_build(test_case *c, const case_spec *spec);
void case_free(test_case *c);

/* The argument structs over other bases: base[i] is where buffer i lies. Workspace and stream are left zero. */
gdn_prefill_args case_prefill_args(const test_case *c, unsigned char *const base[CASE_NUM_OPERANDS]);
gdn_decode_args case_decode_args(const test_case *c, unsigned char *const base[CASE_NUM_OPERANDS]);

/* Over the host copies, as they were before a run and as it left them. */
gdn_prefill_args case_prefill_args_before(const test_case *c);
gdn_decode_args case_decode_args_before(const test_case *c);

/* Where an operand lies in the host copies; NULL where the argument is NULL. */
unsigned char *case_before(const test_case *c, case_operand operand);
unsigned char *case_after(const test_case *c, case_operand operand);

/* Elements of q, k, v, o, gate and beta (d is 0 there) by packed token, head and place. */
int64_t case_index(const test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d);
void case_put(test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d, double x);
double case_get(const test_case *c, case_operand operand, int64_t token, int32_t head, int32_t d); /* before */
double case_output(const test_case *c, int64_t token, int32_t head, int32_t d); /* o, after */

/* A token's log decay, encoded as the case's gate form wants it (RAW: A_log 0, dt_bias 0 are then set). */
void case_put_log_decay(test_case *c, int64_t token, int32_t head, double log_decay);

/* Elements of a state operand (STATE, FINAL_STATE, CHECKPOINTS), v and k in the usual order. */
int64_t case_state_index(const test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k);
void case_put_state(test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k, double x);
double case_state_after(const test_case *c, case_operand operand, int64_t slot, int32_t head, int32_t v, int32_t k);

/* Where row n's new state is after a run: FINAL_STATE at n, or STATE at its write slot. False where nowhere. */
bool case_result_state(const test_case *c, int64_t n, case_operand *operand, int64_t *slot);

/* First packed token and length of sequence (or row) n. */
int64_t case_first_token(const test_case *c, int64_t n);
int64_t case_length(const test_case *c, int64_t n);

#endif
