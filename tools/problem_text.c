#include "problem_text_keys.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_KEYS TEXT_NUM_KEYS
static const text_key *const keys = text_keys_table;

static int64_t *integer_field(problem_text *text, const text_key *key)
{
    return (int64_t *)(void *)((char *)text + key->offset);
}

static double *number_field(problem_text *text, const text_key *key)
{
    return (double *)(void *)((char *)text + key->offset);
}

/* What was typed may hold anything; a message is one printable line. */
static void make_printable(char *message)
{
    for (char *c = message; *c != 0; c++) {
        if (!isprint((unsigned char)*c)) {
            *c = '?';
        }
    }
}

static bool fail(char *error, size_t error_size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool fail(char *error, size_t error_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, error_size, format, args);
    va_end(args);
    make_printable(error);
    return false;
}

static bool fail_unknown_key(char *error, size_t error_size, const char *name, size_t length)
{
    size_t used =
        (size_t)snprintf(error, error_size, "'%.*s' is not a key; allowed:", (int)(length > 40 ? 40 : length), name);
    for (size_t i = 0; i < NUM_KEYS && used < error_size; i++) {
        used += (size_t)snprintf(error + used, error_size - used, " %s", keys[i].name);
    }
    make_printable(error);
    return false;
}

/* Index of `value` (length bytes) in a space-separated list, or -1. */
static int64_t find_word(const char *words, const char *value, size_t length)
{
    int64_t index = 0;
    for (const char *word = words; *word != 0; index++) {
        const size_t word_length = strcspn(word, " ");
        if (word_length == length && memcmp(word, value, length) == 0) {
            return index;
        }
        word += word_length + (word[word_length] == ' ');
    }
    return -1;
}

/* A decimal integer at *cursor, which is moved past it. */
static bool scan_integer(const char **cursor, int64_t min, int64_t max, int64_t *value)
{
    if (!isdigit((unsigned char)**cursor) && !(**cursor == '-' && isdigit((unsigned char)(*cursor)[1]))) {
        return false;
    }
    char *end = NULL;
    errno = 0;
    const long long parsed = strtoll(*cursor, &end, 10);
    *cursor = end;
    *value = parsed;
    return errno == 0 && parsed >= min && parsed <= max;
}

static bool parse_seqs(problem_text *text, const char *value)
{
    const char *cursor = value;
    text->num_groups = 0;
    do {
        text_group group = {1, 0};
        if (text->num_groups == TEXT_MAX_GROUPS || !scan_integer(&cursor, 0, TEXT_MAX_TOKENS, &group.length)) {
            return false;
        }
        if (*cursor == 'x') {
            cursor++;
            group.count = group.length;
            if (group.count < 1 || group.count > TEXT_MAX_SEQS ||
                !scan_integer(&cursor, 0, TEXT_MAX_TOKENS, &group.length)) {
                return false;
            }
        }
        text->groups[text->num_groups++] = group;
    } while (*cursor++ == ',');
    return cursor[-1] == 0;
}

static bool parse_state(problem_text *text, const char *value)
{
    const size_t form_length = strcspn(value, ":");
    text->state_form = find_word(text_state_forms, value, form_length);
    text->state_dtype = 0;
    if (value[form_length] == ':') {
        text->state_dtype = find_word(text_float_words, value + form_length + 1, strlen(value + form_length + 1));
    }
    return text->state_form >= 0 && text->state_dtype >= 0;
}

static bool parse_checkpoints(problem_text *text, const char *value)
{
    text->checkpoint_interval = 0;
    if (strcmp(value, "none") == 0) {
        text->checkpoint_form = GDN_CHECKPOINT_NONE;
    } else if (strcmp(value, "at") == 0) {
        text->checkpoint_form = GDN_CHECKPOINT_AT;
    } else if (strncmp(value, "every:", 6) == 0) {
        const char *cursor = value + 6;
        text->checkpoint_form = GDN_CHECKPOINT_EVERY;
        return scan_integer(&cursor, 1, INT32_MAX, &text->checkpoint_interval) && *cursor == 0;
    } else {
        return false;
    }
    return true;
}

