/* The plan: which implementation takes the problem, with what scratch, and why the others do not. */
#include "plan.h"

#include "generic_ops.h"
#include "implementation_list.h"
#include "log.h"
#include "metadata.h"
#include "pointer.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>

/* Implementations in the order in which they are tried: the backend's table, then core's generic path. */
static const gdn_implementation *candidate(const gdn_context *context, int32_t index)
{
    int32_t i = 0;
    for (const gdn_implementation *const *entry = context->backend->implementations; *entry != NULL; ++entry) {
        if (i++ == index) {
            return *entry;
        }
    }
    return i == index && context->backend->ops != NULL ? &gdn_generic_prefill : NULL;
}

/* Asks one implementation. GDN_OK: it takes the problem, and plan->choice is filled. UNSUPPORTED: it does not, and *reason says
 * why. Else: it failed in looking, which is no reason to take another. */
static gdn_status take(gdn_plan *plan, const gdn_implementation *implementation, gdn_reason *reason)
{
    const gdn_context *const context = plan->context;
    const gdn_problem *const problem = &plan->problem;
    reason->text[0] = '\0';
    if (!gdn_implementation_list_allows(context, implementation->name)) {
        snprintf(reason->text, sizeof(reason->text), "excluded by the implementation list \"%.96s\"",
                 context->implementations);
        return GDN_ERROR_UNSUPPORTED;
    }
    if (!implementation->supports(context->device, problem, reason)) {
        return GDN_ERROR_UNSUPPORTED;
    }
    memset(&plan->choice, 0, sizeof(plan->choice));
    gdn_ledger *const ledger = &plan->choice.ledger;
    plan->slot_sort_offset = 0;
    if (!context->backend->host_memory) {
        gdn_ledger_book(ledger, "metadata fault", GDN_FAULT_BYTES);
    } else if (gdn_slot_sort_bytes(problem) > 0) {
        plan->slot_sort_offset = gdn_ledger_book(ledger, "slot check", gdn_slot_sort_bytes(problem));
    }
    const gdn_status status = implementation->book(context->device, problem, problem->max_workspace, &plan->choice);
    if (status != GDN_OK) {
        snprintf(reason->text, sizeof(reason->text), "%s", gdn_last_error());
        return status;
    }
    if (ledger->overflow) {
        snprintf(reason->text, sizeof(reason->text), "its workspace does not fit the address space");
        return GDN_ERROR_UNSUPPORTED;
    }
    if (problem->max_workspace != 0 && ledger->total > problem->max_workspace) {
        snprintf(reason->text, sizeof(reason->text), "needs %zu bytes of workspace, max_workspace is %zu",
                 ledger->total, problem->max_workspace);
        return GDN_ERROR_UNSUPPORTED;
    }
    plan->implementation = implementation;
    return GDN_OK;
}

static const char *operation_name(gdn_operation operation)
{
    return operation == GDN_OPERATION_PREFILL ? "prefill" : "decode";
}

/* The least cap with which the implementation takes the problem, given that it refuses `little` and takes `enough`. */
static size_t least_workspace(const gdn_plan *plan, const gdn_implementation *implementation, size_t little,
                              size_t enough)
{
    gdn_plan trial = *plan;
    while (enough > little && enough - little > 1) {
        const size_t middle = little + (enough - little) / 2;
        gdn_reason reason;
        trial.problem.max_workspace = middle;
        if (take(&trial, implementation, &reason) == GDN_OK) {
            enough = middle;
        } else {
            little = middle;
        }
    }
    return enough;
}

/* Makes the chosen implementation work within the problem's cap. The cap does not choose another, whose bits would differ. */
static gdn_status fit(gdn_plan *plan, size_t max_workspace)
{
    const gdn_implementation *const implementation = plan->implementation;
    const gdn_choice uncapped = plan->choice;
    plan->problem.max_workspace = max_workspace;
    gdn_reason reason;
    const gdn_status status = max_workspace == 0 ? GDN_OK : take(plan, implementation, &reason);
    if (status != GDN_ERROR_UNSUPPORTED) {
        return status;
    }
    if (uncapped.ledger.total <= max_workspace) {
        plan->choice = uncapped; /* booking by a cap may keep room for padding that there is not */
        return GDN_OK;
    }
    return gdn_fail(GDN_ERROR_UNSUPPORTED,
                    "max_workspace: %zu, must be 0 (no cap) or at least %zu for this problem (%s)", max_workspace,
                    least_workspace(plan, implementation, max_workspace, uncapped.ledger.total), implementation->name);
}

