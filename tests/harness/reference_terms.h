/* How much the terms of a result cancel, which is what rounding a chunk's operands to 16 bits is multiplied by
 * (docs/numerics.md).
 *
 * Inside a chunk o_t is the sum over its tokens i up to t of P_ti V'_i, and the state gets k_i V'_i of each, decayed. Here
 * the squares of those terms are added up, chunks of 64 tokens being counted from the row's start. */
#ifndef GDN_TESTS_REFERENCE_TERMS_H
#define GDN_TESTS_REFERENCE_TERMS_H

#include <stdint.h>

enum { TERMS_CHUNK = 64 };

/* The tokens of a chunk so far. */
typedef struct chunk_terms {
    int32_t width; /* of k */
    int32_t count;
    double *k; /* [TERMS_CHUNK, width] */
    double *weight; /* [TERMS_CHUNK]: |V'_i|^2, decayed to now */
} chunk_terms;

void chunk_terms_open(chunk_terms *terms, int32_t width);
void chunk_terms_close(chunk_terms *terms);

/* Token t of the row: its decay, key and written value V'. */
void chunk_terms_add(chunk_terms *terms, int64_t t, double alpha, const double *k, const double *written, int32_t V);

/* Sums of squares: of o / scale for the last token's q, and of the state. */
double chunk_terms_of_output(const chunk_terms *terms, const double *q);
double chunk_terms_of_state(const chunk_terms *terms);

#endif
