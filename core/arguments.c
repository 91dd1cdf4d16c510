#include "arguments.h"

#include "pointer.h"

#include <string.h>

static gdn_argument *add(gdn_arguments *arguments, const char *name, const void *ptr, size_t element,
                         uint32_t alignment, bool output, bool required)
{
    gdn_argument *const argument = &arguments->item[arguments->count++];
    memset(argument, 0, sizeof(*argument));
    argument->name = name;
    argument->ptr = ptr;
    argument->element = element;
    argument->alignment = alignment;
    argument->output = output;
    argument->required = required;
    return argument;
}

void gdn_arguments_add_tokens(gdn_arguments *arguments, const char *name, const void *ptr, const gdn_layout *layout,
                              int64_t rows, int64_t tokens, int64_t heads, int64_t dim, bool output)
{
    gdn_argument *const argument =
        add(arguments, name, ptr, gdn_dtype_size(layout->dtype), layout->alignment, output, true);
    gdn_dims_add(&argument->dims, dim > 0 ? dim : 1, 1);
    gdn_dims_add(&argument->dims, heads, layout->head_stride);
    gdn_dims_add(&argument->dims, tokens, layout->token_stride);
    gdn_dims_add(&argument->dims, rows, gdn_row_stride(layout, tokens));
}

void gdn_arguments_add_states(gdn_arguments *arguments, const char *name, const void *ptr,
                              const gdn_state_layout *layout, const gdn_problem *problem, int64_t slots, bool output,
                              bool required)
{
    gdn_argument *const argument =
        add(arguments, name, ptr, gdn_dtype_size(layout->dtype), layout->alignment, output, required);
    gdn_dims_add(&argument->dims, problem->head_k_dim, layout->k_stride);
    gdn_dims_add(&argument->dims, problem->head_v_dim, layout->v_stride);
    gdn_dims_add(&argument->dims, problem->num_v_heads, layout->head_stride);
    gdn_dims_add(&argument->dims, slots, layout->slot_stride);
}

void gdn_arguments_add_array(gdn_arguments *arguments, const char *name, const void *ptr, gdn_dtype dtype,
                             int64_t count, bool required)
{
    const size_t element = gdn_dtype_size(dtype);
    gdn_argument *const argument = add(arguments, name, ptr, element, (uint32_t)element, false, required);
    gdn_dims_add(&argument->dims, count, 1);
}

void gdn_arguments_add_common(gdn_arguments *arguments, const gdn_problem *problem, const gdn_common_args *args,
                              int64_t seqs, int64_t rows, int64_t tokens)
{
    const gdn_problem *const p = problem;
    const bool pool = p->state_form == GDN_STATE_POOL;
    gdn_arguments_add_tokens(arguments, "q", args->q, &p->q, rows, tokens, p->num_k_heads, p->head_k_dim, false);
    gdn_arguments_add_tokens(arguments, "k", args->k, &p->k, rows, tokens, p->num_k_heads, p->head_k_dim, false);
    gdn_arguments_add_tokens(arguments, "v", args->v, &p->v, rows, tokens, p->num_v_heads, p->head_v_dim, false);
    gdn_arguments_add_tokens(arguments, "o", args->o, &p->o, rows, tokens, p->num_v_heads, p->head_v_dim, true);
    gdn_arguments_add_tokens(arguments, "gate", args->gate, &p->gate, rows, tokens, p->num_v_heads, 0, false);
    gdn_arguments_add_tokens(arguments, "beta", args->beta, &p->beta, rows, tokens, p->num_v_heads, 0, false);
    const int64_t raw_heads = p->gate_form == GDN_GATE_RAW ? p->num_v_heads : 0;
    gdn_arguments_add_array(arguments, "A_log", args->A_log, GDN_DTYPE_F32, raw_heads, true);
    gdn_arguments_add_array(arguments, "dt_bias", args->dt_bias, GDN_DTYPE_F32, raw_heads, false);
    /* In a pool the run writes only rows' slots, but nothing else may lie within the pool's range. */
    gdn_arguments_add_states(arguments, "state", args->state, &p->state, p, pool ? args->num_slots : seqs, pool, pool);
    if (pool) {
        gdn_arguments_add_array(arguments, "read_slots", args->read_slots, p->slots_dtype, seqs, true);
        gdn_arguments_add_array(arguments, "write_slots", args->write_slots, p->slots_dtype, seqs, false);
    } else {
        gdn_arguments_add_states(arguments, "final_state", args->final_state, &p->final_state, p, seqs, true, false);
        arguments->item[arguments->count - 1].may_equal = "state";
    }
    gdn_arguments_add_array(arguments, "has_initial_state", args->has_initial_state, GDN_DTYPE_U8, seqs, false);
}

