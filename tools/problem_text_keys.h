/* The table of keys that the parser, the formatter and the help text of problem_text walk. */
#ifndef GDN_TOOLS_PROBLEM_TEXT_KEYS_H
#define GDN_TOOLS_PROBLEM_TEXT_KEYS_H

#include "problem_text.h"

#include <stddef.h>

typedef enum key_kind {
    KIND_WORD, /* one of `words` */
    KIND_INTEGER, /* min..max */
    KIND_NUMBER, /* double in min..max; word "auto" is NAN where the default is NAN */
    KIND_PAIR, /* N or N/M: two integers */
    KIND_BYTES, /* an integer with an optional K, M or G */
    KIND_SEQS,
    KIND_STATE, /* FORM or FORM:DTYPE */
    KIND_CHECKPOINTS
} key_kind;

typedef struct text_key {
    const char *name;
    key_kind kind;
    size_t offset; /* of the first field in problem_text */
    const char *words; /* space-separated, KIND_WORD */
    int64_t min, max;
    double fallback; /* default */
    const char *help;
} text_key;

#define TEXT_NUM_KEYS 36
extern const text_key text_keys_table[TEXT_NUM_KEYS];

extern const char text_state_forms[]; /* word lists of KIND_STATE */
extern const char text_float_words[];

/* What a line of no keys says. */
void problem_text_defaults(problem_text *text);

#endif
