/* Random problems for `gdn verify --count`: every option of the problem syntax, small odd shapes. */
#ifndef GDN_TOOLS_RANDOM_PROBLEM_H
#define GDN_TOOLS_RANDOM_PROBLEM_H

#include "problem_text.h"

#include <stdint.h>

/* The index-th problem of a seed, as a line that problem_text_parse takes. */
void random_problem(uint64_t seed, uint64_t index, char *line, size_t size);

#endif