static bool parse_bytes(const char *value, int64_t max, int64_t *bytes)
{
    const char *cursor = value;
    if (!scan_integer(&cursor, 0, max, bytes)) {
        return false;
    }
    const char *const suffix = strchr("KMG", *cursor);
    if (*cursor != 0 && suffix != NULL) {
        const int shift = *cursor == 'K' ? 10 : *cursor == 'M' ? 20 : 30;
        if (*bytes > max >> shift) {
            return false;
        }
        *bytes <<= shift;
        cursor++;
    }
    return *cursor == 0;
}

static bool parse_value(problem_text *text, const text_key *key, const char *value, char *error, size_t error_size)
{
    int64_t *const field = integer_field(text, key);
    const char *cursor = value;
    switch (key->kind) {
    case KIND_WORD:
        *field = find_word(key->words, value, strlen(value));
        return *field >= 0 || fail(error, error_size, "%s: '%.40s' is not one of: %s", key->name, value, key->words);
    case KIND_INTEGER:
        return (scan_integer(&cursor, key->min, key->max, field) && *cursor == 0) ||
               fail(error, error_size, "%s: '%.40s' is not an integer in %lld..%lld", key->name, value,
                    (long long)key->min, (long long)key->max);
    case KIND_NUMBER: {
        char *end = NULL;
        double *const number = number_field(text, key);
        if (isnan(key->fallback) && strcmp(value, "auto") == 0) {
            *number = NAN;
            return true;
        }
        *number = strtod(value, &end);
        return (end != value && *end == 0 && *number >= (double)key->min && *number <= (double)key->max) ||
               fail(error, error_size, "%s: '%.40s' is not a number in %lld..%lld%s", key->name, value,
                    (long long)key->min, (long long)key->max, isnan(key->fallback) ? ", nor auto" : "");
    }
    case KIND_PAIR: {
        bool good = scan_integer(&cursor, key->min, key->max, &field[0]);
        field[1] = field[0];
        if (good && *cursor == '/') {
            cursor++;
            good = scan_integer(&cursor, key->min, key->max, &field[1]);
        }
        return (good && *cursor == 0) || fail(error, error_size, "%s: '%.40s' is not N or N/M, each in %lld..%lld",
                                              key->name, value, (long long)key->min, (long long)key->max);
    }
    case KIND_BYTES:
        return parse_bytes(value, key->max, field) ||
               fail(error, error_size, "%s: '%.40s' is not a count of bytes, such as 65536, 64K, 64M or 1G", key->name,
                    value);
    case KIND_SEQS:
        return parse_seqs(text, value) ||
               fail(
                   error, error_size,
                   "%s: '%.40s' is not a list such as 8x1024,70,0,5: at most %d items, lengths 0..%lld, counts 1..%lld",
                   key->name, value, TEXT_MAX_GROUPS, (long long)TEXT_MAX_TOKENS, (long long)TEXT_MAX_SEQS);
    case KIND_STATE:
        return parse_state(text, value) ||
               fail(error, error_size, "%s: '%.40s' is not dense or pool, alone or with :f32, :bf16 or :f16", key->name,
                    value);
    case KIND_CHECKPOINTS:
        return parse_checkpoints(text, value) ||
               fail(error, error_size, "%s: '%.40s' is not none, at, or every:N with N >= 1", key->name, value);
    }
    return false;
}

void problem_text_defaults(problem_text *text)
{
    *text = (problem_text){0};
    for (size_t i = 0; i < NUM_KEYS; i++) {
        if (keys[i].kind == KIND_NUMBER) {
            *number_field(text, &keys[i]) = keys[i].fallback;
        } else {
            *integer_field(text, &keys[i]) = (int64_t)keys[i].fallback;
        }
        if (keys[i].kind == KIND_PAIR) {
            integer_field(text, &keys[i])[1] = (int64_t)keys[i].fallback;
        }
    }
}

