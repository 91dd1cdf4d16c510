/* The Hopper prefill as an implementation: a run's launches.
 *
 * A run is the schedule kernel (chunk table, metadata checks), then waves over the chunk table, each of them prep,
 * state_only and join where sequences may be cut into segments, and state_output. A wave is as many chunk slots as its
 * records have room for; the state of a sequence that a wave leaves unfinished is carried in float32, so a cut changes no
 * bit. Waves are not cut inside a segment: a kernel finds the cuts where there can be any.
 */
#include "sm90_prefill.h"

#include "../cuda_backend.h"
#include "../cuda_device.h"
#include "../cuda_error.h"
#include "../fused_prefill.h"
#include "prefill.h"
#include "sm90_form.h"
#include "sm90_workspace.h"
#include "tensor_map.h"

#include <string.h>

static gdn_sm90_rows rows_of(const gdn_layout *layout, const void *data, int64_t row_length)
{
    gdn_sm90_rows rows = {NULL, (int32_t)layout->dtype, gdn_row_stride(layout, row_length), layout->token_stride,
                          layout->head_stride};
    memcpy(&rows.data, &data, sizeof(rows.data)); /* one struct serves inputs and o */
    return rows;
}

static gdn_sm90_states states_of(const gdn_state_layout *layout, void *data)
{
    const bool even = layout->slot_stride % 2 == 0 && layout->head_stride % 2 == 0 && layout->v_stride % 2 == 0;
    const gdn_sm90_states states = {data,
                                    (int32_t)layout->dtype,
                                    layout->dtype == GDN_DTYPE_F32 && layout->k_stride == 1 && even &&
                                        layout->alignment >= 2 * sizeof(float),
                                    layout->slot_stride,
                                    layout->head_stride,
                                    layout->v_stride,
                                    layout->k_stride};
    return states;
}

/* Value heads of a key head that a block of prep works off together: as many as leave every multiprocessor its three
 * blocks. A head's bits do not depend on it. */
static int32_t heads_per_job(const gdn_problem *problem, int64_t slots, int32_t num_sms)
{
    const int32_t per_group = problem->num_v_heads / problem->num_k_heads;
    int32_t groups = (per_group + 3) / 4;
    while (groups < per_group && slots * problem->num_k_heads * groups < 3 * (int64_t)num_sms) {
        groups++;
    }
    return (per_group + groups - 1) / groups;
}

static gdn_status encode_maps(gdn_sm90_prefill *p, const gdn_prefill_run *run, int64_t tokens, int64_t rows)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const gdn_dtype dtype = problem->q.dtype;
    const struct {
        CUtensorMap *map;
        const char *name;
        const void *data;
        const gdn_layout *layout;
        int32_t heads, dim;
    } maps[] = {{&p->q_map, "q", args->q, &problem->q, problem->num_k_heads, problem->head_k_dim},
                {&p->k_map, "k", args->k, &problem->k, problem->num_k_heads, problem->head_k_dim},
                {&p->v_map, "v", args->v, &problem->v, problem->num_v_heads, problem->head_v_dim},
                {&p->o_map, "o", args->o, &problem->o, problem->num_v_heads, problem->head_v_dim}};
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        /* Without tokens a pointer may be NULL; nothing is read through the map then, but it must be a valid one. */
        const void *const data = maps[i].data != NULL ? maps[i].data : run->workspace;
        GDN_TRY(gdn_sm90_tensor_map(maps[i].map, maps[i].name, dtype, data, maps[i].dim, maps[i].heads, tokens, rows,
                                    maps[i].layout, gdn_row_stride(maps[i].layout, tokens)));
    }
    return GDN_OK;
}

static gdn_status fill(gdn_sm90_prefill *p, const gdn_prefill_run *run)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const bool rows = problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    const int64_t row_length = rows && args->num_seqs > 0 ? args->total_tokens / args->num_seqs : 0;
    memset(p, 0, sizeof(*p));
    GDN_TRY(encode_maps(p, run, rows ? row_length : args->total_tokens, rows ? args->num_seqs : 1));
    p->num_k_heads = problem->num_k_heads;
    p->num_v_heads = problem->num_v_heads;
    p->tiled_heads = problem->head_map == GDN_HEAD_MAP_TILED;
    p->heads_per_group = problem->num_v_heads / problem->num_k_heads;
    p->head_k_dim = problem->head_k_dim;
    p->v_tiles = problem->head_v_dim / GDN_SM90_TILE;
    p->any_dims = problem->head_k_dim != 128 || problem->head_v_dim != 128;
    p->scale = problem->scale;
    p->gate_form = (int32_t)problem->gate_form;
    p->beta_form = (int32_t)problem->beta_form;
    p->qk_norm = (int32_t)problem->qk_norm;
    p->beta_scale = problem->beta_scale;
    p->qk_norm_eps = problem->qk_norm_eps;
    p->equal_length = rows;
    p->gate = rows_of(&problem->gate, args->gate, row_length);
    p->beta = rows_of(&problem->beta, args->beta, row_length);
    p->o = rows_of(&problem->o, args->o, row_length);
    p->A_log = args->A_log;
    p->dt_bias = args->dt_bias;
    p->initial_state = states_of(&problem->state, args->state);
    if (pool) {
        p->final_state = states_of(&problem->state, args->write_slots != NULL ? args->state : NULL);
        p->read_slots = args->read_slots;
        p->write_slots = args->write_slots;
    } else {
        p->final_state = states_of(&problem->final_state, args->final_state);
    }
    p->slots_dtype = (int32_t)problem->slots_dtype;
    p->has_initial_state = args->has_initial_state;
    p->num_seqs = (int32_t)args->num_seqs;
    p->cu_seqlens = rows ? NULL : args->cu_seqlens;
    p->cu_seqlens_dtype = (int32_t)problem->cu_seqlens_dtype;
    p->row_length = row_length;
    return GDN_OK;
}

