/* Seeded random inputs of a problem typed as text: the same text gives the same numbers on every machine and for any
 * thread count. */
#ifndef GDN_TOOLS_RANDOM_INPUTS_H
#define GDN_TOOLS_RANDOM_INPUTS_H

#include "problem_text.h"
#include "workload.h"

/* False: out of memory. */
bool random_inputs(workload *load, const problem_text *text);

/* The index-th 64-bit number of stream (seed, stream). */
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

#endif
