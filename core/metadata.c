#include "metadata.h"

#include "numeric.h"
#include "schedule.h"
#include "slot_conflict.h"

/* ---------------------------------------------------------------------------------- Sequences */

static gdn_status check_cu_seqlens(const gdn_problem *p, const gdn_prefill_args *args)
{
    int64_t previous = 0;
    for (int64_t n = 0; n <= args->num_seqs; ++n) {
        const int64_t bound = gdn_load_index(args->cu_seqlens, p->cu_seqlens_dtype, n);
        if (n == 0 && bound != 0) {
            return GDN_INVALID("cu_seqlens[0]: %lld, must be 0", (long long)bound);
        }
        if (bound < previous) {
            return GDN_INVALID("cu_seqlens[%lld]: %lld, must be at least cu_seqlens[%lld], %lld", (long long)n,
                               (long long)bound, (long long)n - 1, (long long)previous);
        }
        if (bound > args->total_tokens) {
            return GDN_INVALID("cu_seqlens[%lld]: %lld, must be at most total_tokens, %lld", (long long)n,
                               (long long)bound, (long long)args->total_tokens);
        }
        if (bound - previous > p->max_seqlen) {
            return GDN_INVALID("cu_seqlens[%lld]: sequence %lld has %lld tokens, the problem's max_seqlen is %lld",
                               (long long)n, (long long)n - 1, (long long)(bound - previous), (long long)p->max_seqlen);
        }
        previous = bound;
    }
    return GDN_OK;
}

/* -------------------------------------------------------------------------------------- Slots */

size_t gdn_slot_sort_bytes(const gdn_problem *problem)
{
    if (problem->state_form != GDN_STATE_POOL) {
        return 0;
    }
    const size_t tokens = problem->operation == GDN_OPERATION_DECODE ? (size_t)problem->tokens_per_row : 0;
    const size_t uses = gdn_size_mul((size_t)problem->max_seqs, tokens + 2);
    return uses <= GDN_SLOT_USES_ON_STACK ? 0 : gdn_size_mul(uses, sizeof(gdn_slot_use));
}

/* The slot arguments of either operation. */
typedef struct slot_arguments {
    int64_t num_rows;
    int64_t num_slots;
    int32_t tokens_per_row; /* of token_slots */
    const void *read_slots;
    const void *write_slots; /* may be NULL */
    const void *token_slots; /* may be NULL */
    const int32_t *num_tokens; /* may be NULL */
} slot_arguments;

static gdn_status check_slot(int64_t slot, int64_t num_slots, const char *name, int64_t index)
{
    return slot < num_slots ? GDN_OK
                            : GDN_INVALID("%s[%lld]: %lld, must be below num_slots, %lld (negative: skipped)", name,
                                          (long long)index, (long long)slot, (long long)num_slots);
}

static gdn_status check_slots(const gdn_plan *plan, const slot_arguments *slots, void *workspace)
{
    const gdn_dtype dtype = plan->problem.slots_dtype;
    gdn_slot_use on_stack[GDN_SLOT_USES_ON_STACK];
    gdn_slot_use *const uses = gdn_slot_sort_bytes(&plan->problem) == 0
                                   ? on_stack
                                   : (gdn_slot_use *)((unsigned char *)workspace + plan->slot_sort_offset);
    int64_t count = 0;
    for (int64_t row = 0; row < slots->num_rows; ++row) {
        const int64_t read = gdn_load_index(slots->read_slots, dtype, row);
        const int64_t write = slots->write_slots != NULL ? gdn_load_index(slots->write_slots, dtype, row) : 0;
        GDN_TRY(check_slot(read, slots->num_slots, "read_slots", row));
        if (slots->write_slots != NULL) {
            GDN_TRY(check_slot(write, slots->num_slots, "write_slots", row));
        }
        if (read < 0 || write < 0) {
            continue;
        }
        uses[count++] = (gdn_slot_use){.slot = read, .row_and_write = row * 2};
        if (slots->write_slots != NULL) {
            uses[count++] = (gdn_slot_use){.slot = write, .row_and_write = row * 2 + 1};
        }
        const int32_t tokens = slots->num_tokens != NULL ? slots->num_tokens[row] : slots->tokens_per_row;
        for (int32_t t = 0; slots->token_slots != NULL && t < tokens; ++t) {
            const int64_t index = row * slots->tokens_per_row + t;
            const int64_t slot = gdn_load_index(slots->token_slots, dtype, index);
            GDN_TRY(check_slot(slot, slots->num_slots, "token_slots", index));
            if (slot >= 0) {
                uses[count++] = (gdn_slot_use){.slot = slot, .row_and_write = row * 2 + 1};
            }
        }
    }
    gdn_slot_conflict conflict;
    if (gdn_find_slot_conflict(uses, count, &conflict)) {
        return gdn_fail(GDN_ERROR_SLOT_CONFLICT,
                        "%s: slot %lld is written by row %lld and read or written by row %lld, must be the slot of one "
                        "row",
                        slots->token_slots != NULL ? "token_slots or write_slots" : "write_slots",
                        (long long)conflict.slot, (long long)conflict.writer, (long long)conflict.other);
    }
    return GDN_OK;
}

/* -------------------------------------------------------------------------------------- Gates */

/* NaN passes: it stays in its head. Gates of a skipped row are not judged: its tokens are never read. */
static gdn_status check_gate(gdn_gate_form form, float gate, int64_t token, int64_t head)
{
    if (form == GDN_GATE_LOG_DECAY && gate > 0.0f) {
        return GDN_INVALID("gate: %g at token %lld, head %lld, must be at most 0 (a log decay)", (double)gate,
                           (long long)token, (long long)head);
    }
    if (form == GDN_GATE_DECAY && (gate < 0.0f || gate > 1.0f)) {
        return GDN_INVALID("gate: %g at token %lld, head %lld, must be in [0, 1] (a linear decay)", (double)gate,
                           (long long)token, (long long)head);
    }
    return GDN_OK;
}

