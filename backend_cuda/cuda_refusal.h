/* Why an implementation does not take a problem. */
#ifndef GDN_CUDA_REFUSAL_H
#define GDN_CUDA_REFUSAL_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the reason; false. */
bool gdn_cuda_refuse(gdn_reason *reason, const char *format, ...) GDN_PRINTF(2, 3);

/* Whether tensor-core products of q's own 16-bit type, chunk after chunk, are what the problem asks for. */
bool gdn_cuda_takes_16_bit_products(const gdn_problem *problem, gdn_reason *reason);

#ifdef __cplusplus
}
#endif

#endif
