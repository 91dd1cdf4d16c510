/* "cuda.decode": decode.h as an implementation that plans can choose. It takes every valid decode problem. */
#include "impl_decode.h"

#include "cuda_device.h"
#include "cuda_error.h"
#include "cuda_refusal.h"
#include "decode.h"
#include "impl_fused_mma.h"

/* Room for the tokens whose q and k a block of the general kernel keeps at once. */
#define GROUP_FLOATS 6144

/* Whether an operand's rows are whole 16-byte pieces, wherever a row, token or head starts. */
static bool in_pieces(const gdn_layout *layout)
{
    const int64_t per_piece = layout->dtype == GDN_DTYPE_F32 ? 4 : 8;
    return layout->alignment >= 16 && layout->row_stride % per_piece == 0 && layout->token_stride % per_piece == 0 &&
           layout->head_stride % per_piece == 0;
}

static bool in_columns(const gdn_problem *problem)
{
    const gdn_fused_state state = gdn_fused_state_of(&problem->state, NULL);
    const gdn_fused_state final_state = gdn_fused_state_of(&problem->final_state, NULL);
    const gdn_decode_layout layout =
        gdn_decode_layout_of(problem->head_k_dim, problem->head_v_dim, &state, problem->state.alignment);
    if (!in_pieces(&problem->q) || !in_pieces(&problem->k) || layout == GDN_DECODE_ANY) {
        return false;
    }
    return problem->state_form == GDN_STATE_POOL ||
           (final_state.dtype == state.dtype &&
            gdn_decode_layout_of(problem->head_k_dim, problem->head_v_dim, &final_state,
                                 problem->final_state.alignment) == layout);
}

static bool supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    const int64_t blocks_per_row = (int64_t)problem->num_v_heads * (problem->head_v_dim / GDN_DECODE_LEAST_COLUMNS + 1);
    (void)device;
    if (problem->max_seqs > (INT32_MAX - 1) / blocks_per_row) {
        return gdn_cuda_refuse(reason, "max_seqs %lld needs more than 2^31 blocks", (long long)problem->max_seqs);
    }
    return true;
}

/* The workspace is the fault word alone, which core has booked. */
static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    (void)device;
    (void)problem;
    (void)max_workspace;
    choice->chunk_size = 0;
    return GDN_OK;
}

/* Before 12.3, drivers did not know programmatic dependent launch in captured graphs. */
static bool can_overlap(const gdn_device *device)
{
    const gdn_cuda_device *const cuda = gdn_cuda_device_of(device);
    return cuda->compute_capability >= 90 && cuda->driver_version >= 12030;
}

static gdn_decode_params params_of(const gdn_decode_run *run)
{
    const gdn_problem *const problem = run->problem;
    const gdn_decode_args *const args = run->args;
    const int32_t T = problem->tokens_per_row;
    gdn_decode_params p = {0};
    p.num_rows = args->num_rows;
    p.tokens_per_row = T;
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
    p.q = gdn_fused_operand_of(&problem->q, args->q, T);
    p.k = gdn_fused_operand_of(&problem->k, args->k, T);
    p.v = gdn_fused_operand_of(&problem->v, args->v, T);
    p.o = gdn_fused_operand_of(&problem->o, args->o, T);
    p.gate = gdn_fused_operand_of(&problem->gate, args->gate, T);
    p.beta = gdn_fused_operand_of(&problem->beta, args->beta, T);
    p.A_log = args->A_log;
    p.dt_bias = args->dt_bias;
    p.num_tokens = args->num_tokens;
    p.initial_state = gdn_fused_state_of(&problem->state, args->state);
    if (problem->state_form == GDN_STATE_POOL) {
        p.final_state = gdn_fused_state_of(&problem->state, args->write_slots != NULL ? args->state : NULL);
        p.token_states = gdn_fused_state_of(&problem->state, args->state);
        p.read_slots = args->read_slots;
        p.write_slots = args->write_slots;
        p.token_slots = args->token_slots;
        p.slots_dtype = (int32_t)problem->slots_dtype;
        p.num_slots = args->num_slots;
    } else {
        p.final_state = gdn_fused_state_of(&problem->final_state, args->final_state);
    }
    p.has_initial_state = args->has_initial_state;
    p.fault = (gdn_metadata_fault *)(void *)run->workspace;
    p.checked = problem->check != 0;
    p.group = GROUP_FLOATS / (2 * p.head_k_dim + 4 + GDN_DECODE_MAX_COLUMNS);
    p.group = p.group < T ? p.group : T;
    return p;
}

static gdn_status launch(const gdn_device *device, const gdn_decode_run *run)
{
    struct CUstream_st *const stream = run->stream;
    gdn_decode_params p = params_of(run);
    p.num_sms = gdn_cuda_device_of(device)->num_sms;
    p.l2_bytes = gdn_cuda_device_of(device)->l2_bytes;
    p.overlap = can_overlap(device);
    if (p.checked) {
        GDN_CUDA_TRY((cudaError_t)gdn_decode_check_launch(&p, stream));
    }
    if (in_columns(run->problem) && gdn_decode_columns_fit(&p)) {
        GDN_CUDA_TRY((cudaError_t)gdn_decode_columns_launch(&p, stream));
    } else {
        p.columns = p.head_k_dim <= 256 ? 32 : p.head_k_dim <= 512 ? 16 : 8;
        while (p.columns > 8 && p.columns / 2 >= p.head_v_dim) {
            p.columns /= 2;
        }
        GDN_CUDA_TRY((cudaError_t)gdn_decode_shared_launch(&p, stream));
    }
    if (p.checked) {
        GDN_CUDA_TRY((cudaError_t)gdn_decode_report_launch(&p, stream));
    }
    return GDN_OK;
}

static gdn_status decode(const gdn_device *device, const gdn_decode_run *run)
{
    gdn_cuda_guard guard;
    GDN_TRY(gdn_cuda_enter(device, &guard));
    const gdn_status status = launch(device, run);
    gdn_cuda_leave(&guard);
    return status;
}

const gdn_implementation gdn_cuda_decode = {
    .name = "cuda.decode",
    .summary = "one kernel: gates, norms and the state update, for states in 16-byte pieces or for any",
    .operation = GDN_OPERATION_DECODE,
    .supports = supports,
    .book = book,
    .decode = decode,
};