static gdn_status check_gates(const gdn_problem *p, const void *gate, int64_t offset, int64_t tokens,
                              int64_t first_token)
{
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < p->num_v_heads; ++h) {
            const int64_t at = offset + t * p->gate.token_stride + h * p->gate.head_stride;
            GDN_TRY(check_gate(p->gate_form, gdn_load_element(gate, p->gate.dtype, at), first_token + t, h));
        }
    }
    return GDN_OK;
}

/* -------------------------------------------------------------------------------- Checkpoints */

static gdn_status check_checkpoint_positions(const gdn_problem *p, const gdn_prefill_args *args)
{
    const gdn_dtype dtype = p->checkpoint_index_dtype;
    for (int64_t n = 0; n < args->num_seqs; ++n) {
        const int64_t begin = gdn_load_index(args->checkpoint_offsets, dtype, n);
        const int64_t end = gdn_load_index(args->checkpoint_offsets, dtype, n + 1);
        if (n == 0 && begin != 0) {
            return GDN_INVALID("checkpoint_offsets[0]: %lld, must be 0", (long long)begin);
        }
        if (end < begin || end > args->num_checkpoints) {
            return GDN_INVALID(
                "checkpoint_offsets[%lld]: %lld, must be at least checkpoint_offsets[%lld], %lld, and at "
                "most num_checkpoints, %lld",
                (long long)n + 1, (long long)end, (long long)n, (long long)begin, (long long)args->num_checkpoints);
        }
        int64_t token, length;
        gdn_schedule_sequence(p, args, n, &token, &length);
        int64_t last = 0;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t position = gdn_load_index(args->checkpoint_positions, dtype, i);
            if (position <= last || position > length) {
                return GDN_INVALID(
                    "checkpoint_positions[%lld]: %lld, must increase within 1..%lld, the length of sequence "
                    "%lld",
                    (long long)i, (long long)position, (long long)length, (long long)n);
            }
            last = position;
        }
    }
    return GDN_OK;
}

static gdn_status check_checkpoint_room(const gdn_problem *p, const gdn_prefill_args *args)
{
    int64_t entries = 0;
    for (int64_t n = 0; n < args->num_seqs; ++n) {
        int64_t token, length;
        gdn_schedule_sequence(p, args, n, &token, &length);
        entries += length / p->checkpoint_interval;
    }
    return entries <= args->num_checkpoints
               ? GDN_OK
               : GDN_INVALID("num_checkpoints: %lld, must be at least %lld, one for every %d tokens of each sequence",
                             (long long)args->num_checkpoints, (long long)entries, (int)p->checkpoint_interval);
}

/* -------------------------------------------------------------------------------------- Whole */

gdn_status gdn_check_prefill_metadata(const gdn_plan *plan, const gdn_prefill_args *args)
{
    const gdn_problem *const p = &plan->problem;
    if (p->cu_seqlens_dtype != GDN_DTYPE_NONE) {
        GDN_TRY(check_cu_seqlens(p, args));
    }
    if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
        GDN_TRY(check_checkpoint_positions(p, args));
    } else if (p->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        GDN_TRY(check_checkpoint_room(p, args));
    }
    if (p->gate_form != GDN_GATE_RAW) {
        for (int64_t n = 0; n < args->num_seqs; ++n) {
            if (gdn_schedule_skipped(p, args->read_slots, args->write_slots, n)) {
                continue;
            }
            int64_t token, length;
            gdn_schedule_sequence(p, args, n, &token, &length);
            const int64_t offset = p->cu_seqlens_dtype == GDN_DTYPE_NONE ? n * gdn_row_stride(&p->gate, length)
                                                                         : token * p->gate.token_stride;
            GDN_TRY(check_gates(p, args->gate, offset, length, token));
        }
    }
    if (p->state_form == GDN_STATE_POOL) {
        const slot_arguments slots = {.num_rows = args->num_seqs,
                                      .num_slots = args->num_slots,
                                      .read_slots = args->read_slots,
                                      .write_slots = args->write_slots};
        GDN_TRY(check_slots(plan, &slots, args->workspace));
    }
    return GDN_OK;
}

gdn_status gdn_check_decode_metadata(const gdn_plan *plan, const gdn_decode_args *args)
{
    const gdn_problem *const p = &plan->problem;
    for (int64_t row = 0; row < args->num_rows; ++row) {
        const int32_t tokens = args->num_tokens != NULL ? args->num_tokens[row] : p->tokens_per_row;
        if (tokens < 0 || tokens > p->tokens_per_row) {
            return GDN_INVALID("num_tokens[%lld]: %d, must be in 0..%d, tokens_per_row", (long long)row, (int)tokens,
                               (int)p->tokens_per_row);
        }
        if (p->gate_form != GDN_GATE_RAW && !gdn_schedule_skipped(p, args->read_slots, args->write_slots, row)) {
            GDN_TRY(check_gates(p, args->gate, row * p->gate.row_stride, tokens, row * p->tokens_per_row));
        }
    }
    if (p->state_form == GDN_STATE_POOL) {
        const slot_arguments slots = {.num_rows = args->num_rows,
                                      .num_slots = args->num_slots,
                                      .tokens_per_row = p->tokens_per_row,
                                      .read_slots = args->read_slots,
                                      .write_slots = args->write_slots,
                                      .token_slots = args->token_slots,
                                      .num_tokens = args->num_tokens};
        GDN_TRY(check_slots(plan, &slots, args->workspace));
    }
    return GDN_OK;
}
