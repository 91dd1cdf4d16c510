#include "inputs_values.h"

#include "formats.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stream of random numbers for each kind of input, so that an option changes only what it concerns. */
enum { STREAM_Q = 1, STREAM_K, STREAM_V, STREAM_GATE, STREAM_BETA, STREAM_HEAD, STREAM_STATE };

static float head_parameter(const test_case *c, case_operand operand, int32_t head)
{
    const unsigned char *const data = case_before(c, operand);
    return data != NULL ? (float)format_decode(GDN_DTYPE_F32, data, head) : 0.0f;
}

void case_put_log_decay(test_case *c, int64_t token, int32_t head, double log_decay)
{
    switch (c->problem.gate_form) {
    case GDN_GATE_LOG_DECAY:
        case_put(c, CASE_GATE, token, head, 0, log_decay);
        return;
    case GDN_GATE_DECAY:
        case_put(c, CASE_GATE, token, head, 0, exp(log_decay));
        return;
    case GDN_GATE_RAW:
        break;
    }
    /* Solves -exp(A_log) softplus(a + dt_bias) = log_decay for a. */
    const double largest = c->problem.gate.dtype == GDN_DTYPE_F16 ? 65504.0 : 3e38;
    const double y = -log_decay / exp(head_parameter(c, CASE_A_LOG, head));
    double a = -200;
    if (y > 0) {
        const double x = y > 30 ? y : log(expm1(y));
        a = x - head_parameter(c, CASE_DT_BIAS, head);
    }
    case_put(c, CASE_GATE, token, head, 0, fmin(a, largest));
}

/* A and the step size dt of a head, as a model's initialisation draws them. */
static void draw_head(const test_case *c, int32_t head, double *A, double *dt_bias)
{
    test_random random = random_stream(c->spec.seed, STREAM_HEAD * 4096 + (uint64_t)head);
    *A = random_between(&random, 1, 16);
    const double dt = exp(random_between(&random, log(1e-3), log(0.1)));
    *dt_bias = c->spec.no_dt_bias ? 0.0 : dt + log(-expm1(-dt));
}

static void fill_head_parameters(test_case *c)
{
    for (int32_t head = 0; head < c->problem.num_v_heads && c->problem.gate_form == GDN_GATE_RAW; head++) {
        double A, dt_bias;
        draw_head(c, head, &A, &dt_bias);
        if (c->spec.gates != GATES_STANDARD) {
            A = 0.75 + 0.5 * (head % 2);
        }
        format_encode(GDN_DTYPE_F32, case_before(c, CASE_A_LOG), head, log(A));
        if (!c->spec.no_dt_bias) {
            format_encode(GDN_DTYPE_F32, case_before(c, CASE_DT_BIAS), head, dt_bias);
        }
    }
}

static double draw_log_decay(const case_spec *s, test_random *random, int64_t t, int32_t head)
{
    const double u = random_uniform(random);
    switch (s->gates) {
    case GATES_WEAK:
        return head % 4 == 3 ? 0.0 : log(u) / 16;
    case GATES_STRONG:
        return log(u);
    case GATES_CONSTANT:
        return s->gate;
    case GATES_MIXED_ZEROS:
        return u < 0.5 ? 0.0 : -(u - 0.5);
    case GATES_RESET:
        return t % 64 == 13 + head % 32 ? -INFINITY : -0.05;
    case GATES_WIDE:
        return -20 + u * (20 - 1e-4);
    case GATES_SMALL:
        return -0.015 + 0.01 * u;
    default:
        return t / 64 % 2 == 0 ? -0.01 : -8.0;
    }
}

static void fill_gate(test_case *c, test_random *random, int64_t token, int64_t t, int32_t head)
{
    if (c->spec.gates != GATES_STANDARD) {
        case_put_log_decay(c, token, head, draw_log_decay(&c->spec, random, t, head));
        return;
    }
    const double a = random_normal(random);
    if (c->problem.gate_form == GDN_GATE_RAW) {
        case_put(c, CASE_GATE, token, head, 0, a);
        return;
    }
    double A, dt_bias;
    draw_head(c, head, &A, &dt_bias);
    case_put_log_decay(c, token, head, -A * log1p(exp(a + dt_bias)));
}

static void fill_beta(test_case *c, test_random *random, int64_t token, int32_t head)
{
    const double logit = random_normal(random);
    double b = logit;
    if (c->spec.betas == BETAS_CONSTANT) {
        const double part = c->spec.beta / c->spec.beta_scale;
        b = part <= 0 ? -120 : part >= 1 ? 40 : log(part / (1 - part));
    }
    if (c->problem.beta_form == GDN_BETA_VALUE) {
        b = c->spec.betas == BETAS_CONSTANT ? c->spec.beta : 1 / (1 + exp(-logit));
    }
    case_put(c, CASE_BETA, token, head, 0, b);
}

/* A q or k vector, of unit length unless the call normalises. */
static void fill_key(test_case *c, case_operand operand, test_random *random, int64_t token, int32_t head)
{
    const int32_t dim = c->problem.head_k_dim;
    double x[1024], sum = 0;
    for (int32_t d = 0; d < dim; d++) {
        x[d] = 0;
        switch (c->spec.keys) {
        case KEYS_NORMAL:
            x[d] = random_normal(random);
            break;
        case KEYS_EQUAL:
            x[d] = 1;
            break;
        case KEYS_POSITIVE:
            x[d] = random_uniform(random);
            break;
        }
        sum += x[d] * x[d];
    }
    const double factor = c->problem.qk_norm == GDN_QK_NORM_NONE ? 1 / sqrt(sum) : 1;
    for (int32_t d = 0; d < dim; d++) {
        case_put(c, operand, token, head, d, x[d] * factor);
    }
}