gdn_status gdn_plan_build(gdn_plan *plan, const gdn_context *context, const gdn_problem *problem)
{
    memset(plan, 0, sizeof(*plan));
    plan->context = context;
    GDN_TRY(gdn_problem_resolve(&plan->problem, problem));
    const size_t max_workspace = plan->problem.max_workspace;
    plan->problem.max_workspace = 0;

    char reasons[896] = "";
    const gdn_implementation *implementation;
    for (int32_t i = 0; (implementation = candidate(context, i)) != NULL; ++i) {
        if (implementation->operation != plan->problem.operation) {
            continue;
        }
        gdn_reason reason;
        const gdn_status status = take(plan, implementation, &reason);
        if (status != GDN_OK && status != GDN_ERROR_UNSUPPORTED) {
            return status;
        }
        if (status == GDN_OK) {
            GDN_TRY(fit(plan, max_workspace));
            gdn_log(context, GDN_LOG_CHOICE, "%s: %s, workspace %zu bytes", operation_name(plan->problem.operation),
                    implementation->name, plan->choice.ledger.total);
            return GDN_OK;
        }
        gdn_log(context, GDN_LOG_CHOICE, "%s: not %s: %s", operation_name(plan->problem.operation),
                implementation->name, reason.text);
        if (!gdn_implementation_list_allows(context, implementation->name)) {
            continue; /* the caller knows, and the message has room for the reasons that matter */
        }
        const size_t used = strlen(reasons);
        snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s", used > 0 ? "; " : "", implementation->name,
                 reason.text);
    }
    if (reasons[0] == '\0') {
        snprintf(reasons, sizeof(reasons), "the implementation list \"%s\" excludes them all",
                 context->implementations);
    }
    return gdn_fail(GDN_ERROR_UNSUPPORTED, "problem: no %s implementation of backend %s takes it (%s)",
                    operation_name(plan->problem.operation), context->backend->name, reasons);
}

gdn_status gdn_plan_create(gdn_plan **plan, gdn_context *context, const gdn_problem *problem)
{
    if (plan == NULL) {
        return GDN_INVALID("plan: NULL, must point to the handle to set");
    }
    *plan = NULL;
    if (context == NULL) {
        return GDN_INVALID("context: NULL, must be a context");
    }
    gdn_plan built;
    GDN_TRY(gdn_plan_build(&built, context, problem));
    gdn_plan *const created = context->allocator.alloc(context->allocator.user, sizeof(built), _Alignof(gdn_plan));
    if (created == NULL) {
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "plan: the allocator has no %zu bytes", sizeof(built));
    }
    memcpy(created, &built, sizeof(built));
    *plan = created;
    return GDN_OK;
}

void gdn_plan_destroy(gdn_plan **plan)
{
    if (plan == NULL || *plan == NULL) {
        return;
    }
    const gdn_allocator allocator = (*plan)->context->allocator;
    allocator.free(allocator.user, *plan);
    *plan = NULL;
}

size_t gdn_plan_workspace_size(const gdn_plan *plan)
{
    return plan != NULL ? plan->choice.ledger.total : 0;
}

/* A text of unknown length into a buffer of known size: what does not fit is counted, not written. */
typedef struct text_sink {
    char *buffer;
    size_t size;
    size_t used; /* without the NUL */
} text_sink;

static void put(text_sink *sink, const char *format, ...) GDN_PRINTF(2, 3);

static void put(text_sink *sink, const char *format, ...)
{
    const bool room = sink->used < sink->size;
    va_list args;
    va_start(args, format);
    const int length =
        vsnprintf(room ? sink->buffer + sink->used : NULL, room ? sink->size - sink->used : 0, format, args);
    va_end(args);
    sink->used += length > 0 ? (size_t)length : 0;
}

