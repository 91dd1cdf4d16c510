/* Problems and arguments of any values over memory that is really there: a call either runs within it or is refused with one
 * line and has written nothing. The sanitizers watch the rest.
 *
 * Every pointer lies in one arena, far enough from its end for whatever the problem may reach; a problem that reaches
 * further only makes a plan. */
#include <gdn/gdn.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 1 << 21, REACH_BYTES = 1 << 18, WORKSPACE_BYTES = 1 << 22 };

static unsigned char *arena, *before, *workspace;
static gdn_context *context;

typedef struct fuzz_input {
    const uint8_t *data;
    size_t size;
} fuzz_input;

static uint64_t take(fuzz_input *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && in->size > 0; i++) {
        value = value << 8 | *in->data++;
        in->size--;
    }
    return value;
}

/* Small numbers mostly, and the ones that break things. */
static int64_t take_number(fuzz_input *in)
{
    static const int64_t odd[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, (int64_t)1 << 58, 1025, 4097};
    const uint64_t kind = take(in, 1);
    if (kind < 10) {
        return odd[kind];
    }
    return kind < 200 ? (int64_t)take(in, 1) : (int64_t)(int16_t)take(in, 2);
}

/* One of the fields that every layout has: its type, its alignment, one of its strides. */
static void change_one(fuzz_input *in, gdn_dtype *dtype, uint32_t *alignment, int64_t *const *strides,
                       uint64_t num_strides)
{
    const uint64_t which = take(in, 1) % (2 + num_strides);
    if (which == 0) {
        *dtype = (gdn_dtype)take_number(in);
    } else if (which == 1) {
        *alignment = (uint32_t)take_number(in);
    } else {
        *strides[which - 2] = take_number(in);
    }
}

static void change_layout(gdn_layout *layout, fuzz_input *in)
{
    int64_t *const strides[] = {&layout->row_stride, &layout->token_stride, &layout->head_stride};
    change_one(in, &layout->dtype, &layout->alignment, strides, 3);
}

static void change_states(gdn_state_layout *layout, fuzz_input *in)
{
    int64_t *const strides[] = {&layout->slot_stride, &layout->head_stride, &layout->v_stride, &layout->k_stride};
    change_one(in, &layout->dtype, &layout->alignment, strides, 4);
}

static void change_field(gdn_problem *p, fuzz_input *in)
{
    gdn_layout *const layouts[] = {&p->q, &p->k, &p->v, &p->o, &p->gate, &p->beta};
    gdn_state_layout *const states[] = {&p->state, &p->final_state, &p->checkpoints};
    int32_t *const numbers[] = {&p->num_k_heads,    &p->num_v_heads,         &p->head_k_dim,
                                &p->head_v_dim,     &p->chunk_size,          &p->num_segments,
                                &p->tokens_per_row, &p->checkpoint_interval, &p->check};
    int64_t *const maxima[] = {&p->max_seqs, &p->max_tokens, &p->max_seqlen, &p->max_checkpoints};
    const uint64_t which = take(in, 1) % 48;
    if (which < 6) {
        change_layout(layouts[which], in);
    } else if (which < 9) {
        change_states(states[which - 6], in);
    } else if (which < 18) {
        *numbers[which - 9] = (int32_t)take_number(in);
    } else if (which < 22) {
        *maxima[which - 18] = take_number(in);
    } else if (which == 22) {
        p->max_workspace = (size_t)take_number(in) * 1024;
    } else if (which == 23) {
        const uint32_t bits = (uint32_t)take(in, 4);
        memcpy(&p->scale, &bits, sizeof(bits));
    } else if (which == 24) {
        const uint32_t bits = (uint32_t)take(in, 4);
        memcpy(&p->qk_norm_eps, &bits, sizeof(bits));
    } else if (which == 25) {
        p->beta_scale = (float)take_number(in);
    } else if (which < 28) {
        p->operation = (gdn_operation)(take_number(in) % 3);
    } else if (which < 30) {
        p->gate_form = (gdn_gate_form)(take_number(in) % 4);
    } else if (which < 32) {
        p->beta_form = (gdn_beta_form)(take_number(in) % 3);
    } else if (which < 34) {
        p->qk_norm = (gdn_qk_norm)(take_number(in) % 4);
    } else if (which < 36) {
        p->state_form = (gdn_state_form)(take_number(in) % 3);
    } else if (which < 38) {
        p->checkpoint_form = (gdn_checkpoint_form)(take_number(in) % 4);
    } else if (which < 40) {
        p->cu_seqlens_dtype = (gdn_dtype)(take_number(in) % 8);
    } else if (which < 42) {
        p->slots_dtype = (gdn_dtype)(take_number(in) % 8);
    } else if (which == 42) {
        p->checkpoint_index_dtype = (gdn_dtype)(take_number(in) % 8);
    } else if (which == 43) {
        p->head_map = (gdn_head_map)(take_number(in) % 3);
    } else if (which == 44) {
        p->numerics = (gdn_numerics)(take_number(in) % 5);
    } else if (which == 45) {
        p->struct_size = (size_t)take_number(in);
    } else {
        const gdn_dtype dtype = (gdn_dtype)(1 + take(in, 1) % 3);
        p->q.dtype = p->k.dtype = p->v.dtype = p->o.dtype = dtype;
    }
}