gdn_status gdn_arguments_check_unused(const gdn_unused_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (!rules[i].used && rules[i].ptr != NULL) {
            return GDN_INVALID("%s: %p, must be NULL: the problem does not have %s", rules[i].name, rules[i].ptr,
                               rules[i].when);
        }
    }
    return GDN_OK;
}

gdn_status gdn_arguments_check_common_unused(const gdn_problem *problem, const gdn_common_args *args)
{
    const bool pool = problem->state_form == GDN_STATE_POOL;
    const bool raw = problem->gate_form == GDN_GATE_RAW;
    const gdn_unused_rule rules[] = {
        {raw, args->A_log, "A_log", "gate_form RAW"},
        {raw, args->dt_bias, "dt_bias", "gate_form RAW"},
        {!pool, args->final_state, "final_state", "state_form DENSE"},
        {pool, args->read_slots, "read_slots", "state_form POOL"},
        {pool, args->write_slots, "write_slots", "state_form POOL"},
    };
    return gdn_arguments_check_unused(rules, sizeof(rules) / sizeof(rules[0]));
}

static int64_t extent_bytes(const gdn_argument *argument)
{
    const int64_t extent = gdn_dims_extent(&argument->dims);
    return extent < 0 ? -1 : extent * (int64_t)argument->element;
}

static bool ranges_meet(uintptr_t a, int64_t a_bytes, uintptr_t b, int64_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && a < b + (uintptr_t)b_bytes && b < a + (uintptr_t)a_bytes;
}

/* Whether two arguments keep apart within every `period` bytes: all their strides below it stay inside one period, the
 * others step by whole periods, and what each covers of a period does not meet. */
static bool are_apart_by_period(const gdn_argument *a, const gdn_argument *b, int64_t period)
{
    const gdn_argument *const both[2] = {a, b};
    int64_t reach[2];
    for (int k = 0; k < 2; ++k) {
        reach[k] = (int64_t)both[k]->element;
        for (int32_t i = 0; i < both[k]->dims.rank; ++i) {
            const int64_t stride = both[k]->dims.stride[i] * (int64_t)both[k]->element;
            if (stride < period) {
                reach[k] += (both[k]->dims.size[i] - 1) * stride;
            } else if (stride % period != 0 && both[k]->dims.size[i] > 1) {
                return false;
            }
        }
        if (reach[k] > period) {
            return false;
        }
    }
    /* Place of b's footprint in a's period. */
    const uintptr_t pa = (uintptr_t)a->ptr;
    const uintptr_t pb = (uintptr_t)b->ptr;
    const int64_t distance =
        (int64_t)(pb >= pa ? (pb - pa) % (uintptr_t)period
                           : ((uintptr_t)period - (pa - pb) % (uintptr_t)period) % (uintptr_t)period);
    return distance >= reach[0] && distance + reach[1] <= period;
}

/* Two views into rows of one packed buffer (q, k, v, o side by side) have ranges that meet and elements that do not: some
 * stride of theirs, that of a token or of a row, is the period of a packed row. */
static bool are_interleaved_apart(const gdn_argument *a, const gdn_argument *b)
{
    for (int32_t i = 0; i < a->dims.rank; ++i) {
        const int64_t period = a->dims.stride[i] * (int64_t)a->element;
        if (a->dims.size[i] > 1 && period > 0 && are_apart_by_period(a, b, period)) {
            return true;
        }
    }
    return false;
}