static gdn_status check_launch(int error, const char *kernel)
{
    return error == 0 ? GDN_OK : gdn_cuda_fail((cudaError_t)error, kernel);
}

/* Where each sequence's checkpoints start. */
static gdn_status set_checkpoints(gdn_sm90_prefill *p, const gdn_prefill_run *run)
{
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    if (problem->checkpoint_form == GDN_CHECKPOINT_NONE || args->checkpoints == NULL) {
        return GDN_OK;
    }
    int64_t *const bases = (int64_t *)(void *)(run->workspace + run->choice->param[PARAM_BASES]);
    const gdn_fused_bases wanted = {p->cu_seqlens, p->cu_seqlens_dtype, problem->checkpoint_interval,
                                    p->row_length, args->num_seqs,      args->total_tokens,
                                    bases};
    p->checkpoints = states_of(&problem->checkpoints, args->checkpoints);
    p->num_checkpoints = args->num_checkpoints;
    p->any_dims = p->any_dims || gdn_sm90_splits_chunks(problem);
    if (problem->checkpoint_form == GDN_CHECKPOINT_AT) {
        p->checkpoint_positions = args->checkpoint_positions;
        p->checkpoint_offsets = args->checkpoint_offsets;
        p->checkpoint_index_dtype = (int32_t)problem->checkpoint_index_dtype;
        return GDN_OK;
    }
    p->checkpoint_chunks = p->any_dims ? 0 : problem->checkpoint_interval / GDN_SM90_CHUNK;
    p->checkpoint_interval = problem->checkpoint_interval;
    p->checkpoint_bases = bases;
    return check_launch(gdn_fused_bases_launch(&wanted, run->stream), "sm90 checkpoint bases");
}

static gdn_status launch_wave(const gdn_sm90_prefill *p, const gdn_prefill_run *run, int32_t num_sms)
{
    const int32_t dtype = (int32_t)run->problem->q.dtype;
    GDN_TRY(check_launch(gdn_sm90_prep_launch(p, dtype, num_sms, run->stream), "sm90 prep"));
    if (p->max_segments > 1) {
        GDN_TRY(check_launch(gdn_sm90_state_only_launch(p, dtype, num_sms, run->stream), "sm90 state_only"));
        if (run->choice->param[PARAM_MAX_SEGMENTS] > 1) {
            GDN_TRY(check_launch(gdn_sm90_join_launch(p, num_sms, run->stream), "sm90 join"));
        }
    }
    return check_launch(gdn_sm90_state_output_launch(p, dtype, num_sms, run->stream), "sm90 state_output");
}

/* Checkpoints inside a chunk: the state before the chunk, which their entries have, runs over its first tokens. */
static gdn_status run_checkpoints(const gdn_sm90_prefill *waves, const gdn_prefill_run *run, int64_t slots,
                                  int32_t num_sms)
{
    gdn_sm90_prefill p = *waves;
    const gdn_choice *const choice = run->choice;
    const int32_t dtype = (int32_t)run->problem->q.dtype;
    gdn_chunk *const table = (gdn_chunk *)(run->workspace + choice->param[PARAM_CHECKPOINT_CHUNKS]);
    GDN_TRY(check_launch(gdn_sm90_checkpoint_chunks_launch(&p, slots, table, run->stream), "sm90 checkpoint_chunks"));
    p.checkpoint_pass = 1;
    p.initial_state = p.final_state = p.checkpoints;
    p.read_slots = p.write_slots = NULL;
    p.has_initial_state = NULL;
    p.chunks = table;
    p.wave = NULL;
    for (p.wave_begin = 0; p.wave_begin < p.num_checkpoints; p.wave_begin += p.wave_slots) {
        const int64_t left = p.num_checkpoints - p.wave_begin;
        p.wave_slots = (int32_t)(left < choice->wave_chunks ? left : choice->wave_chunks);
        p.heads_per_job = heads_per_job(run->problem, p.wave_slots, num_sms);
        GDN_TRY(check_launch(gdn_sm90_prep_launch(&p, dtype, num_sms, run->stream), "sm90 prep"));
        GDN_TRY(check_launch(gdn_sm90_state_only_launch(&p, dtype, num_sms, run->stream), "sm90 state_only"));
    }
    return GDN_OK;
}

