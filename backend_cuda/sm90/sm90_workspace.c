/* What the Hopper prefill books of a workspace. */
#include "sm90_workspace.h"

#include "../cuda_device.h"
#include "prefill.h"

/* Without a cap of the caller's, records take what is left of this. */
#define DEFAULT_WORKSPACE ((size_t)256 << 20)

int64_t gdn_sm90_chunk_bound(int64_t tokens, int64_t seqs)
{
    return tokens / GDN_SM90_CHUNK + seqs;
}

int64_t gdn_sm90_table_slots(int64_t bound, int32_t num_sms)
{
    return bound + 1 + 2 * (int64_t)num_sms;
}

int32_t gdn_sm90_max_chunks(const gdn_problem *problem)
{
    const int64_t tokens = problem->max_seqlen > 0 && problem->max_seqlen < problem->max_tokens ? problem->max_seqlen
                                                                                                : problem->max_tokens;
    return (int32_t)((tokens + GDN_SM90_CHUNK - 1) / GDN_SM90_CHUNK);
}

bool gdn_sm90_splits_chunks(const gdn_problem *problem)
{
    return problem->checkpoint_form == GDN_CHECKPOINT_AT ||
           (problem->checkpoint_form == GDN_CHECKPOINT_EVERY && problem->checkpoint_interval % GDN_SM90_CHUNK != 0);
}

int64_t gdn_sm90_wave_count(int64_t slots, int64_t wave_slots, bool segments)
{
    const int64_t least = segments ? wave_slots - GDN_SM90_MAX_SEGMENT + 1 : wave_slots;
    return slots <= wave_slots ? 1 : (slots + least - 1) / least;
}

