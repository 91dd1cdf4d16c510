#include "generic_scratch.h"

#include "schedule.h"

/* Without a cap a wave has as many chunks as keep the whole workspace within these sizes: on a host about what its caches
 * hold, on a device enough to fill it. */
#define HOST_BYTES ((size_t)16 << 20)
#define DEVICE_BYTES ((size_t)256 << 20)

/* More slots than this gain nothing, and the lane table, steps times lanes, would grow. */
#define MAX_WAVE_CHUNKS 4096

/* Chunk sizes where no hint is given. On a host 32 was the fastest of 16, 32, 48 and 64 at nearly every head size
 * (docs/performance.md); on a device products of 64 rows fill the tiles. */
#define HOST_CHUNK_SIZE 32
#define DEVICE_CHUNK_SIZE 64
/* A larger hint is lowered to this: beyond it only the C x C work grows. */
#define MAX_CHUNK_SIZE 256

static const char *const piece_names[GDN_GENERIC_NUM_PIECES] = {
    [GDN_GENERIC_CHUNKS] = "chunk table",
    [GDN_GENERIC_LANE_SLOT] = "lane table",
    [GDN_GENERIC_G] = "G",
    [GDN_GENERIC_BETA] = "beta",
    [GDN_GENERIC_Q] = "q",
    [GDN_GENERIC_K] = "k",
    [GDN_GENERIC_ROWS] = "v, scaled rows, O",
    [GDN_GENERIC_GRAM] = "k k^T, q k^T",
    [GDN_GENERIC_SQUARE] = "L, A, P",
    [GDN_GENERIC_U] = "U, V'",
    [GDN_GENERIC_W] = "W",
    [GDN_GENERIC_TAIL] = "decayed k",
    [GDN_GENERIC_STATE] = "S",
    [GDN_GENERIC_CARRY] = "S between waves",
    [GDN_GENERIC_CHECKPOINT] = "S at a checkpoint",
    [GDN_GENERIC_CHECKPOINT_ENDS] = "checkpoint ends",
    [GDN_GENERIC_CHECKPOINT_ENTRIES] = "checkpoint entries",
    [GDN_GENERIC_UNGATED_G] = "G of zeros",
    [GDN_GENERIC_UNGATED_SQUARE] = "M^-1",
};

typedef struct wave_shape {
    int32_t chunk_size;
    int64_t bound;
    int64_t slots;
    int64_t lanes;
    int64_t steps;
    bool two_inverses;
} wave_shape;

static int64_t min_int64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t floats(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return gdn_size_mul(gdn_size_mul(gdn_size_mul((size_t)a, (size_t)b), gdn_size_mul((size_t)c, (size_t)d)),
                        sizeof(float));
}

static wave_shape shape_of(const gdn_problem *problem, int32_t chunk_size, int64_t slots, bool two_inverses)
{
    return (wave_shape){
        .chunk_size = chunk_size,
        .bound = gdn_schedule_bound(problem, chunk_size),
        .slots = slots,
        .lanes = min_int64(slots, problem->max_seqs),
        .steps = min_int64(slots, gdn_schedule_max_chunks(problem, chunk_size)),
        .two_inverses = two_inverses,
    };
}

static size_t piece_bytes(const gdn_problem *problem, const wave_shape *shape, gdn_generic_piece piece)
{
    const int64_t H = problem->num_k_heads;
    const int64_t HV = problem->num_v_heads;
    const int64_t K = problem->head_k_dim;
    const int64_t V = problem->head_v_dim;
    const int64_t C = shape->chunk_size;
    const int64_t m = shape->slots;
    const int64_t l = shape->lanes;
    const bool checkpoints = problem->checkpoint_form != GDN_CHECKPOINT_NONE;
    switch (piece) {
    case GDN_GENERIC_CHUNKS:
        return gdn_size_mul((size_t)shape->bound, sizeof(gdn_chunk));
    case GDN_GENERIC_LANE_SLOT:
        return gdn_size_mul(gdn_size_mul((size_t)shape->steps, (size_t)l), sizeof(int32_t));
    case GDN_GENERIC_G:
        return floats(m, HV, 2, C);
    case GDN_GENERIC_BETA:
        return floats(m, HV, 1, C);
    case GDN_GENERIC_Q:
    case GDN_GENERIC_K:
        return floats(m, H, C, K);
    case GDN_GENERIC_ROWS:
        return floats(m, HV, C, K > V ? K : V);
    case GDN_GENERIC_GRAM:
        return floats(m, H, C, C);
    case GDN_GENERIC_SQUARE:
        return floats(m, HV, C, C);
    case GDN_GENERIC_U:
        return floats(m, HV, C, V);
    case GDN_GENERIC_W:
        return floats(m, HV, C, K);
    case GDN_GENERIC_TAIL:
        return floats(l, HV, C, K);
    case GDN_GENERIC_STATE:
        return floats(l, HV, K, V);
    case GDN_GENERIC_CARRY:
        return floats(1, HV, K, V);
    case GDN_GENERIC_CHECKPOINT:
        return checkpoints ? floats(l, HV, K, V) : 0;
    case GDN_GENERIC_CHECKPOINT_ENDS:
        return checkpoints ? gdn_size_mul((size_t)l, sizeof(int32_t)) : 0;
    case GDN_GENERIC_CHECKPOINT_ENTRIES:
        return checkpoints ? gdn_size_mul((size_t)l, sizeof(int64_t)) : 0;
    case GDN_GENERIC_UNGATED_G:
        return shape->two_inverses ? floats(m, HV, 2, C) : 0;
    case GDN_GENERIC_UNGATED_SQUARE:
        return shape->two_inverses ? floats(m, HV, C, C) : 0;
    case GDN_GENERIC_NUM_PIECES:
        break;
    }
    return 0;
}

