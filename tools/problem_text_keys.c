#include "problem_text_keys.h"

#include <math.h>

#define FIELD(name) offsetof(problem_text, name)
#define MAX_HEADS 4096
#define MAX_DIM 1024

const text_key text_keys_table[TEXT_NUM_KEYS] = {
    {"op", KIND_WORD, FIELD(op), "prefill decode", 0, 0, 0, "the operation"},
    {"heads", KIND_PAIR, FIELD(num_k_heads), NULL, 1, MAX_HEADS, 4, "q and k heads / v heads; one number: both"},
    {"dim", KIND_PAIR, FIELD(head_k_dim), NULL, 1, MAX_DIM, 128, "width of q and k / of v; one number: both"},
    {"tokens", KIND_INTEGER, FIELD(tokens), NULL, 0, TEXT_MAX_TOKENS, 0,
     "prefill: tokens in all; those past the end of seqs belong to none"},
    {"seqs", KIND_SEQS, FIELD(num_groups), NULL, 0, 0, 0,
     "prefill: lengths of the sequences; default: one of all tokens"},
    {"rows", KIND_INTEGER, FIELD(rows), NULL, 0, TEXT_MAX_SEQS, 1, "decode: rows"},
    {"tokens_per_row", KIND_INTEGER, FIELD(tokens_per_row), NULL, 1, GDN_MAX_DECODE_TOKENS, 1, "decode: tokens a row"},
    {"num_tokens", KIND_WORD, FIELD(num_tokens), "all random", 0, 0, 0, "decode: how many tokens each row has"},
    {"dtype", KIND_WORD, FIELD(dtype), "f32 bf16 f16", 0, 0, 0, "of q, k, v and o"},
    {"gates", KIND_WORD, FIELD(gates), "log_decay decay raw", 0, 0, 0, "form of the gate"},
    {"gate_dtype", KIND_WORD, FIELD(gate_dtype), "f32 same", 0, 0, 0, "of gate and beta; same: that of q"},
    {"beta", KIND_WORD, FIELD(beta), "value logit", 0, 0, 0, "form of beta"},
    {"beta_scale", KIND_INTEGER, FIELD(beta_scale), NULL, 1, 2, 1, "factor on the sigmoid, with beta=logit"},
    {"norm", KIND_WORD, FIELD(norm), "none rsqrt eps_outside", 0, 0, 0, "l2 normalisation of q and k"},
    {"norm_eps", KIND_NUMBER, FIELD(norm_eps), NULL, 0, 1, 1e-6, "its eps"},
    {"scale", KIND_NUMBER, FIELD(scale), NULL, -1000, 1000, NAN, "factor on o; auto: 1/sqrt(width of k)"},
    {"head_map", KIND_WORD, FIELD(head_map), "grouped tiled", 0, 0, 0, "which k head a v head uses"},
    {"numerics", KIND_WORD, FIELD(numerics), "default fp32 tf32 bf16", 0, 0, 0, "how products may be rounded"},
    {"chunk", KIND_INTEGER, FIELD(chunk), NULL, 0, INT32_MAX, 0, "chunk size hint; 0: the implementation's choice"},
    {"segments", KIND_INTEGER, FIELD(segments), NULL, 0, INT32_MAX, 0,
     "segments of a long sequence; 0: the implementation's rule"},
    {"state", KIND_STATE, FIELD(state_form), NULL, 0, 0, 0, "where states are"},
    {"final", KIND_WORD, FIELD(final_dtype), "same f32 bf16 f16 none", 0, 0, 0, "dtype of a dense final state"},
    {"layout", KIND_WORD, FIELD(layout), "vk kv", 0, 0, 0, "of states; the last letter is contiguous"},
    {"initial", KIND_WORD, FIELD(initial), "all zero mixed tiny", 0, 0, 0,
     "sequences that start from a state; tiny: subnormal states and v"},
    {"update", KIND_WORD, FIELD(update), "inplace separate none", 0, 0, 0, "pool: where states are written"},
    {"skip", KIND_WORD, FIELD(skip), "none some", 0, 0, 0, "pool: some: every third sequence has a negative slot"},
    {"slots", KIND_WORD, FIELD(slots), "i64 i32", 0, 0, 0, "pool: type of the slot numbers"},
    {"token_slots", KIND_WORD, FIELD(token_slots), "none all", 0, 0, 0,
     "decode, pool: store the state after each token"},
    {"cu", KIND_WORD, FIELD(cu), "i64 i32 none", 0, 0, 0, "type of cu_seqlens; none: an equal-length batch"},
    {"checkpoints", KIND_CHECKPOINTS, FIELD(checkpoint_form), NULL, 0, 0, 0, "prefill; at: at random places"},
    {"strides", KIND_WORD, FIELD(strides), "dense packed padded", 0, 0, 0,
     "packed: q, k, v are slices of one row a token"},
    {"workspace", KIND_BYTES, FIELD(workspace), NULL, 0, INT64_C(1) << 50, 0, "cap in bytes; 0: none"},
    {"check", KIND_INTEGER, FIELD(check), NULL, 0, 1, 0, "CUDA: also check slot conflicts and gate ranges"},
    {"decay", KIND_WORD, FIELD(decay), "standard weak strong none reset", 0, 0, 0, "regime of the random gates"},
    {"keys", KIND_WORD, FIELD(keys), "random repeated", 0, 0, 0, "repeated: the worst-conditioned inverse"},
    {"seed", KIND_INTEGER, FIELD(seed), NULL, 0, INT64_MAX, 1, "seed of the random inputs"},
};

const char text_state_forms[] = "dense pool";
const char text_float_words[] = "f32 bf16 f16";
