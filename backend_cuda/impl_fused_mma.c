/* "cuda.fused_mma": the portable tensor-core prefill of fused_prefill.h as an implementation that plans can choose. */
#include "impl_fused_mma.h"
#include "cuda_backend.h"
#include "cuda_device.h"
#include "cuda_error.h"
#include "cuda_refusal.h"
#include "fused_prefill.h"

/* What book() decides. */
enum {
    PARAM_CHUNKS, /* offsets of scratch */
    PARAM_CARRY,
    PARAM_BASES,
    PARAM_RECORDS,
    PARAM_PACKED,
    PARAM_BOUND, /* most chunk slots */
    PARAM_WARPS,
    PARAM_STAGES
};

/* Records of a wave take no more than this unless the caller's cap is lower: enough work to hide a wave's start. */
#define DEFAULT_RECORD_BYTES ((size_t)256 << 20)

/* Rows are moved in 16-byte pieces. */
static bool check_rows(const gdn_layout *layout, const char *name, gdn_reason *reason)
{
    if (layout->alignment < 16) {
        return gdn_cuda_refuse(reason, "%s: alignment %u, needs 16", name, layout->alignment);
    }
    if (layout->row_stride % 8 != 0 || layout->token_stride % 8 != 0 || layout->head_stride % 8 != 0) {
        return gdn_cuda_refuse(reason, "%s: a stride is not a multiple of 8 elements", name);
    }
    return true;
}

/* Float16 has not the range for normalisation factors inside the products. */
static bool packs_qk(const gdn_problem *problem)
{
    return problem->q.dtype == GDN_DTYPE_F16 && problem->qk_norm != GDN_QK_NORM_NONE;
}

static int32_t stages_within(int32_t head_k_dim, int32_t warps, size_t shared_bytes)
{
    int32_t stages = 3;
    while (stages > 0 && gdn_fused_state_output_smem(head_k_dim, warps, stages) > shared_bytes) {
        stages--;
    }
    return stages;
}

/* The columns of V a block takes. More warps a block share loads but take longer over a chunk; fewer fill more
 * multiprocessors. Times are relative, a chunk's on an H200; with one stage nothing is loaded ahead. */
static void choose_blocks(const gdn_cuda_device *cuda, const gdn_problem *problem, int32_t *warps, int32_t *stages)
{
    static const struct {
        int32_t warps;
        int32_t time;
    } options[] = {{4, 19}, {2, 16}, {1, 15}};
    int64_t best = INT64_MAX;
    *warps = 0;
    *stages = 0;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const int32_t columns = 16 * options[i].warps;
        const int32_t fit = stages_within(problem->head_k_dim, options[i].warps, (size_t)cuda->shared_bytes_per_block);
        if (problem->head_v_dim % columns != 0 || fit == 0) {
            continue;
        }
        const int64_t blocks = problem->max_seqs * problem->num_v_heads * (problem->head_v_dim / columns);
        const int64_t rounds = (blocks + cuda->num_sms - 1) / cuda->num_sms;
        const int64_t time = rounds * options[i].time * (fit == 1 ? 2 : 1);
        if (time < best) {
            best = time;
            *warps = options[i].warps;
            *stages = fit;
        }
    }
}

