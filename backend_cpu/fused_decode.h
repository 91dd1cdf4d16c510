/* The fused decode: gates and norms, then one pass over the state, for rows of 1 to 16 tokens. */
#ifndef GDN_CPU_FUSED_DECODE_H
#define GDN_CPU_FUSED_DECODE_H

#include "backend.h"

#include "kernels/kernels.h"

/* `threads`: as for the fused prefill. */
bool gdn_fused_decode_supports(const gdn_problem *problem, gdn_reason *reason);
gdn_status gdn_fused_decode_book(int threads, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice);
gdn_status gdn_fused_decode_run(const gdn_cpu_kernels *kernels, int threads, const gdn_decode_run *run);

#endif