static int is_far(int64_t stride)
{
    return stride < 0 || stride > REACH_BYTES;
}

/* Whether an argument could reach further than the arena has room for. */
static int reaches_far(const gdn_problem *p)
{
    const int64_t tokens = p->operation == GDN_OPERATION_DECODE ? p->tokens_per_row : p->max_tokens;
    const gdn_layout *const layouts[] = {&p->q, &p->k, &p->v, &p->o, &p->gate, &p->beta};
    const gdn_state_layout *const states[] = {&p->state, &p->final_state, &p->checkpoints};
    int64_t most = 0;
    if (p->max_seqs > 64 || tokens > 512 || p->num_v_heads > 64 || p->head_k_dim > 256 || p->head_v_dim > 256 ||
        p->max_checkpoints > 64 || p->num_segments > 64) {
        return 1;
    }
    for (int i = 0; i < 6; i++) {
        const gdn_layout *const l = layouts[i];
        if (is_far(l->row_stride) || is_far(l->token_stride) || is_far(l->head_stride)) {
            return 1;
        }
        const int64_t reach = p->max_seqs * l->row_stride + p->max_seqs * tokens * l->token_stride +
                              p->num_v_heads * l->head_stride + 1024;
        most = reach > most ? reach : most;
    }
    for (int i = 0; i < 3; i++) {
        const gdn_state_layout *const l = states[i];
        if (is_far(l->slot_stride) || is_far(l->head_stride) || is_far(l->v_stride) || is_far(l->k_stride)) {
            return 1;
        }
        /* Runs have at most 16 slots, 64 checkpoints and max_seqs dense states. */
        const int64_t reach = 64 * l->slot_stride + p->num_v_heads * l->head_stride + p->head_v_dim * l->v_stride +
                              p->head_k_dim * l->k_stride;
        most = reach > most ? reach : most;
    }
    return most * 4 > REACH_BYTES;
}

static void *take_pointer(fuzz_input *in)
{
    const uint64_t kind = take(in, 1);
    if (kind == 0) {
        return NULL;
    }
    /* Multiples of 8 KiB keep most arguments apart; the low bits make some meet, and some unaligned. */
    const size_t places = (ARENA_BYTES - REACH_BYTES) / 8192;
    return arena + (kind % places) * 8192 + (kind > 240 ? take(in, 1) : 0);
}

/* Writes a few indices where `at` points. */
static void put_indices(fuzz_input *in, const void *at, gdn_dtype dtype, int count)
{
    for (int i = 0; at != NULL && i < count; i++) {
        const int64_t value = take_number(in);
        unsigned char *const place = (unsigned char *)(uintptr_t)at;
        if (dtype == GDN_DTYPE_I32) {
            const int32_t narrow = (int32_t)value;
            memcpy(place + i * 4, &narrow, sizeof(narrow));
        } else {
            memcpy(place + i * 8, &value, sizeof(value));
        }
    }
}

static void take_sequences(gdn_prefill_args *args, const gdn_problem *p, fuzz_input *in)
{
    if (p->cu_seqlens_dtype != GDN_DTYPE_NONE) {
        args->cu_seqlens = take_pointer(in);
        put_indices(in, args->cu_seqlens, p->cu_seqlens_dtype, 5);
    }
    if (p->checkpoint_form != GDN_CHECKPOINT_NONE) {
        args->checkpoints = take_pointer(in);
        args->num_checkpoints = take_number(in);
    }
    if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
        args->checkpoint_positions = take_pointer(in);
        args->checkpoint_offsets = take_pointer(in);
        put_indices(in, args->checkpoint_positions, p->checkpoint_index_dtype, 4);
        put_indices(in, args->checkpoint_offsets, p->checkpoint_index_dtype, 5);
    }
}