static bool supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    const gdn_cuda_device *const cuda = gdn_cuda_device_of(device);
    if (cuda->compute_capability < 80) {
        return gdn_cuda_refuse(reason, "compute capability %d.%d, needs 8.0", cuda->compute_capability / 10,
                               cuda->compute_capability % 10);
    }
    if (!gdn_cuda_takes_16_bit_products(problem, reason)) {
        return false;
    }
    if (problem->head_k_dim != 64 && problem->head_k_dim != 128 && problem->head_k_dim != 256) {
        return gdn_cuda_refuse(reason, "head_k_dim %d, needs 64, 128 or 256", problem->head_k_dim);
    }
    if (problem->head_v_dim % 16 != 0) {
        return gdn_cuda_refuse(reason, "head_v_dim %d is not a multiple of 16", problem->head_v_dim);
    }
    if (!check_rows(&problem->q, "q", reason) || !check_rows(&problem->k, "k", reason) ||
        !check_rows(&problem->v, "v", reason) || !check_rows(&problem->o, "o", reason)) {
        return false;
    }
    const size_t shared = (size_t)cuda->shared_bytes_per_block;
    if (stages_within(problem->head_k_dim, 1, shared) == 0 ||
        gdn_fused_intra_smem(problem->head_k_dim, GDN_FUSED_MAX_HEADS_PER_BLOCK) > shared) {
        return gdn_cuda_refuse(reason, "head_k_dim %d needs more shared memory than a block can have here",
                               problem->head_k_dim);
    }
    /* 2^20 slots of 2^10 heads are far past any memory; it keeps grids within 31 bits. */
    if (problem->max_tokens / GDN_FUSED_CHUNK + problem->max_seqs > INT32_MAX / 2 ||
        problem->max_seqs * problem->num_v_heads > INT32_MAX / (problem->head_v_dim / 16)) {
        return gdn_cuda_refuse(reason, "max_tokens or max_seqs is too large");
    }
    return true;
}

static int64_t slot_bound(int64_t num_seqs, int64_t total_tokens)
{
    return total_tokens / GDN_FUSED_CHUNK + num_seqs;
}

static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    int32_t warps;
    int32_t stages;
    choose_blocks(gdn_cuda_device_of(device), problem, &warps, &stages);
    const int64_t bound = slot_bound(problem->max_seqs, problem->max_tokens);
    const size_t state_bytes = gdn_size_mul((size_t)problem->head_k_dim * (size_t)problem->head_v_dim * sizeof(float),
                                            (size_t)problem->num_v_heads);
    const size_t record_bytes = (size_t)problem->num_v_heads * GDN_FUSED_RECORD;
    const size_t packed_bytes =
        packs_qk(problem) ? (size_t)problem->num_k_heads * 2 * GDN_FUSED_CHUNK * (size_t)problem->head_k_dim * 2 : 0;
    const size_t slot_bytes = record_bytes + packed_bytes;
    gdn_ledger *const ledger = &choice->ledger;

    choice->chunk_size = GDN_FUSED_CHUNK;
    choice->param[PARAM_BOUND] = bound;
    choice->param[PARAM_WARPS] = warps;
    choice->param[PARAM_STAGES] = stages;
    choice->param[PARAM_CHUNKS] =
        (int64_t)gdn_ledger_book(ledger, "chunk table", gdn_size_mul((size_t)bound, sizeof(gdn_chunk)));
    choice->param[PARAM_CARRY] = (int64_t)gdn_ledger_book(ledger, "carried states", gdn_size_mul(2, state_bytes));
    if (problem->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        choice->param[PARAM_BASES] = (int64_t)gdn_ledger_book(ledger, "checkpoint bases",
                                                              gdn_size_mul((size_t)problem->max_seqs, sizeof(int64_t)));
    }

    int64_t wave = (int64_t)(DEFAULT_RECORD_BYTES / slot_bytes);
    if (max_workspace > 0) {
        /* Two pieces, each rounded up. */
        const size_t fixed = ledger->total + 2 * (size_t)GDN_WORKSPACE_ALIGNMENT;
        const int64_t most = max_workspace > fixed ? (int64_t)((max_workspace - fixed) / slot_bytes) : 0;
        if (most < 1) {
            return gdn_fail(GDN_ERROR_UNSUPPORTED, "max_workspace: %zu bytes, cuda.fused_mma needs at least %zu",
                            max_workspace, fixed + slot_bytes);
        }
        wave = most < wave ? most : wave;
    }
    wave = wave < 1 ? 1 : wave;
    wave = wave < bound ? wave : bound;
    choice->wave_chunks = wave;
    choice->param[PARAM_RECORDS] =
        (int64_t)gdn_ledger_book(ledger, "intra records", gdn_size_mul((size_t)wave, record_bytes));
    if (packed_bytes > 0) {
        choice->param[PARAM_PACKED] =
            (int64_t)gdn_ledger_book(ledger, "normalised q and k", gdn_size_mul((size_t)wave, packed_bytes));
    }
    return GDN_OK;
}

