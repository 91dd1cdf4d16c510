#include "random_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams of one seed; each array draws from its own. */
enum {
    STREAM_Q = 1,
    STREAM_K,
    STREAM_V,
    STREAM_GATE,
    STREAM_BETA,
    STREAM_STATE,
    STREAM_A,
    STREAM_DT,
    STREAM_COUNTS,
    STREAM_CHECKPOINTS,
    STREAM_RESET
};

static const double pi = 3.14159265358979323846;

/* SplitMix64's mixing function (Steele, Lea, Flood 2014) on a counter: any element can be drawn alone. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t key = mix(seed * UINT64_C(0x9e3779b97f4a7c15) + stream);
    return mix(key + (index + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* In (0, 1), never 0 or 1. */
static double uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return ((double)(random_bits(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const double u = uniform(seed, stream, 2 * index), w = uniform(seed, stream, 2 * index + 1);
    return sqrt(-2 * log(u)) * cos(2 * pi * w);
}

/* Both numbers of Box and Muller's pair: half the work for the large arrays. */
static void fill_normal(float *values, int64_t count, double factor, uint64_t seed, uint64_t stream)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i += 2) {
        const float u = (float)uniform(seed, stream, (uint64_t)i), w = (float)uniform(seed, stream, (uint64_t)i + 1);
        const float radius = (float)factor * sqrtf(-2 * logf(u)), angle = (float)(2 * pi) * w;
        values[i] = radius * cosf(angle);
        if (i + 1 < count) {
            values[i + 1] = radius * sinf(angle);
        }
    }
}

static void normalise_rows(float *values, int64_t rows, int64_t dim)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *const x = values + row * dim;
        double sum = 0;
        for (int64_t d = 0; d < dim; d++) {
            sum += (double)x[d] * x[d];
        }
        const double inverse = sum > 0 ? 1 / sqrt(sum) : 0;
        for (int64_t d = 0; d < dim; d++) {
            x[d] = (float)(x[d] * inverse);
        }
    }
}

static void fill_queries_and_keys(workload *load, const problem_text *text)
{
    const gdn_problem *const problem = &load->problem;
    const uint64_t seed = (uint64_t)text->seed;
    const int64_t width = (int64_t)problem->num_k_heads * problem->head_k_dim, rows = load->total_tokens;
    fill_normal(load->q, rows * width, 1, seed, STREAM_Q);
    fill_normal(load->k, rows * width, 1, seed, STREAM_K);
    if (text->keys == TEXT_KEYS_REPEATED) {
        for (int64_t t = 1; t < rows; t++) {
            memcpy(load->k + t * width, load->k, (size_t)width * sizeof(float));
        }
    }
    if (problem->qk_norm == GDN_QK_NORM_NONE) {
        normalise_rows(load->q, rows * problem->num_k_heads, problem->head_k_dim);
        normalise_rows(load->k, rows * problem->num_k_heads, problem->head_k_dim);
    }
    workload_round(load->q, rows * width, problem->q.dtype);
    workload_round(load->k, rows * width, problem->k.dtype);
}

/* softplus of x and the x of a softplus, without overflow or cancellation. */
static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

static double inverse_softplus(double y)
{
    return y > 20 ? y : y > 0 ? log(expm1(y)) : -200;
}

/* The log decay of a token of a head in the regime asked for, except STANDARD, which is raw by nature. */
static double draw_log_decay(const problem_text *text, int64_t head, uint64_t index)
{
    const uint64_t seed = (uint64_t)text->seed;
    if (text->decay == TEXT_DECAY_RESET && uniform(seed, STREAM_RESET, index) < 0.02) {
        return -INFINITY;
    }
    switch ((text_decay)text->decay) {
    case TEXT_DECAY_WEAK:
    case TEXT_DECAY_RESET:
        return head % 4 == 3 ? 0 : log(uniform(seed, STREAM_GATE, index)) / 16;
    case TEXT_DECAY_STRONG:
        return log(uniform(seed, STREAM_GATE, index));
    case TEXT_DECAY_NONE:
    case TEXT_DECAY_STANDARD:
        break;
    }
    return 0;
}

