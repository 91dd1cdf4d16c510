#include "random_problem.h"

#include "random_inputs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct draw {
    uint64_t seed, index, next;
    char *line;
    size_t size, used;
} draw;

/* 0..n-1 */
static uint64_t pick(draw *d, uint64_t n)
{
    return random_bits(d->seed, d->index, d->next++) % n;
}

static void put(draw *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(draw *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(d->line + d->used, d->size - d->used, format, args);
    va_end(args);
    d->used += length > 0 && (size_t)length < d->size - d->used ? (size_t)length : 0;
}

/* Adds key=word of a list, or nothing in half of the cases so that defaults stay frequent. */
static void maybe_word(draw *d, const char *key, const char *const *words, uint64_t count)
{
    if (pick(d, 2) == 0) {
        put(d, " %s=%s", key, words[pick(d, count)]);
    }
}

static void put_sequences(draw *d, bool equal)
{
    static const int lengths[] = {0, 1, 2, 5, 15, 16, 17, 31, 33, 63, 64, 65, 70, 127, 130, 200};
    const uint64_t groups = equal ? 1 : 1 + pick(d, 6);
    int total = 0;
    put(d, " seqs=");
    for (uint64_t i = 0; i < groups; i++) {
        const int length = lengths[pick(d, sizeof(lengths) / sizeof(lengths[0]))];
        const uint64_t count = equal ? 1 + pick(d, 5) : pick(d, 4) == 0 ? 1 + pick(d, 4) : 1;
        put(d, "%s", i > 0 ? "," : "");
        if (count > 1) {
            put(d, "%" PRIu64 "x", count);
        }
        put(d, "%d", length);
        total += length * (int)count;
    }
    if (!equal && pick(d, 4) == 0) {
        put(d, " tokens=%d", total + 1 + (int)pick(d, 9));
    }
}

void random_problem(uint64_t seed, uint64_t index, char *line, size_t size)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    static const char *const gates[] = {"log_decay", "decay", "raw"};
    static const char *const norms[] = {"none", "rsqrt", "eps_outside"};
    static const char *const decays[] = {"standard", "weak", "strong", "none", "reset"};
    static const char *const strides[] = {"dense", "packed", "padded"};
    static const char *const initials[] = {"all", "zero", "mixed"};
    static const char *const updates[] = {"inplace", "separate", "none"};
    static const char *const finals[] = {"same", "f32", "bf16", "f16", "none"};
    static const char *const indices[] = {"i64", "i32"};
    static const char *const maps[] = {"grouped", "tiled"};
    static const char *const layouts[] = {"vk", "kv"};
    static const char *const scales[] = {"auto", "0", "1", "-0.25"};
    static const char *const chunks[] = {"1", "16", "33", "64", "128"};
    static const char *const checkpoints[] = {"every:1", "every:16", "every:50", "at"};
    static const int dims[] = {1, 3, 8, 16, 20, 32, 48, 64, 96, 100, 128, 160};
    draw d = {.seed = seed, .index = index + 1, .line = line, .size = size};
    const bool decode = pick(&d, 3) == 0, pool = pick(&d, 2) == 0;
    const uint64_t heads = 1 + pick(&d, 4), ratio = 1 + pick(&d, 3);
    const int dim_k = dims[pick(&d, 12)];
    /* Not both 1: a state of one number can cancel to nothing, and then no relative bound holds. */
    const int dim_v = dim_k > 1 && pick(&d, 2) == 0 ? dim_k : dims[pick(&d, 11) + (dim_k == 1)];
    put(&d, "op=%s heads=%" PRIu64 "/%" PRIu64 " dim=%d/%d", decode ? "decode" : "prefill", heads, heads * ratio, dim_k,
        dim_v);
    if (decode) {
        const uint64_t rows = pick(&d, 9), tokens_per_row = 1 + pick(&d, 16);
        put(&d, " rows=%" PRIu64 " tokens_per_row=%" PRIu64, rows, tokens_per_row);
        if (pick(&d, 3) == 0) {
            put(&d, " num_tokens=random");
        }
    } else {
        const bool equal = pick(&d, 4) == 0;
        put_sequences(&d, equal);
        put(&d, " cu=%s", equal ? "none" : indices[pick(&d, 2)]);
        maybe_word(&d, "chunk", chunks, 5);
        if (pick(&d, 4) == 0) {
            put(&d, " checkpoints=%s", checkpoints[pick(&d, 4)]);
        }
    }
    maybe_word(&d, "dtype", dtypes, 3);
    maybe_word(&d, "gates", gates, 3);
    if (pick(&d, 4) == 0) {
        put(&d, " gate_dtype=same");
    }
    if (pick(&d, 2) == 0) {
        put(&d, " beta=logit beta_scale=%" PRIu64, 1 + pick(&d, 2));
    }
    /* Unnormalised keys are fed unit vectors, so every norm is well-posed. */
    maybe_word(&d, "norm", norms, 3);
    maybe_word(&d, "scale", scales, 4);
    maybe_word(&d, "head_map", maps, 2);
    put(&d, " state=%s:%s", pool ? "pool" : "dense", dtypes[pick(&d, 2) == 0 ? 0 : pick(&d, 3)]);
    maybe_word(&d, "layout", layouts, 2);
    maybe_word(&d, "initial", initials, 3);
    if (pool) {
        maybe_word(&d, "update", updates, 3);
        maybe_word(&d, "slots", indices, 2);
        if (pick(&d, 3) == 0) {
            put(&d, " skip=some");
        }
        if (decode && pick(&d, 3) == 0) {
            put(&d, " token_slots=all");
        }
    } else {
        maybe_word(&d, "final", finals, 5);
    }
    maybe_word(&d, "strides", strides, 3);
    maybe_word(&d, "decay", decays, 5);
    if (pick(&d, 8) == 0) {
        put(&d, " keys=repeated");
    }
    put(&d, " seed=%" PRIu64, random_bits(seed, index + 1, UINT64_C(1) << 40) >> 33);
}