gdn_fused_state gdn_fused_state_of(const gdn_state_layout *layout, void *data)
{
    const int64_t strides = layout->slot_stride | layout->head_stride | layout->v_stride;
    gdn_fused_state state;
    state.data = data;
    state.dtype = (int32_t)layout->dtype;
    state.slot_stride = layout->slot_stride;
    state.head_stride = layout->head_stride;
    state.v_stride = layout->v_stride;
    state.k_stride = layout->k_stride;
    state.pairs = layout->k_stride == 1 && strides % 2 == 0 && layout->alignment >= 8;
    return state;
}

gdn_fused_operand gdn_fused_operand_of(const gdn_layout *layout, const void *data, int64_t tokens)
{
    gdn_fused_operand operand;
    operand.data = (void *)(uintptr_t)data;
    operand.dtype = (int32_t)layout->dtype;
    operand.row_stride = gdn_row_stride(layout, tokens);
    operand.token_stride = layout->token_stride;
    operand.head_stride = layout->head_stride;
    return operand;
}

static gdn_fused_prefill fused_of(const gdn_prefill_run *run)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const gdn_choice *const choice = run->choice;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    const int64_t rows = args->num_seqs > 0 ? args->total_tokens / args->num_seqs : 0;
    gdn_fused_prefill p = {0};
    p.num_k_heads = problem->num_k_heads;
    p.num_v_heads = problem->num_v_heads;
    p.head_k_dim = problem->head_k_dim;
    p.head_v_dim = problem->head_v_dim;
    p.tiled_heads = problem->head_map == GDN_HEAD_MAP_TILED;
    p.heads_per_group = problem->num_v_heads / problem->num_k_heads;
    p.scale = problem->scale;
    p.gate_form = (int32_t)problem->gate_form;
    p.beta_form = (int32_t)problem->beta_form;
    p.qk_norm = (int32_t)problem->qk_norm;
    p.beta_scale = problem->beta_scale;
    p.qk_norm_eps = problem->qk_norm_eps;
    p.equal_length = problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
    p.q = gdn_fused_operand_of(&problem->q, args->q, rows);
    p.k = gdn_fused_operand_of(&problem->k, args->k, rows);
    p.v = gdn_fused_operand_of(&problem->v, args->v, rows);
    p.o = gdn_fused_operand_of(&problem->o, args->o, rows);
    p.gate = gdn_fused_operand_of(&problem->gate, args->gate, rows);
    p.beta = gdn_fused_operand_of(&problem->beta, args->beta, rows);
    p.A_log = args->A_log;
    p.dt_bias = args->dt_bias;
    p.initial_state = gdn_fused_state_of(&problem->state, args->state);
    if (!pool) {
        p.final_state = gdn_fused_state_of(&problem->final_state, args->final_state);
    } else {
        p.final_state = gdn_fused_state_of(&problem->state, args->write_slots != NULL ? args->state : NULL);
        p.read_slots = args->read_slots;
        p.write_slots = args->write_slots;
        p.slots_dtype = (int32_t)problem->slots_dtype;
    }
    p.has_initial_state = args->has_initial_state;
    p.checkpoint_form = (int32_t)problem->checkpoint_form;
    p.checkpoint_interval = problem->checkpoint_interval;
    p.checkpoint_index_dtype = (int32_t)problem->checkpoint_index_dtype;
    p.num_checkpoints = args->num_checkpoints;
    p.checkpoint_positions = args->checkpoint_positions;
    p.checkpoint_offsets = args->checkpoint_offsets;
    p.checkpoint_bases = (int64_t *)(void *)(run->workspace + choice->param[PARAM_BASES]);
    p.checkpoints = gdn_fused_state_of(&problem->checkpoints, args->checkpoints);
    p.chunks = (const gdn_chunk *)(const void *)(run->workspace + choice->param[PARAM_CHUNKS]);
    p.records = run->workspace + choice->param[PARAM_RECORDS];
    p.packed_qk = packs_qk(problem) ? run->workspace + choice->param[PARAM_PACKED] : NULL;
    p.warps = (int32_t)choice->param[PARAM_WARPS];
    p.stages = (int32_t)choice->param[PARAM_STAGES];
    p.one = 1.0f;
    return p;
}