/* Books the pieces of a wave of `slots` chunks into *choice. */
static void book_wave(const gdn_problem *problem, const wave_shape *shape, gdn_choice *choice)
{
    for (int piece = 0; piece < GDN_GENERIC_NUM_PIECES; piece++) {
        const size_t bytes = piece_bytes(problem, shape, (gdn_generic_piece)piece);
        choice->param[piece] = bytes == 0 ? 0 : (int64_t)gdn_ledger_book(&choice->ledger, piece_names[piece], bytes);
    }
    choice->chunk_size = shape->chunk_size;
    choice->wave_chunks = shape->slots;
    choice->param[GDN_GENERIC_PARAM_BOUND] = shape->bound;
    choice->param[GDN_GENERIC_PARAM_LANES] = shape->lanes;
    choice->param[GDN_GENERIC_PARAM_STEPS] = shape->steps;
}

/* The workspace's size with `slots` chunks to a wave; SIZE_MAX where that does not fit size_t. */
static size_t wave_total(const gdn_problem *problem, const wave_shape *shape, const gdn_choice *choice)
{
    gdn_choice trial = *choice;
    book_wave(problem, shape, &trial);
    return trial.ledger.overflow ? SIZE_MAX : trial.ledger.total;
}

gdn_status gdn_generic_book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                            bool two_inverses, gdn_choice *choice)
{
    const bool host = device->backend->host_memory;
    const int32_t unasked = host ? HOST_CHUNK_SIZE : DEVICE_CHUNK_SIZE;
    int32_t chunk_size = problem->chunk_size > 0 ? problem->chunk_size : unasked;
    chunk_size = chunk_size < MAX_CHUNK_SIZE ? chunk_size : MAX_CHUNK_SIZE;
    const int64_t bound = gdn_schedule_bound(problem, chunk_size);
    if (bound > INT32_MAX || problem->max_seqs > INT32_MAX) {
        return gdn_fail(
            GDN_ERROR_UNSUPPORTED,
            "max_tokens %lld in chunks of %d over max_seqs %lld: %lld chunks, at most 2147483647 are allowed",
            (long long)problem->max_tokens, chunk_size, (long long)problem->max_seqs, (long long)bound);
    }

    size_t budget = host ? HOST_BYTES : DEVICE_BYTES;
    if (max_workspace != 0 && max_workspace < budget) {
        budget = max_workspace;
    }
    /* The most slots that fit, by bisection: the total grows with them. */
    int64_t fits = 1;
    int64_t past = (bound > 1 ? min_int64(bound, MAX_WAVE_CHUNKS) : 1) + 1;
    while (past - fits > 1) {
        const int64_t middle = fits + (past - fits) / 2;
        const wave_shape shape = shape_of(problem, chunk_size, middle, two_inverses);
        if (wave_total(problem, &shape, choice) <= budget) {
            fits = middle;
        } else {
            past = middle;
        }
    }
    const wave_shape shape = shape_of(problem, chunk_size, fits, two_inverses);
    const size_t total = wave_total(problem, &shape, choice);
    if (total == SIZE_MAX) {
        return gdn_fail(GDN_ERROR_UNSUPPORTED, "the workspace of one chunk in a wave does not fit size_t");
    }
    if (max_workspace != 0 && total > max_workspace) {
        return gdn_fail(
            GDN_ERROR_UNSUPPORTED,
            "max_workspace %zu: generic prefill needs at least %zu bytes (one chunk of %d tokens in a wave)",
            max_workspace, total, chunk_size);
    }
    book_wave(problem, &shape, choice);
    const gdn_generic_ops *const ops = device->backend->ops;
    return ops != NULL && ops->prepare != NULL ? ops->prepare(device, problem, chunk_size) : GDN_OK;
}
