/* The rule by which a run of the Hopper prefill takes its form. */
#ifndef GDN_CUDA_SM90_SM90_FORM_H
#define GDN_CUDA_SM90_SM90_FORM_H

#include "core/backend.h"
#include "prefill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a sequence's final state may take the place of its initial one. */
bool gdn_sm90_in_place(const gdn_prefill_run *run);

/* Sets what `p` says of segments, pieces, tiles of V a block and even shares, of a run with `slots` chunk slots and at least
 * one sequence. Returns whether it is the fused form; `p->planned` then says whether its gates kernel does what the schedule
 * kernel would. `p` has its dims and `packed_qk`. */
bool gdn_sm90_choose_form(gdn_sm90_prefill *p, const gdn_prefill_run *run, int64_t slots, int32_t num_sms);

#ifdef __cplusplus
}
#endif

#endif