gdn_status gdn_sm90_book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    gdn_ledger *const ledger = &choice->ledger;
    const int32_t heads = problem->num_v_heads;
    const int64_t bound = gdn_sm90_chunk_bound(problem->max_tokens, problem->max_seqs);
    const int32_t chunks = gdn_sm90_max_chunks(problem);
    /* Of half the multiprocessors' blocks a sequence of two halves must leave room for its own. */
    const int64_t both_halves = 2 * (int64_t)heads * (problem->head_v_dim / GDN_SM90_TILE); /* blocks */
    const int32_t num_sms = gdn_cuda_device_of(device)->num_sms;
    const bool halves = problem->num_segments == 0 && both_halves <= num_sms && chunks >= 2 * GDN_SM90_MIN_HALF;
    /* E has the form of a state: where V is K, blocks of both are alike. */
    const bool may_cut = problem->num_segments == 0 && problem->head_k_dim == problem->head_v_dim;
    const int32_t with_E = may_cut ? gdn_sm90_most_segments(chunks, heads, problem->head_k_dim) : 1;
    const bool cut = with_E > 1 || halves;

    const size_t state = (size_t)problem->head_k_dim * (size_t)problem->head_v_dim * sizeof(float);
    /* Normalisation is folded into factors, for which float16 has not the range: it packs q and k instead. */
    const bool pack = problem->q.dtype == GDN_DTYPE_F16 && problem->qk_norm != GDN_QK_NORM_NONE;
    const size_t packed =
        pack ? gdn_size_mul((size_t)problem->num_k_heads, GDN_SM90_PACKED_BYTES((size_t)problem->head_k_dim)) : 0;
    const size_t records = gdn_size_mul((size_t)heads, gdn_sm90_record_bytes(problem->head_k_dim));
    const size_t record = records + packed; /* of a slot */
    const size_t entry = gdn_size_mul((size_t)heads, state); /* F, or E, of one segment */
    /* Segments with E have entries by slots, two halves by sequences. */
    const size_t halved = (size_t)(num_sms / both_halves);
    const size_t own_entries = !cut ? 0 : with_E > 1 ? 1 : halved;
    const size_t slot_entries = with_E > 1 ? 1 : 0; /* in GDN_SM90_MIN_SEGMENT slots */
    choice->chunk_size = GDN_SM90_CHUNK;
    choice->param[PARAM_MAX_SEGMENTS] = with_E;
    choice->param[PARAM_HALVES] = halves;
    choice->param[PARAM_CHUNKS] = (int64_t)gdn_ledger_book(
        ledger, "chunk table", gdn_size_mul((size_t)gdn_sm90_table_slots(bound, num_sms), sizeof(gdn_chunk)));
    choice->param[PARAM_RUNS] =
        (int64_t)gdn_ledger_book(ledger, "runs", gdn_size_mul((size_t)problem->max_seqs, sizeof(gdn_sm90_run)));
    choice->param[PARAM_TAKEN] = (int64_t)gdn_ledger_book(ledger, "items taken", 2 * sizeof(uint32_t));
    if (problem->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        choice->param[PARAM_BASES] = (int64_t)gdn_ledger_book(ledger, "checkpoint bases",
                                                              gdn_size_mul((size_t)problem->max_seqs, sizeof(int64_t)));
    }
    if (gdn_sm90_splits_chunks(problem)) {
        choice->param[PARAM_CHECKPOINT_CHUNKS] = (int64_t)gdn_ledger_book(
            ledger, "checkpoint chunks", gdn_size_mul((size_t)problem->max_checkpoints, sizeof(gdn_chunk)));
    }
    choice->param[PARAM_PIECES] =
        (int64_t)gdn_ledger_book(ledger, "pieces", gdn_size_mul((size_t)num_sms, GDN_SM90_PIECE_BYTES));

    /* States between waves, those of segments that have no entries by slots and, in runs of one wave, between blocks that have parts of
     * an item, in the place of the others: one a half of V, or a multiprocessor, where there are several sequences or more halves than
     * multiprocessors. */
    const size_t cap = max_workspace > 0 ? max_workspace : DEFAULT_WORKSPACE;
    const int64_t all_halves = 2 * heads * problem->max_seqs; /* of V, of all sequences */
    const size_t carried = gdn_size_mul(2, entry), own = gdn_size_mul(2 * own_entries, entry);
    const size_t passed = (size_t)(all_halves < num_sms ? all_halves : num_sms) * GDN_SM90_PASSED_BYTES;
    const size_t alone = with_E > 1 ? carried : carried + own, most = alone > passed ? alone : passed;
    const size_t in_one_wave = ledger->total + most + gdn_size_mul((size_t)bound, record) + 4 * GDN_WORKSPACE_ALIGNMENT;
    const bool passes = problem->head_k_dim == 128 && problem->head_v_dim == 128 && with_E == 1 &&
                        (problem->max_seqs > 1 || all_halves > num_sms) && in_one_wave <= cap;
    choice->param[PARAM_PASSES] = passes;
    choice->param[PARAM_CARRY] = (int64_t)gdn_ledger_book(ledger, "carried states", passes ? most : alone);
    choice->param[PARAM_SEGMENT_F] = choice->param[PARAM_CARRY] + (int64_t)carried;
    choice->param[PARAM_SEGMENT_E] = choice->param[PARAM_SEGMENT_F] + (int64_t)own / 2;

    /* What is left, less padding and what one wave's table and first entries take, in units of the slots of an entry. */
    const size_t fixed = ledger->total + (with_E > 1 ? own : 0) + 4 * GDN_WORKSPACE_ALIGNMENT;
    const size_t unit = gdn_size_mul(GDN_SM90_MIN_SEGMENT, record) + gdn_size_mul(2 * slot_entries, entry);
    const int64_t least = with_E > 1 ? 2 * GDN_SM90_MAX_SEGMENT : 1;
    const size_t left = cap > fixed ? cap - fixed : 0;
    int64_t slots = (int64_t)(with_E > 1 ? left / unit * GDN_SM90_MIN_SEGMENT : left / record);
    if (slots < least && slots < bound) {
        if (max_workspace > 0) {
            const int64_t enough = least < bound ? least : bound;
            return gdn_fail(
                GDN_ERROR_UNSUPPORTED, "max_workspace: %zu bytes, cuda.sm90 needs at least %zu", max_workspace,
                fixed + (with_E > 1
                             ? gdn_size_mul((size_t)(enough + GDN_SM90_MIN_SEGMENT - 1) / GDN_SM90_MIN_SEGMENT, unit)
                             : record));
        }
        slots = least;
    }
    choice->wave_chunks = slots < bound ? slots : bound;
    const size_t in_slots = gdn_size_mul(slot_entries, (size_t)(choice->wave_chunks / GDN_SM90_MIN_SEGMENT));
    const size_t per_kind = gdn_size_mul(in_slots + own_entries, entry);
    choice->param[PARAM_RECORDS] =
        (int64_t)gdn_ledger_book(ledger, "records", gdn_size_mul((size_t)choice->wave_chunks, records));
    if (pack) {
        choice->param[PARAM_PACKED] =
            (int64_t)gdn_ledger_book(ledger, "normalised q and k", gdn_size_mul((size_t)choice->wave_chunks, packed));
    }
    if (with_E > 1) {
        choice->param[PARAM_SEGMENT_F] = (int64_t)gdn_ledger_book(ledger, "segment states", per_kind);
        choice->param[PARAM_SEGMENT_E] = (int64_t)gdn_ledger_book(ledger, "segment maps", per_kind);
        const int64_t waves = gdn_sm90_wave_count(bound, choice->wave_chunks, true);
        choice->param[PARAM_WAVES] =
            (int64_t)gdn_ledger_book(ledger, "waves", gdn_size_mul((size_t)waves, sizeof(gdn_sm90_wave)));
    }
    return GDN_OK;
}