static bool skipped(const test_case *c, int64_t n)
{
    if (c->spec.state_form != GDN_STATE_POOL) {
        return false;
    }
    const unsigned char *const read = case_before(c, CASE_READ_SLOTS), *const write = case_before(c, CASE_WRITE_SLOTS);
    return format_load_index(c->spec.slots_dtype, read, n) < 0 ||
           (write != NULL && format_load_index(c->spec.slots_dtype, write, n) < 0);
}

/* Rows of skipped sequences, and rows no token has, stay NaN: a call that reads them shows it. */
static void fill_tokens(test_case *c)
{
    const gdn_problem *const p = &c->problem;
    test_random q = random_stream(c->spec.seed, STREAM_Q), k = random_stream(c->spec.seed, STREAM_K);
    test_random v = random_stream(c->spec.seed, STREAM_V), gate = random_stream(c->spec.seed, STREAM_GATE);
    test_random beta = random_stream(c->spec.seed, STREAM_BETA);
    for (int64_t n = 0; n < c->spec.num_seqs; n++) {
        const int64_t first = case_first_token(c, n), length = skipped(c, n) ? 0 : case_length(c, n);
        for (int64_t t = 0; t < length; t++) {
            for (int32_t head = 0; head < p->num_k_heads; head++) {
                fill_key(c, CASE_Q, &q, first + t, head);
                fill_key(c, CASE_K, &k, first + t, head);
            }
            for (int32_t head = 0; head < p->num_v_heads; head++) {
                for (int32_t d = 0; d < p->head_v_dim; d++) {
                    case_put(c, CASE_V, first + t, head, d, c->spec.value_size * random_normal(&v));
                }
                fill_gate(c, &gate, first + t, t, head);
                fill_beta(c, &beta, first + t, head);
            }
        }
    }
}

/* Only slots that some row starts from: the others stay NaN. */
static void fill_states(test_case *c)
{
    if (c->view[CASE_STATE].buffer < 0) {
        return;
    }
    for (int64_t n = 0; n < c->spec.num_seqs; n++) {
        int64_t slot = n;
        if (c->spec.state_form == GDN_STATE_POOL) {
            slot = format_load_index(c->spec.slots_dtype, case_before(c, CASE_READ_SLOTS), n);
        }
        if (slot < 0 || slot >= c->spec.num_slots ||
            (c->spec.has_initial_state != NULL && c->spec.has_initial_state[n] == 0)) {
            continue;
        }
        test_random random = random_stream(c->spec.seed, STREAM_STATE * 4096 + (uint64_t)slot);
        for (int32_t head = 0; head < c->problem.num_v_heads; head++) {
            for (int32_t i = 0; i < c->problem.head_v_dim; i++) {
                for (int32_t j = 0; j < c->problem.head_k_dim; j++) {
                    case_put_state(c, CASE_STATE, slot, head, i, j, c->spec.state_size * random_normal(&random));
                }
            }
        }
    }
}

static void store_indices(test_case *c, case_operand operand, gdn_dtype dtype, const int64_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        format_store_index(dtype, case_before(c, operand), i, values[i]);
    }
}

static void fill_slots(test_case *c)
{
    const case_spec *const s = &c->spec;
    for (int64_t n = 0; n < s->num_seqs; n++) {
        format_store_index(s->slots_dtype, case_before(c, CASE_READ_SLOTS), n,
                           s->read_slots != NULL ? s->read_slots[n] : 2 * n);
        if (!s->in_place && !s->no_write_slots) {
            format_store_index(s->slots_dtype, case_before(c, CASE_WRITE_SLOTS), n,
                               s->write_slots != NULL ? s->write_slots[n] : 2 * n + 1);
        }
    }
    if (s->token_slots != NULL) {
        store_indices(c, CASE_TOKEN_SLOTS, s->slots_dtype, s->token_slots, c->total_tokens);
    }
}

static void fill_metadata(test_case *c)
{
    const case_spec *const s = &c->spec;
    if (s->state_form == GDN_STATE_POOL) {
        fill_slots(c);
    }
    if (c->view[CASE_CU_SEQLENS].buffer >= 0) {
        for (int64_t n = 0; n <= s->num_seqs; n++) {
            format_store_index(s->cu_dtype, case_before(c, CASE_CU_SEQLENS), n, case_first_token(c, n));
        }
    }
    if (c->view[CASE_CHECKPOINT_POSITIONS].buffer >= 0) {
        store_indices(c, CASE_CHECKPOINT_OFFSETS, s->checkpoint_dtype, s->checkpoint_offsets, s->num_seqs + 1);
        store_indices(c, CASE_CHECKPOINT_POSITIONS, s->checkpoint_dtype, s->checkpoint_positions,
                      s->checkpoint_offsets[s->num_seqs]);
    }
    for (int64_t n = 0; n < s->num_seqs; n++) {
        if (s->has_initial_state != NULL) {
            case_before(c, CASE_HAS_INITIAL_STATE)[n] = s->has_initial_state[n];
        }
        if (c->view[CASE_NUM_TOKENS].buffer >= 0) {
            format_store_index(GDN_DTYPE_I32, case_before(c, CASE_NUM_TOKENS), n, s->num_tokens[n]);
        }
    }
}

void fill_values(test_case *c)
{
    fill_metadata(c);
    fill_head_parameters(c);
    fill_tokens(c);
    fill_states(c);
}