/* Fills the arguments of both operations, which have most in common, and calls the plan's. */
static void run(const gdn_plan *plan, const gdn_problem *p, fuzz_input *in)
{
    const int is_prefill = p->operation == GDN_OPERATION_PREFILL;
    gdn_prefill_args prefill;
    gdn_decode_args decode;
    if (gdn_prefill_args_init(&prefill) != GDN_OK || gdn_decode_args_init(&decode) != GDN_OK) {
        abort();
    }
    prefill.q = decode.q = take_pointer(in);
    prefill.k = decode.k = take_pointer(in);
    prefill.v = decode.v = take_pointer(in);
    prefill.o = decode.o = take_pointer(in);
    prefill.gate = decode.gate = take_pointer(in);
    prefill.beta = decode.beta = take_pointer(in);
    prefill.state = decode.state = take_pointer(in);
    if (p->gate_form == GDN_GATE_RAW || take(in, 1) == 1) {
        prefill.A_log = decode.A_log = take_pointer(in);
        prefill.dt_bias = decode.dt_bias = take_pointer(in);
    }
    if (p->state_form == GDN_STATE_POOL) {
        prefill.read_slots = decode.read_slots = take_pointer(in);
        prefill.write_slots = decode.write_slots = take_pointer(in);
        decode.token_slots = is_prefill ? NULL : take_pointer(in);
        put_indices(in, decode.read_slots, p->slots_dtype, 4);
        put_indices(in, decode.write_slots, p->slots_dtype, 4);
        put_indices(in, decode.token_slots, p->slots_dtype, 8);
    } else {
        prefill.final_state = decode.final_state = take_pointer(in);
    }
    if (is_prefill) {
        take_sequences(&prefill, p, in);
    } else {
        decode.num_tokens = take_pointer(in);
        put_indices(in, decode.num_tokens, GDN_DTYPE_I32, 4);
    }
    prefill.num_seqs = decode.num_rows = take_number(in);
    prefill.total_tokens = is_prefill ? take_number(in) : 0;
    const int64_t slots = take_number(in);
    prefill.num_slots = decode.num_slots = slots > 16 ? 16 : slots;
    prefill.has_initial_state = decode.has_initial_state = take_pointer(in);
    prefill.workspace = decode.workspace = workspace + (take(in, 1) == 0);
    prefill.workspace_size = decode.workspace_size = take(in, 1) == 0 ? (size_t)take_number(in) : WORKSPACE_BYTES - 256;
    memcpy(before, arena, ARENA_BYTES);
    const gdn_status status = is_prefill ? gdn_prefill(plan, &prefill) : gdn_decode(plan, &decode);
    if (status != GDN_OK && memcmp(before, arena, ARENA_BYTES) != 0) {
        abort();
    }
}

static void set_up(void)
{
    arena = aligned_alloc(4096, ARENA_BYTES);
    before = malloc(ARENA_BYTES);
    workspace = aligned_alloc(GDN_WORKSPACE_ALIGNMENT, WORKSPACE_BYTES);
    gdn_context_options options;
    if (arena == NULL || before == NULL || workspace == NULL || gdn_context_options_init(&options) != GDN_OK) {
        abort();
    }
    options.backend = "cpu";
    options.num_threads = 1;
    if (gdn_context_create(&context, &options) != GDN_OK) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (context == NULL) {
        set_up();
    }
    fuzz_input in = {data, size};
    /* A struct_size that says more than the library knows must be backed by memory. */
    struct {
        gdn_problem problem;
        unsigned char later_fields[8192];
    } larger = {0};
    gdn_problem *const p = &larger.problem;
    if (gdn_problem_init(p, 1, 2, 16, 16) != GDN_OK) {
        abort();
    }
    p->max_seqs = 4;
    p->max_tokens = 64;
    const uint64_t changes = take(&in, 1) % 12;
    for (uint64_t i = 0; i < changes; i++) {
        change_field(p, &in);
    }
    gdn_plan *plan = NULL;
    const gdn_status status = gdn_plan_create(&plan, context, p);
    if (status != GDN_OK) {
        if (plan != NULL || gdn_last_error()[0] == '\0' || strchr(gdn_last_error(), '\n') != NULL) {
            abort();
        }
        return 0;
    }
    if (!reaches_far(p) && gdn_plan_workspace_size(plan) <= WORKSPACE_BYTES - 256) {
        memset(arena, 0, ARENA_BYTES);
        run(plan, p, &in);
    }
    gdn_plan_destroy(&plan);
    return 0;
}
