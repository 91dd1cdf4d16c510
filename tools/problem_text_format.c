#include "problem_text_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The index-th word of a list, copied. */
static void copy_word(const char *words, int64_t index, char *word, size_t size)
{
    for (; index > 0; index--) {
        words += strcspn(words, " ") + 1;
    }
    snprintf(word, size, "%.*s", (int)strcspn(words, " "), words);
}

/* The shortest decimal that reads back as the same double; NAN is auto. */
static void format_number(double number, char *value, size_t size)
{
    if (isnan(number)) {
        snprintf(value, size, "auto");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(value, size, "%.*g", digits, number);
        if (strtod(value, NULL) == number) {
            return;
        }
    }
}

static bool is_default(const problem_text *text, const text_key *key)
{
    const char *const field = (const char *)text + key->offset;
    if (key->kind == KIND_NUMBER) {
        double number = 0;
        memcpy(&number, field, sizeof(number));
        return number == key->fallback || (isnan(number) && isnan(key->fallback));
    }
    if (key->kind == KIND_PAIR) {
        return false; /* the shape is always said */
    }
    if (key->kind == KIND_STATE) {
        return text->state_form == 0 && text->state_dtype == 0;
    }
    int64_t integer = 0;
    memcpy(&integer, field, sizeof(integer));
    return integer == (int64_t)key->fallback;
}

static bool format_seqs(const problem_text *text, char *value, size_t size)
{
    size_t used = 0;
    for (int64_t i = 0; i < text->num_groups && used < size; i++) {
        const text_group group = text->groups[i];
        used += (size_t)snprintf(value + used, size - used, "%s", i > 0 ? "," : "");
        if (used < size && group.count > 1) {
            used += (size_t)snprintf(value + used, size - used, "%lldx", (long long)group.count);
        }
        if (used < size) {
            used += (size_t)snprintf(value + used, size - used, "%lld", (long long)group.length);
        }
    }
    return used < size;
}

static bool format_value(const problem_text *text, const text_key *key, char *value, size_t size)
{
    int64_t field[2] = {0, 0};
    memcpy(field, (const char *)text + key->offset, key->kind == KIND_PAIR ? sizeof(field) : sizeof(field[0]));
    char dtype[8];
    switch (key->kind) {
    case KIND_WORD:
        copy_word(key->words, field[0], value, size);
        return true;
    case KIND_INTEGER:
    case KIND_BYTES:
        snprintf(value, size, "%lld", (long long)field[0]);
        return true;
    case KIND_NUMBER: {
        double number = 0;
        memcpy(&number, (const char *)text + key->offset, sizeof(number));
        format_number(number, value, size);
        return true;
    }
    case KIND_PAIR:
        if (field[0] == field[1]) {
            snprintf(value, size, "%lld", (long long)field[0]);
        } else {
            snprintf(value, size, "%lld/%lld", (long long)field[0], (long long)field[1]);
        }
        return true;
    case KIND_SEQS:
        return format_seqs(text, value, size);
    case KIND_STATE:
        copy_word(text_float_words, text->state_dtype, dtype, sizeof(dtype));
        snprintf(value, size, "%s:%s", text->state_form == GDN_STATE_POOL ? "pool" : "dense", dtype);
        return true;
    case KIND_CHECKPOINTS:
        if (text->checkpoint_form == GDN_CHECKPOINT_NONE) {
            snprintf(value, size, "none");
        } else if (text->checkpoint_form == GDN_CHECKPOINT_AT) {
            snprintf(value, size, "at");
        } else {
            snprintf(value, size, "every:%lld", (long long)text->checkpoint_interval);
        }
        return true;
    }
    return false;
}

bool problem_text_format(const problem_text *text, char *line, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < TEXT_NUM_KEYS; i++) {
        char value[4096];
        if (is_default(text, &text_keys_table[i])) {
            continue;
        }
        if (!format_value(text, &text_keys_table[i], value, sizeof(value))) {
            return false;
        }
        used +=
            (size_t)snprintf(line + used, size - used, "%s%s=%s", used > 0 ? " " : "", text_keys_table[i].name, value);
        if (used >= size) {
            return false;
        }
    }
    return true;
}

/* The values of a key, as its column of the help text says them. */
static void format_allowed(const text_key *key, char *allowed, size_t size)
{
    switch (key->kind) {
    case KIND_WORD:
        snprintf(allowed, size, "%s", key->words);
        for (char *c = allowed; *c != 0; c++) {
            *c = (char)(*c == ' ' ? '|' : *c);
        }
        return;
    case KIND_INTEGER:
        if (key->max < INT64_C(1) << 40) {
            snprintf(allowed, size, "%lld..%lld", (long long)key->min, (long long)key->max);
        } else {
            snprintf(allowed, size, "N");
        }
        return;
    case KIND_NUMBER:
        snprintf(allowed, size, "%lld..%lld%s", (long long)key->min, (long long)key->max,
                 isnan(key->fallback) ? "|auto" : "");
        return;
    case KIND_PAIR:
        snprintf(allowed, size, "N|N/M");
        return;
    case KIND_BYTES:
        snprintf(allowed, size, "N|NK|NM|NG");
        return;
    case KIND_SEQS:
        snprintf(allowed, size, "LENGTH|COUNTxLENGTH,...");
        return;
    case KIND_STATE:
        snprintf(allowed, size, "dense|pool[:f32|bf16|f16]");
        return;
    case KIND_CHECKPOINTS:
        snprintf(allowed, size, "none|every:N|at");
        return;
    }
}

void problem_text_keys(char *help, size_t size)
{
    problem_text defaults;
    problem_text_defaults(&defaults);
    size_t used = 0;
    for (size_t i = 0; i < TEXT_NUM_KEYS && used < size; i++) {
        const text_key *const key = &text_keys_table[i];
        char allowed[64] = "", fallback[64] = "";
        format_allowed(key, allowed, sizeof(allowed));
        if (format_value(&defaults, key, fallback, sizeof(fallback)) && fallback[0] != 0) {
            used += (size_t)snprintf(help + used, size - used, "%s  %-15s %-31s %s (%s)", i > 0 ? "\n" : "", key->name,
                                     allowed, key->help, fallback);
        } else {
            used += (size_t)snprintf(help + used, size - used, "%s  %-15s %-31s %s", i > 0 ? "\n" : "", key->name,
                                     allowed, key->help);
        }
    }
}
