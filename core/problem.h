/* The validated problem: what a plan keeps of the caller's gdn_problem. */
#ifndef GDN_CORE_PROBLEM_H
#define GDN_CORE_PROBLEM_H

#include "error.h"

#include <stdbool.h>

#define GDN_MAX_HEADS 65536
#define GDN_MAX_HEAD_DIM 1024

/* Checks every field of the caller's problem against every other (problem_check.c), then copies it with the
 * defaults that depend on other fields written out: max_seqlen, and the row strides of a decode problem; and with
 * qk_norm_eps large enough that a vector of zeros stays zeros. */
gdn_status gdn_problem_resolve(gdn_problem *resolved, const gdn_problem *problem);

/* Every rule a problem must meet; the message names the field, its value and what is allowed. */
gdn_status gdn_problem_check(const gdn_problem *problem);

#endif