static void fill_gates(workload *load, const problem_text *text)
{
    const gdn_problem *const problem = &load->problem;
    const uint64_t seed = (uint64_t)text->seed;
    const int64_t heads = problem->num_v_heads;
    const bool standard = text->decay == TEXT_DECAY_STANDARD, raw = problem->gate_form == GDN_GATE_RAW;
    for (int64_t h = 0; h < heads; h++) {
        const double A = 1 + 15 * uniform(seed, STREAM_A, (uint64_t)h);
        const double dt = exp(log(1e-3) + uniform(seed, STREAM_DT, (uint64_t)h) * (log(0.1) - log(1e-3)));
        const double bias = dt + log(-expm1(-dt));
        if (raw) {
            load->A_log[h] = standard ? (float)log(A) : 0;
            load->dt_bias[h] = standard ? (float)bias : 0;
        }
        for (int64_t t = 0; t < load->total_tokens; t++) {
            const uint64_t index = (uint64_t)(t * heads + h);
            const double a = standard ? normal(seed, STREAM_GATE, index) : 0;
            const double g = standard ? -A * softplus(a + bias) : draw_log_decay(text, h, index);
            const double reset = 30000; /* finite in every dtype; its log decay is far below -104 */
            const double value = problem->gate_form == GDN_GATE_DECAY ? exp(g)
                                 : !raw                               ? g
                                 : standard                           ? a
                                 : isinf(g)                           ? reset
                                                                      : inverse_softplus(-g);
            load->gate[index] = (float)value;
            const double b = normal(seed, STREAM_BETA, index);
            load->beta[index] = (float)(problem->beta_form == GDN_BETA_LOGIT ? b : 1 / (1 + exp(-b)));
        }
    }
    workload_round(load->gate, load->total_tokens * heads, problem->gate.dtype);
    workload_round(load->beta, load->total_tokens * heads, problem->beta.dtype);
}

/* The index-th slot of an order that visits all of `count` slots, `stride` and `count` having no common factor. */
static int64_t scatter(int64_t index, int64_t stride, int64_t count)
{
    return count > 0 ? index * stride % count : 0;
}

/* Slots in a shuffled order, so that neighbours in the batch are not neighbours in the pool. Each sequence gets up to
 * 2 + tokens_per_row slots of its own: read, write, and one for each token. */
static bool fill_slots(workload *load, const problem_text *text)
{
    const int64_t seqs = load->num_seqs, per_row = load->problem.tokens_per_row;
    const int64_t each = 1 + (text->update == TEXT_UPDATE_SEPARATE) + (text->token_slots != 0 ? per_row : 0);
    load->num_slots = seqs * each + 1;
    load->read_slots = malloc(((size_t)seqs + 1) * sizeof(int64_t));
    int64_t *const write = malloc(((size_t)seqs + 1) * sizeof(int64_t));
    load->token_slots = text->token_slots != 0 ? malloc(((size_t)(seqs * per_row) + 1) * sizeof(int64_t)) : NULL;
    load->write_slots = write;
    if (load->read_slots == NULL || write == NULL || (text->token_slots != 0 && load->token_slots == NULL)) {
        return false;
    }
    int64_t stride = load->num_slots / 3 * 2 + 1;
    for (;; stride++) { /* the next stride that visits every slot */
        int64_t a = stride, b = load->num_slots;
        while (b != 0) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) {
            break;
        }
    }
    int64_t next = 0;
    for (int64_t n = 0; n < seqs; n++) {
        load->read_slots[n] = scatter(next++, stride, load->num_slots);
        write[n] =
            text->update == TEXT_UPDATE_SEPARATE ? scatter(next++, stride, load->num_slots) : load->read_slots[n];
        for (int64_t t = 0; load->token_slots != NULL && t < per_row; t++) {
            const int64_t slot = scatter(next++, stride, load->num_slots);
            load->token_slots[n * per_row + t] = (n + t) % 4 == 3 ? -1 : slot;
        }
        if (text->skip != 0 && n % 3 == 1) { /* either negative slot skips */
            const bool by_write = text->update == TEXT_UPDATE_SEPARATE && n % 2 == 0;
            *(by_write ? &write[n] : &load->read_slots[n]) = -1;
        }
    }
    if (text->update == TEXT_UPDATE_NONE) {
        free(write);
        load->write_slots = NULL;
    }
    return true;
}

