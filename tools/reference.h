/* The tool's judge: the token recurrence in float64, one token after another, straight from the definition
 *
 *     S <- alpha S;  u = beta (v - k S);  S <- S + k^T u;  o = scale q S
 *
 * It shares no code with the library. One head of one sequence at a time, so that a large problem can be judged on
 * some of its heads. */
#ifndef GDN_TOOLS_REFERENCE_H
#define GDN_TOOLS_REFERENCE_H

#include "workload.h"

/* Called after each token (and once, with consumed = 0, for an empty sequence) with the state [V, K]. */
typedef void (*reference_state_fn)(void *user, int64_t consumed, const double *S);

/* Runs the first max_tokens tokens of a sequence for a v head. o [tokens, V] gets the outputs; S [V, K] the state.
 * `visit` may be NULL. False: out of memory. */
bool reference_run(const workload *load, int64_t seq, int32_t head, int64_t max_tokens, double *o, double *S,
                   reference_state_fn visit, void *user);

/* Floating-point operations of one token of one head, to budget how much is judged. */
double reference_cost(const workload *load);

#endif