/* Value heads that share a block's products: as many as leave four blocks for each multiprocessor. */
static int32_t heads_per_block(const gdn_fused_prefill *p, int64_t slots, int32_t num_sms)
{
    int32_t heads =
        p->heads_per_group < GDN_FUSED_MAX_HEADS_PER_BLOCK ? p->heads_per_group : GDN_FUSED_MAX_HEADS_PER_BLOCK;
    while (heads > 1) {
        const int64_t groups = (p->heads_per_group + heads - 1) / heads;
        if (slots * p->num_k_heads * groups >= 4 * (int64_t)num_sms) {
            break;
        }
        heads = (heads + 1) / 2;
    }
    return heads;
}

static gdn_status launch(const gdn_device *device, const gdn_prefill_run *run)
{
    const gdn_prefill_args *const args = run->args;
    const gdn_choice *const choice = run->choice;
    struct CUstream_st *const stream = run->stream;
    gdn_fused_prefill p = fused_of(run);
    p.shared_bytes = (int32_t)gdn_cuda_device_of(device)->shared_bytes_per_block;
    const int64_t bound = slot_bound(args->num_seqs, args->total_tokens);
    int64_t used = 0;
    GDN_TRY(gdn_cuda_schedule(device, run, GDN_FUSED_CHUNK, (gdn_chunk *)(uintptr_t)p.chunks, bound, &used));
    if (p.checkpoint_form == GDN_CHECKPOINT_EVERY && args->num_seqs > 0) {
        gdn_fused_bases bases = {0};
        bases.cu_seqlens = args->cu_seqlens;
        bases.cu_seqlens_dtype = (int32_t)run->problem->cu_seqlens_dtype;
        bases.interval = p.checkpoint_interval;
        bases.row_length = args->total_tokens / args->num_seqs;
        bases.num_seqs = args->num_seqs;
        bases.total_tokens = args->total_tokens;
        bases.bases = p.checkpoint_bases;
        GDN_CUDA_TRY((cudaError_t)gdn_fused_bases_launch(&bases, stream));
    }
    float *const carry = (float *)(void *)(run->workspace + choice->param[PARAM_CARRY]);
    const int64_t carry_floats = (int64_t)p.num_v_heads * p.head_v_dim * p.head_k_dim;
    int64_t parity = 0;
    for (int64_t begin = 0; begin < used; begin += choice->wave_chunks) {
        const int64_t left = used - begin;
        p.wave_begin = begin;
        p.wave_slots = (int32_t)(left < choice->wave_chunks ? left : choice->wave_chunks);
        p.lanes = (int32_t)(args->num_seqs < p.wave_slots ? args->num_seqs : p.wave_slots);
        p.heads_per_block = heads_per_block(&p, p.wave_slots, gdn_cuda_device_of(device)->num_sms);
        p.carry_in = carry + parity * carry_floats;
        p.carry_out = carry + (1 - parity) * carry_floats;
        parity = 1 - parity;
        GDN_CUDA_TRY((cudaError_t)gdn_fused_intra_launch(&p, stream));
        GDN_CUDA_TRY((cudaError_t)gdn_fused_state_output_launch(&p, stream));
    }
    return GDN_OK;
}

static gdn_status prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    gdn_cuda_guard guard;
    GDN_TRY(gdn_cuda_enter(device, &guard));
    const gdn_status status = launch(device, run);
    gdn_cuda_leave(&guard);
    return status;
}

const gdn_implementation gdn_cuda_fused_mma = {
    .name = "cuda.fused_mma",
    .summary = "chunks of 64 on tensor cores (mma.sync): intra kernel, then state and output in one",
    .operation = GDN_OPERATION_PREFILL,
    .supports = supports,
    .book = book,
    .prefill = prefill,
};