static bool fill_states(workload *load, const problem_text *text)
{
    const int64_t count = load->num_seqs * workload_state_size(load);
    const bool pool = load->problem.state_form == GDN_STATE_POOL;
    if (pool && !fill_slots(load, text)) {
        return false;
    }
    load->wants_final = text->final_dtype != 4;
    if (text->initial == TEXT_INITIAL_ZERO && !pool) {
        return true;
    }
    load->initial = malloc(((size_t)count + 1) * sizeof(float));
    if (load->initial == NULL) {
        return false;
    }
    const double size = text->initial == TEXT_INITIAL_TINY ? 1e-39 : 0.2;
    fill_normal(load->initial, count, size, (uint64_t)text->seed, STREAM_STATE);
    workload_round(load->initial, count, load->problem.state.dtype);
    if (text->initial == TEXT_INITIAL_ALL || text->initial == TEXT_INITIAL_TINY) {
        return true;
    }
    load->has_initial = malloc((size_t)load->num_seqs + 1);
    if (load->has_initial == NULL) {
        return false;
    }
    for (int64_t n = 0; n < load->num_seqs; n++) {
        load->has_initial[n] = text->initial == TEXT_INITIAL_MIXED && n % 2 == 0 ? (uint8_t)(1 + n % 255) : 0;
        for (int64_t i = 0; load->has_initial[n] == 0 && i < workload_state_size(load); i++) {
            load->initial[n * workload_state_size(load) + i] = NAN;
        }
    }
    return true;
}

/* Up to four ascending positions a sequence, some next to each other. */
static bool fill_checkpoints(workload *load, const problem_text *text)
{
    if (text->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        load->num_checkpoints = load->num_seqs == 0 ? 0 : workload_first_checkpoint(load, load->num_seqs);
        return true;
    }
    load->checkpoint_positions = calloc((size_t)(4 * load->num_seqs) + 1, sizeof(int64_t));
    load->checkpoint_offsets = calloc((size_t)load->num_seqs + 1, sizeof(int64_t));
    if (load->checkpoint_positions == NULL || load->checkpoint_offsets == NULL) {
        return false;
    }
    for (int64_t n = 0; n < load->num_seqs; n++) {
        const int64_t length = workload_length(load, n);
        int64_t position = 0;
        for (uint64_t i = 0; i < 4; i++) {
            const uint64_t bits = random_bits((uint64_t)text->seed, STREAM_CHECKPOINTS, (uint64_t)(4 * n) + i);
            position += 1 + (int64_t)(bits % (uint64_t)(1 + length / 3)) * (int64_t)(bits >> 63);
            if (position > length) {
                break;
            }
            load->checkpoint_positions[load->num_checkpoints++] = position;
        }
        load->checkpoint_offsets[n + 1] = load->num_checkpoints;
    }
    return true;
}

static void fill_lengths(workload *load, const problem_text *text)
{
    int64_t seq = 0;
    if (text->op == GDN_OPERATION_DECODE) {
        for (; seq < load->num_seqs; seq++) {
            load->cu[seq + 1] = (seq + 1) * text->tokens_per_row;
        }
    } else if (text->num_groups == 0) {
        load->cu[1] = text->tokens;
    }
    for (int64_t i = 0; text->op == GDN_OPERATION_PREFILL && i < text->num_groups; i++) {
        for (int64_t j = 0; j < text->groups[i].count; j++, seq++) {
            load->cu[seq + 1] = load->cu[seq] + text->groups[i].length;
        }
    }
}

static bool fill_counts(workload *load, const problem_text *text)
{
    if (text->op != GDN_OPERATION_DECODE || text->num_tokens == 0) {
        return true;
    }
    load->num_tokens = calloc((size_t)load->num_seqs + 1, sizeof(int32_t));
    for (int64_t n = 0; load->num_tokens != NULL && n < load->num_seqs; n++) {
        const uint64_t bits = random_bits((uint64_t)text->seed, STREAM_COUNTS, (uint64_t)n);
        load->num_tokens[n] = (int32_t)(bits % (uint64_t)(text->tokens_per_row + 1));
    }
    return load->num_tokens != NULL;
}

bool random_inputs(workload *load, const problem_text *text)
{
    gdn_problem problem;
    problem_text_build(text, &problem);
    if (!workload_alloc(load, &problem, problem_text_num_seqs(text), problem_text_total_tokens(text))) {
        return false;
    }
    fill_lengths(load, text);
    fill_queries_and_keys(load, text);
    const int64_t values = load->total_tokens * problem.num_v_heads * problem.head_v_dim;
    const double size = text->initial == TEXT_INITIAL_TINY ? 1e-39 : 1;
    fill_normal(load->v, values, size, (uint64_t)text->seed, STREAM_V);
    workload_round(load->v, values, problem.v.dtype);
    fill_gates(load, text);
    const bool good = fill_counts(load, text) && fill_states(load, text) &&
                      (text->checkpoint_form == GDN_CHECKPOINT_NONE || fill_checkpoints(load, text));
    if (!good) {
        workload_free(load);
    }
    return good;
}
