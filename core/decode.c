/* gdn_decode: checks a run's arguments against its plan, then runs what the plan chose. */
#include "arguments.h"
#include "metadata.h"
#include "struct_version.h"

gdn_status gdn_decode_args_init_sized(gdn_decode_args *args, size_t struct_size)
{
    GDN_TRY(gdn_check_init_size(args, struct_size, sizeof(*args), "gdn_decode_args"));
    memset(args, 0, struct_size);
    args->struct_size = struct_size;
    return GDN_OK;
}

static gdn_status check_counts(const gdn_problem *p, const gdn_decode_args *args)
{
    if (args->num_rows < 0 || args->num_rows > p->max_seqs) {
        return GDN_INVALID("num_rows: %lld, must be in 0..%lld, the plan's max_seqs", (long long)args->num_rows,
                           (long long)p->max_seqs);
    }
    if (p->state_form == GDN_STATE_POOL && args->num_slots < 0) {
        return GDN_INVALID("num_slots: %lld, must be at least 0", (long long)args->num_slots);
    }
    return GDN_OK;
}

gdn_status gdn_decode(const gdn_plan *plan, const gdn_decode_args *caller_args)
{
    if (plan == NULL) {
        return GDN_INVALID("plan: NULL, must be a plan");
    }
    if (caller_args == NULL) {
        return GDN_INVALID("args: NULL, must point to a gdn_decode_args");
    }
    gdn_decode_args args;
    GDN_TRY(gdn_check_struct_size(caller_args, caller_args->struct_size, sizeof(args), "gdn_decode_args"));
    memcpy(&args, caller_args, sizeof(args));

    const gdn_problem *const p = &plan->problem;
    const gdn_context *const context = plan->context;
    if (p->operation != GDN_OPERATION_DECODE) {
        return GDN_INVALID("plan: made for a prefill problem, must be a decode plan");
    }
    GDN_TRY(check_counts(p, &args));
    const gdn_common_args common = GDN_COMMON_ARGS(&args);
    const gdn_unused_rule token_slots = {p->state_form == GDN_STATE_POOL, args.token_slots, "token_slots",
                                         "state_form POOL"};
    GDN_TRY(gdn_arguments_check_common_unused(p, &common));
    GDN_TRY(gdn_arguments_check_unused(&token_slots, 1));
    if (args.num_rows == 0) {
        return gdn_plan_run_nothing(plan, args.workspace, args.workspace_size, args.stream);
    }
    gdn_arguments list = {.count = 0};
    gdn_arguments_add_common(&list, p, &common, args.num_rows, args.num_rows, p->tokens_per_row);
    gdn_arguments_add_array(&list, "num_tokens", args.num_tokens, GDN_DTYPE_I32, args.num_rows, false);
    if (p->state_form == GDN_STATE_POOL) {
        gdn_arguments_add_array(&list, "token_slots", args.token_slots, p->slots_dtype,
                                args.num_rows * p->tokens_per_row, false);
    }
    GDN_TRY(gdn_arguments_check(&list, context, args.workspace, args.workspace_size, plan->choice.ledger.total));
    if (context->backend->host_memory) {
        GDN_TRY(gdn_check_decode_metadata(plan, &args));
    }
    const gdn_decode_run run = {
        .problem = p, .args = &args, .choice = &plan->choice, .workspace = args.workspace, .stream = args.stream};
    return plan->implementation->decode(context->device, &run);
}