static gdn_status run_waves(const gdn_device *device, const gdn_prefill_run *run)
{
    const gdn_choice *const choice = run->choice;
    const gdn_problem *const problem = run->problem;
    const int32_t num_sms = gdn_cuda_device_of(device)->num_sms;
    gdn_chunk *const chunks = (gdn_chunk *)(run->workspace + choice->param[PARAM_CHUNKS]);
    float *const carry = (float *)(run->workspace + choice->param[PARAM_CARRY]);
    const size_t carry_floats =
        (size_t)problem->num_v_heads * (size_t)problem->head_k_dim * (size_t)problem->head_v_dim;
    const int64_t slots = gdn_sm90_chunk_bound(run->args->total_tokens, run->args->num_seqs);
    int64_t cleared = 0;
    gdn_sm90_prefill p;
    if (run->args->num_seqs == 0) {
        return gdn_cuda_schedule(device, run, GDN_SM90_CHUNK, chunks, gdn_sm90_table_slots(slots, num_sms), &cleared);
    }
    GDN_TRY(fill(&p, run));
    GDN_TRY(set_checkpoints(&p, run));
    const bool one_wave = slots <= choice->wave_chunks;
    p.packed_qk = choice->param[PARAM_PACKED] != 0 ? run->workspace + choice->param[PARAM_PACKED] : NULL;
    p.chunks = chunks;
    p.next_item = &chunks[slots].index;
    p.passed = chunks + slots + 1 + num_sms;
    p.runs = (gdn_sm90_run *)(run->workspace + choice->param[PARAM_RUNS]);
    p.taken = (uint32_t *)(run->workspace + choice->param[PARAM_TAKEN]);
    p.records = run->workspace + choice->param[PARAM_RECORDS];
    const bool fused = gdn_sm90_choose_form(&p, run, slots, num_sms);
    if (p.pieces > 0 && gdn_sm90_in_place(run)) {
        p.reads = chunks + slots + 1;
    }
    if (p.planned) {
        gdn_cuda_describe(run, GDN_SM90_CHUNK, &p.schedule);
    } else {
        GDN_TRY(gdn_cuda_schedule(device, run, GDN_SM90_CHUNK, chunks, gdn_sm90_table_slots(slots, num_sms), &cleared));
    }
    if (fused) {
        p.wave_slots = (int32_t)slots;
        p.overlap =
            gdn_cuda_device_of(device)->driver_version >= 12030; /* those before do not know it in captured graphs */
        return check_launch(gdn_sm90_fused_launch(&p, (int32_t)problem->q.dtype, num_sms, run->stream), "sm90 fused");
    }
    p.wave_slots = (int32_t)(one_wave ? slots : choice->wave_chunks);
    p.heads_per_job = heads_per_job(problem, p.wave_slots, num_sms);

    const bool planned = !one_wave && choice->param[PARAM_MAX_SEGMENTS] > 1;
    const int64_t count = gdn_sm90_wave_count(slots, choice->wave_chunks, planned);
    gdn_sm90_wave *const waves = (gdn_sm90_wave *)(run->workspace + choice->param[PARAM_WAVES]);
    if (planned) {
        GDN_TRY(
            check_launch(gdn_sm90_plan_waves_launch(&p, slots, waves, (int32_t)count, run->stream), "sm90 plan_waves"));
    }
    for (int64_t wave = 0; wave < count; wave++) {
        p.carry_in = carry + (size_t)(wave % 2) * carry_floats;
        p.carry_out = carry + (size_t)((wave + 1) % 2) * carry_floats;
        if (planned) {
            p.wave = waves + wave;
        } else {
            const int64_t left = slots - p.wave_begin;
            p.wave_slots = (int32_t)(left < choice->wave_chunks ? left : choice->wave_chunks);
        }
        GDN_TRY(launch_wave(&p, run, num_sms));
        p.wave_begin += choice->wave_chunks;
    }
    return p.checkpoints.data != NULL && gdn_sm90_splits_chunks(problem) && p.num_checkpoints > 0
               ? run_checkpoints(&p, run, slots, num_sms)
               : GDN_OK;
}

static gdn_status prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = run_waves(device, run);
    }
    gdn_cuda_leave(&guard);
    return status;
}

const gdn_implementation gdn_cuda_sm90_prefill = {
    .name = "cuda.sm90",
    .summary = "Hopper: wgmma and tensor copies, warp-specialised, 64-token chunks",
    .operation = GDN_OPERATION_PREFILL,
    .supports = gdn_sm90_supports,
    .book = gdn_sm90_book,
    .prefill = prefill,
};