/* Combinations that no problem means. `given[i]` says that key i was typed. */
static bool check_combination(const problem_text *text, const bool *given, char *error, size_t error_size)
{
    static const char *const prefill_only = " tokens seqs cu checkpoints segments chunk ";
    static const char *const decode_only = " rows tokens_per_row num_tokens token_slots ";
    static const char *const pool_only = " update skip slots token_slots ";
    const bool decode = text->op == GDN_OPERATION_DECODE;
    for (size_t i = 0; i < NUM_KEYS; i++) {
        char padded[40];
        snprintf(padded, sizeof(padded), " %s ", keys[i].name);
        if (given[i] && strstr(decode ? prefill_only : decode_only, padded) != NULL) {
            return fail(error, error_size, "%s: only for op=%s", keys[i].name, decode ? "prefill" : "decode");
        }
        if (given[i] && text->state_form != GDN_STATE_POOL && strstr(pool_only, padded) != NULL) {
            return fail(error, error_size, "%s: only for state=pool", keys[i].name);
        }
    }
    if (text->state_form == GDN_STATE_POOL && text->final_dtype != 0) {
        return fail(error, error_size, "final: only for state=dense; a pool has one type");
    }
    if (text->num_v_heads % text->num_k_heads != 0) {
        return fail(error, error_size, "heads: %lld v heads are not a multiple of %lld k heads",
                    (long long)text->num_v_heads, (long long)text->num_k_heads);
    }
    if (text->beta_scale != 1 && text->beta != GDN_BETA_LOGIT) {
        return fail(error, error_size, "beta_scale: %lld, must be 1 unless beta=logit", (long long)text->beta_scale);
    }
    if (decode) {
        return true;
    }
    int64_t sum = 0, seqs = 0;
    for (int64_t i = 0; i < text->num_groups; i++) {
        sum += text->groups[i].count * text->groups[i].length;
        seqs += text->groups[i].count;
        if (sum > TEXT_MAX_TOKENS || seqs > TEXT_MAX_SEQS) {
            return fail(error, error_size, "seqs: more than %lld tokens or %lld sequences", (long long)TEXT_MAX_TOKENS,
                        (long long)TEXT_MAX_SEQS);
        }
        if (text->cu == 2 && text->groups[i].length != text->groups[0].length) {
            return fail(error, error_size, "cu: none needs sequences of one length");
        }
    }
    if (text->num_groups > 0 && text->tokens != 0 && text->tokens < sum) {
        return fail(error, error_size, "tokens: %lld, fewer than the %lld of seqs", (long long)text->tokens,
                    (long long)sum);
    }
    if (text->cu == 2 && text->num_groups > 0 && text->tokens > sum) {
        return fail(error, error_size, "tokens: %lld, must equal the %lld of seqs with cu=none",
                    (long long)text->tokens, (long long)sum);
    }
    if (text->num_groups == 0 && text->tokens == 0) {
        return fail(error, error_size, "tokens: missing; say tokens=N or seqs=LIST");
    }
    return true;
}

bool problem_text_parse(problem_text *text, const char *line, char *error, size_t error_size)
{
    bool given[NUM_KEYS] = {false};
    problem_text_defaults(text);
    for (const char *cursor = line;;) {
        cursor += strspn(cursor, " \t\n");
        if (*cursor == 0) {
            break;
        }
        const size_t length = strcspn(cursor, " \t\n");
        const char *const equals = memchr(cursor, '=', length);
        if (equals == NULL) {
            return fail(error, error_size, "'%.*s' is not key=value", (int)(length > 40 ? 40 : length), cursor);
        }
        const size_t name_length = (size_t)(equals - cursor);
        size_t which = 0;
        while (which < NUM_KEYS &&
               (strlen(keys[which].name) != name_length || memcmp(keys[which].name, cursor, name_length) != 0)) {
            which++;
        }
        if (which == NUM_KEYS) {
            return fail_unknown_key(error, error_size, cursor, name_length);
        }
        if (given[which]) {
            return fail(error, error_size, "%s: given twice", keys[which].name);
        }
        given[which] = true;
        char value[4096];
        const size_t value_length = length - name_length - 1;
        if (value_length >= sizeof(value)) {
            return fail(error, error_size, "%s: its value has %zu characters, at most %zu are taken", keys[which].name,
                        value_length, sizeof(value) - 1);
        }
        memcpy(value, equals + 1, value_length);
        value[value_length] = 0;
        if (!parse_value(text, &keys[which], value, error, error_size)) {
            return false;
        }
        cursor += length;
    }
    return check_combination(text, given, error, error_size);
}