gdn_status gdn_plan_describe(const gdn_plan *plan, char *buffer, size_t size, size_t *needed)
{
    if (plan == NULL) {
        return GDN_INVALID("plan: NULL, must be a plan");
    }
    if (buffer == NULL && size > 0) {
        return GDN_INVALID("buffer: NULL, must point to %zu bytes", size);
    }
    text_sink sink = {.buffer = buffer, .size = size};
    const gdn_context *const context = plan->context;
    put(&sink, "operation: %s\n", operation_name(plan->problem.operation));
    put(&sink, "backend: %s, %s\n", context->backend->name, context->device->description);
    if (context->backend->note != NULL) {
        char note[160] = "";
        context->backend->note(context->device, note, sizeof(note));
        if (note[0] != '\0') {
            put(&sink, "note: %s\n", note);
        }
    }
    char strays[GDN_MAX_IMPLEMENTATION_LIST];
    if (gdn_implementation_list_strays(context, strays)) {
        put(&sink, "note: implementations: \"%s\" names nothing that backend %s has\n", strays, context->backend->name);
    }
    put(&sink, "implementation: %s, %s\n", plan->implementation->name, plan->implementation->summary);

    /* Asked again rather than stored: a plan is small, and this is no hot path. */
    const gdn_implementation *implementation;
    for (int32_t i = 0; (implementation = candidate(context, i)) != plan->implementation; ++i) {
        if (implementation->operation == plan->problem.operation) {
            gdn_plan asked = *plan;
            gdn_reason reason;
            if (take(&asked, implementation, &reason) != GDN_OK) {
                put(&sink, "not %s: %s\n", implementation->name, reason.text);
            }
        }
    }
    if (plan->choice.chunk_size > 0) {
        put(&sink, "chunk size: %d tokens\n", (int)plan->choice.chunk_size);
    }
    if (plan->choice.wave_chunks > 0) {
        put(&sink, "wave: %lld chunks\n", (long long)plan->choice.wave_chunks);
    }
    put(&sink, "workspace: %zu bytes\n", plan->choice.ledger.total);
    for (int32_t i = 0; i < plan->choice.ledger.count; ++i) {
        const gdn_scratch_piece *const piece = &plan->choice.ledger.piece[i];
        put(&sink, "  at %zu: %s, %zu bytes\n", piece->offset, piece->name, piece->bytes);
    }
    if (needed != NULL) {
        *needed = sink.used + 1;
    }
    return GDN_OK;
}

/* The message of a fault a device found. */
static gdn_status report_fault(const gdn_metadata_fault *fault)
{
    const long long row = (long long)fault->row;
    const long long value = (long long)fault->value;
    switch ((gdn_fault)fault->code) {
    case GDN_FAULT_NONE:
        return GDN_OK;
    case GDN_FAULT_CU_SEQLENS:
        return GDN_INVALID(
            "cu_seqlens: sequence %lld is bounded by %lld, must start at 0, never decrease and end within "
            "total_tokens",
            row, value);
    case GDN_FAULT_SEQLEN:
        return GDN_INVALID("cu_seqlens: sequence %lld has %lld tokens, more than max_seqlen", row, value);
    case GDN_FAULT_READ_SLOT:
        return GDN_INVALID("read_slots[%lld]: %lld, must be below num_slots", row, value);
    case GDN_FAULT_WRITE_SLOT:
        return GDN_INVALID("write_slots[%lld]: %lld, must be below num_slots", row, value);
    case GDN_FAULT_TOKEN_SLOT:
        return GDN_INVALID("token_slots: row %lld names slot %lld, must be below num_slots", row, value);
    case GDN_FAULT_SLOT_CONFLICT:
        return gdn_fail(GDN_ERROR_SLOT_CONFLICT,
                        "slots: slot %lld is written by one row and read or written by another (row %lld)", value, row);
    case GDN_FAULT_NUM_TOKENS:
        return GDN_INVALID("num_tokens[%lld]: %lld, must be in 0..tokens_per_row", row, value);
    case GDN_FAULT_CHECKPOINT:
        return GDN_INVALID(
            "checkpoints: sequence %lld, value %lld: positions must increase within 1..length, and entries "
            "fit num_checkpoints",
            row, value);
    case GDN_FAULT_GATE:
        return GDN_INVALID("gate: token %lld, must be at most 0 (log decay) or in [0, 1] (decay)", row);
    }
    return gdn_fail(GDN_ERROR_INTERNAL,
                    "workspace: holds no fault record (code %d); was it used by a run of this plan?", (int)fault->code);
}

gdn_status gdn_plan_run_nothing(const gdn_plan *plan, void *workspace, size_t workspace_size, void *stream)
{
    const gdn_backend *const backend = plan->context->backend;
    gdn_device *const device = plan->context->device;
    if (backend->read_fault == NULL || workspace == NULL || workspace_size < GDN_FAULT_BYTES) {
        return GDN_OK;
    }
    GDN_TRY(gdn_pointer_check(plan->context, workspace, "workspace"));
    return backend->fill(device, workspace, 0, GDN_FAULT_BYTES, stream);
}

gdn_status gdn_plan_check(const gdn_plan *plan, const void *workspace, void *stream)
{
    if (plan == NULL) {
        return GDN_INVALID("plan: NULL, must be a plan");
    }
    const gdn_context *const context = plan->context;
    if (context->backend->read_fault == NULL) {
        return GDN_OK;
    }
    if (workspace == NULL) {
        return GDN_INVALID("workspace: NULL, must be the workspace of the run to check");
    }
    gdn_metadata_fault fault = {0};
    GDN_TRY(context->backend->read_fault(context->device, workspace, stream, &fault));
    return report_fault(&fault);
}
