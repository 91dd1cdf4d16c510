/* Checks of a run's metadata in host memory: cu_seqlens, slots, token counts, checkpoint positions, gate ranges. Used on
 * backends of host memory, before anything is written; a device does the same in its first kernel. */
#ifndef GDN_CORE_METADATA_H
#define GDN_CORE_METADATA_H

#include "plan.h"

/* Bytes of workspace the slot conflict check needs for this problem's maxima; 0 where it needs none. */
size_t gdn_slot_sort_bytes(const gdn_problem *problem);

gdn_status gdn_check_prefill_metadata(const gdn_plan *plan, const gdn_prefill_args *args);
gdn_status gdn_check_decode_metadata(const gdn_plan *plan, const gdn_decode_args *args);

#endif
