/* What a gdn_plan holds. Fixed size and no pointers of its own: gdn_extend_chunkwise keeps one on the stack. */
#ifndef GDN_CORE_PLAN_H
#define GDN_CORE_PLAN_H

#include "context.h"

struct gdn_plan {
    const gdn_context *context;
    gdn_problem problem; /* resolved */
    const gdn_implementation *implementation;
    gdn_choice choice;
    size_t slot_sort_offset; /* host-memory backends: scratch for the slot conflict check (metadata.h) */
};

/* Validates the problem and chooses the implementation, in place. */
gdn_status gdn_plan_build(gdn_plan *plan, const gdn_context *context, const gdn_problem *problem);

/* A run of no rows: there is nothing to do but to leave a workspace in which gdn_plan_check finds no fault. */
gdn_status gdn_plan_run_nothing(const gdn_plan *plan, void *workspace, size_t workspace_size, void *stream);

#endif
