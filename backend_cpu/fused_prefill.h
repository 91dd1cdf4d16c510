/* The fused prefill: sequences and heads over threads, each thread with its own scratch. */
#ifndef GDN_CPU_FUSED_PREFILL_H
#define GDN_CPU_FUSED_PREFILL_H

#include "backend.h"

#include "kernels/kernels.h"

/* The parts of an implementation that do not name an instruction set. `threads`: what any run may use, then what this one
 * may. */
bool gdn_fused_prefill_supports(const gdn_cpu_kernels *kernels, const gdn_problem *problem, gdn_reason *reason);
gdn_status gdn_fused_prefill_book(const gdn_cpu_kernels *kernels, int threads, const gdn_problem *problem,
                                  size_t max_workspace, gdn_choice *choice);
gdn_status gdn_fused_prefill_run(const gdn_cpu_kernels *kernels, int threads, const gdn_prefill_run *run);

#endif
