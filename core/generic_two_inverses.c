/* An ablation for the bench: the generic path with two inverses a chunk, to measure what one saves. */
#include "generic_pass.h"
#include "generic_prefill_internal.h"

/* W = exp(G) (I + StrictLower(beta k k^T))^-1 (beta k): the same W through an inverse that does not see the decay. */
static gdn_status form_W_by_second_inverse(const gdn_pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int64_t matrices = (int64_t)p->wave.num_slots * problem->num_v_heads;
    float *const no_decay = gdn_pass_piece(p, GDN_GENERIC_UNGATED_G);
    float *const beta = gdn_pass_piece(p, GDN_GENERIC_BETA);
    float *const M = gdn_pass_piece(p, GDN_GENERIC_UNGATED_SQUARE);
    float *const W = gdn_pass_piece(p, GDN_GENERIC_W);

    /* The backend's fill takes the device it was opened as; nothing of it changes. */
    GDN_TRY(p->device->backend->fill((gdn_device *)p->device, no_decay, 0, (size_t)matrices * 2 * C * sizeof(float),
                                     p->run->stream));
    GDN_TRY(ops->mask(p->device, p->run, &p->wave, GDN_MASK_L, gdn_pass_piece(p, GDN_GENERIC_GRAM), no_decay, beta, M));
    GDN_TRY(ops->inverse(p->device, p->run, M, matrices, C));
    GDN_TRY(ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA, no_decay, beta, gdn_pass_piece(p, GDN_GENERIC_K),
                            problem->num_k_heads, K, gdn_pass_piece(p, GDN_GENERIC_ROWS)));
    GDN_TRY(gdn_pass_square_times_rows(p, GDN_GENERIC_UNGATED_SQUARE, K, GDN_GENERIC_W));
    /* exp(G) alone: the output's factor with a scale of 1. */
    gdn_problem unscaled = *problem;
    unscaled.scale = 1.0f;
    gdn_prefill_run run = *p->run;
    run.problem = &unscaled;
    return ops->scale_rows(p->device, &run, &p->wave, GDN_ROW_SCALE_DECAY, gdn_pass_piece(p, GDN_GENERIC_G), beta, W,
                           problem->num_v_heads, K, W);
}

static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    return gdn_generic_book(device, problem, max_workspace, true, choice);
}

static gdn_status prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return gdn_generic_run(device, run, form_W_by_second_inverse);
}

const gdn_implementation gdn_generic_prefill_two_inverses = {
    .name = "generic.two_inverses",
    .summary = "as generic, with W through an inverse of its own: a measurement's ablation",
    .operation = GDN_OPERATION_PREFILL,
    .supports = gdn_generic_supports,
    .book = book,
    .prefill = prefill,
};
