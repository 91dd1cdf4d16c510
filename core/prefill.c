/* gdn_prefill: checks a run's arguments against its plan, then runs what the plan chose. */
#include "arguments.h"
#include "metadata.h"
#include "struct_version.h"

gdn_status gdn_prefill_args_init_sized(gdn_prefill_args *args, size_t struct_size)
{
    GDN_TRY(gdn_check_init_size(args, struct_size, sizeof(*args), "gdn_prefill_args"));
    memset(args, 0, struct_size);
    args->struct_size = struct_size;
    return GDN_OK;
}

static gdn_status check_counts(const gdn_problem *p, const gdn_prefill_args *args)
{
    if (args->num_seqs < 0 || args->num_seqs > p->max_seqs) {
        return GDN_INVALID("num_seqs: %lld, must be in 0..%lld, the plan's max_seqs", (long long)args->num_seqs,
                           (long long)p->max_seqs);
    }
    if (args->total_tokens < 0 || args->total_tokens > p->max_tokens) {
        return GDN_INVALID("total_tokens: %lld, must be in 0..%lld, the plan's max_tokens",
                           (long long)args->total_tokens, (long long)p->max_tokens);
    }
    if (p->state_form == GDN_STATE_POOL && args->num_slots < 0) {
        return GDN_INVALID("num_slots: %lld, must be at least 0", (long long)args->num_slots);
    }
    if (args->num_checkpoints < 0 || args->num_checkpoints > p->max_checkpoints) {
        return GDN_INVALID("num_checkpoints: %lld, must be in 0..%lld, the plan's max_checkpoints",
                           (long long)args->num_checkpoints, (long long)p->max_checkpoints);
    }
    if (p->cu_seqlens_dtype == GDN_DTYPE_NONE && args->num_seqs > 0) {
        const int64_t length = args->total_tokens / args->num_seqs;
        if (length * args->num_seqs != args->total_tokens) {
            return GDN_INVALID("total_tokens: %lld, must be a multiple of num_seqs, %lld, in an equal-length batch",
                               (long long)args->total_tokens, (long long)args->num_seqs);
        }
        if (length > p->max_seqlen) {
            return GDN_INVALID("total_tokens: %lld, makes sequences of %lld tokens, the plan's max_seqlen is %lld",
                               (long long)args->total_tokens, (long long)length, (long long)p->max_seqlen);
        }
        gdn_dims rows = {.rank = 0};
        gdn_dims_add(&rows, p->head_v_dim, 1);
        gdn_dims_add(&rows, p->num_v_heads, p->o.head_stride);
        gdn_dims_add(&rows, length, p->o.token_stride);
        gdn_dims_add(&rows, args->num_seqs, gdn_row_stride(&p->o, length));
        if (length > 0 && !gdn_dims_are_apart(&rows)) {
            return GDN_INVALID("total_tokens: %lld, rows of %lld tokens do not fit o's row_stride, %lld",
                               (long long)args->total_tokens, (long long)length, (long long)p->o.row_stride);
        }
    }
    return GDN_OK;
}

static gdn_status check_unused(const gdn_problem *p, const gdn_prefill_args *args)
{
    const bool at = p->checkpoint_form == GDN_CHECKPOINT_AT;
    const gdn_unused_rule rules[] = {
        {p->cu_seqlens_dtype != GDN_DTYPE_NONE, args->cu_seqlens, "cu_seqlens", "a cu_seqlens_dtype"},
        {p->checkpoint_form != GDN_CHECKPOINT_NONE, args->checkpoints, "checkpoints", "a checkpoint_form"},
        {at, args->checkpoint_positions, "checkpoint_positions", "checkpoint_form AT"},
        {at, args->checkpoint_offsets, "checkpoint_offsets", "checkpoint_form AT"},
    };
    return gdn_arguments_check_unused(rules, sizeof(rules) / sizeof(rules[0]));
}

static void list_arguments(gdn_arguments *list, const gdn_problem *p, const gdn_prefill_args *args,
                           const gdn_common_args *common)
{
    const bool packed = p->cu_seqlens_dtype != GDN_DTYPE_NONE;
    const int64_t seqs = args->num_seqs;
    gdn_arguments_add_common(list, p, common, seqs, packed ? 1 : seqs,
                             packed ? args->total_tokens : args->total_tokens / seqs);
    if (packed) {
        gdn_arguments_add_array(list, "cu_seqlens", args->cu_seqlens, p->cu_seqlens_dtype, seqs + 1, true);
    }
    if (p->checkpoint_form != GDN_CHECKPOINT_NONE) {
        gdn_arguments_add_states(list, "checkpoints", args->checkpoints, &p->checkpoints, p, args->num_checkpoints,
                                 true, true);
    }
    if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
        const gdn_dtype dtype = p->checkpoint_index_dtype;
        gdn_arguments_add_array(list, "checkpoint_positions", args->checkpoint_positions, dtype, args->num_checkpoints,
                                true);
        gdn_arguments_add_array(list, "checkpoint_offsets", args->checkpoint_offsets, dtype, seqs + 1, true);
    }
}

gdn_status gdn_prefill(const gdn_plan *plan, const gdn_prefill_args *caller_args)
{
    if (plan == NULL) {
        return GDN_INVALID("plan: NULL, must be a plan");
    }
    if (caller_args == NULL) {
        return GDN_INVALID("args: NULL, must point to a gdn_prefill_args");
    }
    gdn_prefill_args args;
    GDN_TRY(gdn_check_struct_size(caller_args, caller_args->struct_size, sizeof(args), "gdn_prefill_args"));
    memcpy(&args, caller_args, sizeof(args));

    const gdn_problem *const p = &plan->problem;
    const gdn_context *const context = plan->context;
    if (p->operation != GDN_OPERATION_PREFILL) {
        return GDN_INVALID("plan: made for a decode problem, must be a prefill plan");
    }
    GDN_TRY(check_counts(p, &args));
    const gdn_common_args common = GDN_COMMON_ARGS(&args);
    GDN_TRY(gdn_arguments_check_common_unused(p, &common));
    GDN_TRY(check_unused(p, &args));
    if (args.num_seqs == 0) {
        return gdn_plan_run_nothing(plan, args.workspace, args.workspace_size, args.stream);
    }
    gdn_arguments list = {.count = 0};
    list_arguments(&list, p, &args, &common);
    GDN_TRY(gdn_arguments_check(&list, context, args.workspace, args.workspace_size, plan->choice.ledger.total));
    if (context->backend->host_memory) {
        GDN_TRY(gdn_check_prefill_metadata(plan, &args));
    }
    const gdn_prefill_run run = {
        .problem = p, .args = &args, .choice = &plan->choice, .workspace = args.workspace, .stream = args.stream};
    return plan->implementation->prefill(context->device, &run);
}
