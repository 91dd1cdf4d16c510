/* What the generic prefill path shows to the bench alone. */
#ifndef GDN_CORE_GENERIC_PREFILL_INTERNAL_H
#define GDN_CORE_GENERIC_PREFILL_INTERNAL_H

#include "backend.h"

/* The generic path with W formed through a second inverse, W = Gamma M^-1 B K with M = I + StrictLower(B K K^T), beside
 * U = N^-1 B V: what the one-inverse identity saves, measured. In no backend's table, so no plan chooses it. */
extern const gdn_implementation gdn_generic_prefill_two_inverses;

#endif