static gdn_status check_one(const gdn_argument *argument, const gdn_context *context)
{
    const int64_t bytes = extent_bytes(argument);
    if (bytes < 0) {
        return GDN_INVALID("%s: reaches past 2^58 elements with these counts and strides", argument->name);
    }
    if (argument->ptr == NULL) {
        return argument->required && bytes > 0 ? GDN_INVALID("%s: NULL, must point to its elements", argument->name)
                                               : GDN_OK;
    }
    if ((uintptr_t)argument->ptr % argument->alignment != 0) {
        return argument->alignment > argument->element
                   ? GDN_INVALID("%s: %p, must be aligned to %u bytes, the alignment of its layout in the problem",
                                 argument->name, argument->ptr, argument->alignment)
                   : GDN_INVALID("%s: %p, must be aligned to its element, %zu bytes", argument->name, argument->ptr,
                                 argument->element);
    }
    if (bytes > 0) {
        if (gdn_pointer_wraps(argument->ptr, (size_t)bytes)) {
            return GDN_INVALID("%s: %p, its %lld bytes reach past the end of the address space", argument->name,
                               argument->ptr, (long long)bytes);
        }
        return gdn_pointer_check(context, argument->ptr, argument->name);
    }
    return GDN_OK;
}

static bool same_place(const gdn_argument *a, const gdn_argument *b)
{
    return a->ptr == b->ptr && a->element == b->element && gdn_dims_equal(&a->dims, &b->dims);
}

static gdn_status check_overlaps(const gdn_arguments *arguments, const void *workspace, size_t workspace_bytes)
{
    for (int32_t i = 0; i < arguments->count; ++i) {
        const gdn_argument *const a = &arguments->item[i];
        if (a->ptr == NULL) {
            continue;
        }
        const int64_t a_bytes = extent_bytes(a);
        if (ranges_meet((uintptr_t)a->ptr, a_bytes, (uintptr_t)workspace, (int64_t)workspace_bytes)) {
            return GDN_INVALID("workspace: %p, overlaps %s, must be memory of its own", workspace, a->name);
        }
        for (int32_t j = 0; j < arguments->count; ++j) {
            const gdn_argument *const b = &arguments->item[j];
            /* Each pair once; two inputs may overlap. */
            if (j == i || !a->output || (b->output && j < i) || b->ptr == NULL) {
                continue;
            }
            if (!ranges_meet((uintptr_t)a->ptr, a_bytes, (uintptr_t)b->ptr, extent_bytes(b))) {
                continue;
            }
            if (a->may_equal != NULL && strcmp(a->may_equal, b->name) == 0 && same_place(a, b)) {
                continue;
            }
            if (!are_interleaved_apart(a, b)) {
                return GDN_INVALID("%s: %p, overlaps %s, must be memory of its own", a->name, a->ptr, b->name);
            }
        }
    }
    return GDN_OK;
}

gdn_status gdn_arguments_check(const gdn_arguments *arguments, const gdn_context *context, void *workspace,
                               size_t workspace_size, size_t workspace_needed)
{
    for (int32_t i = 0; i < arguments->count; ++i) {
        GDN_TRY(check_one(&arguments->item[i], context));
    }
    if (workspace_needed > 0) {
        if (workspace_size < workspace_needed) {
            return gdn_fail(GDN_ERROR_WORKSPACE_TOO_SMALL, "workspace_size: %zu, must be at least %zu", workspace_size,
                            workspace_needed);
        }
        if (workspace == NULL) {
            return GDN_INVALID("workspace: NULL, must point to %zu bytes", workspace_needed);
        }
        if ((uintptr_t)workspace % GDN_WORKSPACE_ALIGNMENT != 0) {
            return GDN_INVALID("workspace: %p, must be aligned to %d bytes", workspace, GDN_WORKSPACE_ALIGNMENT);
        }
        if (gdn_pointer_wraps(workspace, workspace_needed)) {
            return GDN_INVALID("workspace: %p, its %zu bytes reach past the end of the address space", workspace,
                               workspace_needed);
        }
        GDN_TRY(gdn_pointer_check(context, workspace, "workspace"));
    }
    return check_overlaps(arguments, workspace, workspace_needed);
}
