#include "reference_terms.h"

#include <stdlib.h>

void chunk_terms_open(chunk_terms *terms, int32_t width)
{
    *terms = (chunk_terms){.width = width};
    terms->k = calloc((size_t)TERMS_CHUNK * (size_t)width, sizeof(double));
    terms->weight = calloc(TERMS_CHUNK, sizeof(double));
    if (terms->k == NULL || terms->weight == NULL) {
        abort(); /* a test machine without memory has no verdict to give */
    }
}

void chunk_terms_close(chunk_terms *terms)
{
    free(terms->k);
    free(terms->weight);
    *terms = (chunk_terms){0};
}

static double product(const double *x, const double *y, int32_t count)
{
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

void chunk_terms_add(chunk_terms *terms, int64_t t, double alpha, const double *k, const double *written, int32_t V)
{
    if (t % TERMS_CHUNK == 0) {
        terms->count = 0;
    }
    for (int32_t i = 0; i < terms->count; i++) {
        terms->weight[i] *= alpha * alpha;
    }
    double *const row = terms->k + (int64_t)terms->count * terms->width;
    for (int32_t d = 0; d < terms->width; d++) {
        row[d] = k[d];
    }
    terms->weight[terms->count++] = product(written, written, V);
}

double chunk_terms_of_output(const chunk_terms *terms, const double *q)
{
    double sum = 0;
    for (int32_t i = 0; i < terms->count; i++) {
        const double qk = product(q, terms->k + (int64_t)i * terms->width, terms->width);
        sum += terms->weight[i] * qk * qk;
    }
    return sum;
}

double chunk_terms_of_state(const chunk_terms *terms)
{
    double sum = 0;
    for (int32_t i = 0; i < terms->count; i++) {
        const double *const k = terms->k + (int64_t)i * terms->width;
        sum += terms->weight[i] * product(k, k, terms->width);
    }
    return sum;
}
