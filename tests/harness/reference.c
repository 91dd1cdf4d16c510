#include "reference.h"

#include "formats.h"
#include "reference_terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a prefill and a decode call have in common. */
typedef struct operands {
    const gdn_problem *problem;
    const void *q, *k, *v, *gate, *beta;
    const float *A_log, *dt_bias;
    const void *state;
    const void *read_slots, *write_slots;
    const uint8_t *has_initial_state;
} operands;

static void *zeroed(int64_t count, size_t size)
{
    void *const memory = calloc((size_t)(count > 0 ? count : 1), size);
    if (memory == NULL) {
        abort(); /* a test machine without memory has no verdict to give */
    }
    return memory;
}

double reference_log_decay(double a, double A_log, double dt_bias)
{
    const double x = a + dt_bias;
    double log_softplus;
    if (x < -30) {
        log_softplus = x; /* log1p(e^x) = e^x to double precision */
    } else if (x > 40) {
        log_softplus = log(x);
    } else {
        log_softplus = log(log1p(exp(x)));
    }
    return -exp(A_log + log_softplus);
}

double reference_beta(double b, double beta_scale)
{
    return beta_scale / (1.0 + exp(-b));
}

int32_t reference_k_head(const gdn_problem *problem, int32_t hv)
{
    if (problem->head_map == GDN_HEAD_MAP_TILED) {
        return hv % problem->num_k_heads;
    }
    return hv / (problem->num_v_heads / problem->num_k_heads);
}

static double element(const void *data, const gdn_layout *layout, int64_t token_offset, int32_t head, int32_t d)
{
    return format_decode(layout->dtype, data, token_offset + head * layout->head_stride + d);
}

static int64_t offset_of(const gdn_layout *layout, int64_t row, int64_t row_length, int64_t t)
{
    const int64_t row_stride = layout->row_stride != 0 ? layout->row_stride : row_length * layout->token_stride;
    return row * row_stride + t * layout->token_stride;
}

static void load_vector(double *x, const void *data, const gdn_layout *layout, int64_t offset, int32_t head,
                        int32_t dim)
{
    for (int32_t d = 0; d < dim; d++) {
        x[d] = element(data, layout, offset, head, d);
    }
}

static void normalise(double *x, int32_t dim, gdn_qk_norm norm, double eps)
{
    double sum = 0;
    for (int32_t d = 0; d < dim; d++) {
        sum += x[d] * x[d];
    }
    double factor = 1;
    if (norm == GDN_QK_NORM_RSQRT) {
        factor = 1 / sqrt(sum + eps);
    } else if (norm == GDN_QK_NORM_EPS_OUTSIDE) {
        factor = 1 / (sqrt(sum) + eps);
    }
    for (int32_t d = 0; d < dim; d++) {
        x[d] = sum == 0 ? 0 : x[d] * factor;
    }
}

static double decay_of(const operands *in, int64_t offset, int32_t hv)
{
    const double gate = element(in->gate, &in->problem->gate, offset, hv, 0);
    switch (in->problem->gate_form) {
    case GDN_GATE_DECAY:
        return gate;
    case GDN_GATE_RAW:
        return exp(reference_log_decay(gate, in->A_log[hv], in->dt_bias != NULL ? in->dt_bias[hv] : 0.0));
    default:
        return exp(gate);
    }
}

static double beta_of(const operands *in, int64_t offset, int32_t hv)
{
    const double beta = element(in->beta, &in->problem->beta, offset, hv, 0);
    return in->problem->beta_form == GDN_BETA_LOGIT ? reference_beta(beta, in->problem->beta_scale) : beta;
}

/* One token of one head. S is [K, V]; e is room for V. */
static void step(double *S, double *e, double *o, const double *q, const double *k, const double *v, double alpha,
                 double beta, double scale, int32_t K, int32_t V)
{
    for (int32_t j = 0; j < V; j++) {
        e[j] = 0;
        o[j] = 0;
    }
    for (int32_t i = 0; i < K; i++) {
        double *const row = S + (int64_t)i * V;
        for (int32_t j = 0; j < V; j++) {
            row[j] *= alpha;
            e[j] += k[i] * row[j];
        }
    }
    for (int32_t j = 0; j < V; j++) {
        e[j] = beta * (v[j] - e[j]);
    }
    for (int32_t i = 0; i < K; i++) {
        double *const row = S + (int64_t)i * V;
        for (int32_t j = 0; j < V; j++) {
            row[j] += k[i] * e[j];
            o[j] += q[i] * row[j];
        }
    }
    for (int32_t j = 0; j < V; j++) {
        o[j] *= scale;
    }
}

/* Stores S [K, V] as [V, K]. */
static void keep_state(double *dst, const double *S, int32_t K, int32_t V)
{
    for (int32_t j = 0; j < V; j++) {
        for (int32_t i = 0; i < K; i++) {
            dst[(int64_t)j * K + i] = S[(int64_t)i * V + j];
        }
    }
}

/* Where `head` of the row starts from: the state's slot, or zeros. */
static void load_state(const operands *in, double *S, int64_t row, int32_t head)
{
    const gdn_problem *const p = in->problem;
    const int32_t K = p->head_k_dim, V = p->head_v_dim;
    const bool wanted = in->state != NULL && (in->has_initial_state == NULL || in->has_initial_state[row] != 0);
    const int64_t slot = p->state_form == GDN_STATE_POOL ? format_load_index(p->slots_dtype, in->read_slots, row) : row;
    for (int32_t i = 0; i < K; i++) {
        for (int32_t j = 0; j < V; j++) {
            const int64_t at = slot * p->state.slot_stride + head * p->state.head_stride + j * p->state.v_stride +
                               i * p->state.k_stride;
            S[(int64_t)i * V + j] = wanted ? format_decode(p->state.dtype, in->state, at) : 0.0;
        }
    }
}

static bool skipped(const operands *in, int64_t row)
{
    const gdn_problem *const p = in->problem;
    if (p->state_form != GDN_STATE_POOL) {
        return false;
    }
    return format_load_index(p->slots_dtype, in->read_slots, row) < 0 ||
           (in->write_slots != NULL && format_load_index(p->slots_dtype, in->write_slots, row) < 0);
}

/* The tokens of one row, and where its results go. A checkpoint after token t of the row has index
 * checkpoint_at[t] or -1. */
typedef struct row_span {
    int64_t row; /* for states */
    int64_t layout_row; /* for offsets: 0 in a packed batch */
    int64_t layout_length;
    int64_t first; /* first token, counted within layout_row */
    int64_t length;
    int64_t token; /* index of the first token in the result */
    const int64_t *checkpoint_at;
} row_span;

static void run_row(const operands *in, const row_span *span, reference_result *out)
{
    const gdn_problem *const p = in->problem;
    const int32_t K = p->head_k_dim, V = p->head_v_dim, HV = p->num_v_heads;
    const int64_t state_size = (int64_t)K * V;
    double *const q = zeroed(K, sizeof(*q)), *const k = zeroed(K, sizeof(*k)), *const v = zeroed(V, sizeof(*v));
    double *const e = zeroed(V, sizeof(*e)), *const S = zeroed(state_size, sizeof(*S));
    chunk_terms terms;
    chunk_terms_open(&terms, K);
    for (int32_t hv = 0; hv < HV; hv++) {
        const int32_t hk = reference_k_head(p, hv);
        load_state(in, S, span->row, hv);
        terms.count = 0;
        for (int64_t t = 0; t < span->length; t++) {
            const int64_t at = span->first + t;
            load_vector(q, in->q, &p->q, offset_of(&p->q, span->layout_row, span->layout_length, at), hk, K);
            load_vector(k, in->k, &p->k, offset_of(&p->k, span->layout_row, span->layout_length, at), hk, K);
            load_vector(v, in->v, &p->v, offset_of(&p->v, span->layout_row, span->layout_length, at), hv, V);
            normalise(q, K, p->qk_norm, p->qk_norm_eps);
            normalise(k, K, p->qk_norm, p->qk_norm_eps);
            const double alpha = decay_of(in, offset_of(&p->gate, span->layout_row, span->layout_length, at), hv);
            const double beta = beta_of(in, offset_of(&p->beta, span->layout_row, span->layout_length, at), hv);
            step(S, e, out->o + ((span->token + t) * HV + hv) * V, q, k, v, alpha, beta, p->scale, K, V);
            out->token_written[span->token + t] = true;
            chunk_terms_add(&terms, t, alpha, k, e, V);
            out->o_terms[(span->token + t) * HV + hv] = p->scale * p->scale * chunk_terms_of_output(&terms, q);
            if (out->token_states != NULL) {
                keep_state(out->token_states + ((span->token + t) * HV + hv) * state_size, S, K, V);
            }
            if (span->checkpoint_at != NULL && span->checkpoint_at[t] >= 0) {
                keep_state(out->checkpoints + (span->checkpoint_at[t] * HV + hv) * state_size, S, K, V);
                out->checkpoint_terms[span->checkpoint_at[t] * HV + hv] = chunk_terms_of_state(&terms);
                out->checkpoint_written[span->checkpoint_at[t]] = true;
            }
        }
        keep_state(out->state + (span->row * HV + hv) * state_size, S, K, V);
        out->state_terms[span->row * HV + hv] = chunk_terms_of_state(&terms);
    }
    chunk_terms_close(&terms);
    out->row_done[span->row] = true;
    free(q);
    free(k);
    free(v);
    free(e);
    free(S);
}

static reference_result allocate(const gdn_problem *p, int64_t num_rows, int64_t num_tokens, int64_t num_checkpoints,
                                 bool token_states)
{
    const int64_t state_size = (int64_t)p->num_v_heads * p->head_k_dim * p->head_v_dim;
    reference_result out = {.num_rows = num_rows, .num_tokens = num_tokens, .num_checkpoints = num_checkpoints};
    out.o = zeroed(num_tokens * p->num_v_heads * p->head_v_dim, sizeof(double));
    out.token_written = zeroed(num_tokens, sizeof(bool));
    out.state = zeroed(num_rows * state_size, sizeof(double));
    out.row_done = zeroed(num_rows, sizeof(bool));
    out.checkpoints = zeroed(num_checkpoints * state_size, sizeof(double));
    out.checkpoint_written = zeroed(num_checkpoints, sizeof(bool));
    out.o_terms = zeroed(num_tokens * p->num_v_heads, sizeof(double));
    out.state_terms = zeroed(num_rows * p->num_v_heads, sizeof(double));
    out.checkpoint_terms = zeroed(num_checkpoints * p->num_v_heads, sizeof(double));
    if (token_states) {
        out.token_states = zeroed(num_tokens * state_size, sizeof(double));
    }
    return out;
}

void reference_free(reference_result *result)
{
    free(result->o);
    free(result->token_written);
    free(result->state);
    free(result->row_done);
    free(result->checkpoints);
    free(result->checkpoint_written);
    free(result->token_states);
    free(result->o_terms);
    free(result->state_terms);
    free(result->checkpoint_terms);
    *result = (reference_result){0};
}

/* First token and length of sequence n, counted over the packed tokens. */
static void sequence_bounds(const gdn_problem *p, const gdn_prefill_args *args, int64_t n, int64_t *first,
                            int64_t *length)
{
    if (p->cu_seqlens_dtype == GDN_DTYPE_NONE) {
        *length = args->total_tokens / args->num_seqs;
        *first = n * *length;
        return;
    }
    *first = format_load_index(p->cu_seqlens_dtype, args->cu_seqlens, n);
    *length = format_load_index(p->cu_seqlens_dtype, args->cu_seqlens, n + 1) - *first;
}

/* Fills at[0..length-1] with the entry of the checkpoint after each token, or -1; returns how many. Entries are
 * counted over all sequences, so a skipped one keeps its place. */
static int64_t place_checkpoints(const gdn_problem *p, const gdn_prefill_args *args, int64_t n, int64_t length,
                                 int64_t entry, int64_t *at)
{
    for (int64_t t = 0; t < length; t++) {
        at[t] = -1;
    }
    int64_t count = 0;
    if (p->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        for (int64_t position = p->checkpoint_interval; position <= length; position += p->checkpoint_interval) {
            at[position - 1] = entry + count++;
        }
    } else if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
        const int64_t begin = format_load_index(p->checkpoint_index_dtype, args->checkpoint_offsets, n);
        const int64_t end = format_load_index(p->checkpoint_index_dtype, args->checkpoint_offsets, n + 1);
        for (int64_t i = begin; i < end; i++) {
            at[format_load_index(p->checkpoint_index_dtype, args->checkpoint_positions, i) - 1] = i;
        }
        count = end - begin;
    }
    return count;
}

static int64_t count_checkpoints(const gdn_problem *p, const gdn_prefill_args *args)
{
    int64_t count = 0;
    for (int64_t n = 0; n < args->num_seqs; n++) {
        int64_t first, length;
        sequence_bounds(p, args, n, &first, &length);
        if (p->checkpoint_form == GDN_CHECKPOINT_EVERY) {
            count += length / p->checkpoint_interval;
        } else if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
            count = format_load_index(p->checkpoint_index_dtype, args->checkpoint_offsets, n + 1);
        }
    }
    return count;
}

reference_result reference_prefill(const gdn_problem *problem, const gdn_prefill_args *args)
{
    const operands in = {problem,     args->q,          args->k,           args->v,
                         args->gate,  args->beta,       args->A_log,       args->dt_bias,
                         args->state, args->read_slots, args->write_slots, args->has_initial_state};
    reference_result out =
        allocate(problem, args->num_seqs, args->total_tokens, count_checkpoints(problem, args), false);
    int64_t entry = 0;
    for (int64_t n = 0; n < args->num_seqs; n++) {
        int64_t first, length;
        sequence_bounds(problem, args, n, &first, &length);
        int64_t *const checkpoint_at = zeroed(length, sizeof(*checkpoint_at));
        entry += place_checkpoints(problem, args, n, length, entry, checkpoint_at);
        row_span span = {n, 0, 0, first, length, first, checkpoint_at};
        if (problem->cu_seqlens_dtype == GDN_DTYPE_NONE) {
            span = (row_span){n, n, length, 0, length, first, checkpoint_at};
        }
        if (!skipped(&in, n)) {
            run_row(&in, &span, &out);
        }
        free(checkpoint_at);
    }
    return out;
}

reference_result reference_decode(const gdn_problem *problem, const gdn_decode_args *args)
{
    const operands in = {problem,     args->q,          args->k,           args->v,
                         args->gate,  args->beta,       args->A_log,       args->dt_bias,
                         args->state, args->read_slots, args->write_slots, args->has_initial_state};
    const int64_t T = problem->tokens_per_row;
    reference_result out = allocate(problem, args->num_rows, args->num_rows * T, 0, args->token_slots != NULL);
    for (int64_t n = 0; n < args->num_rows; n++) {
        const int64_t length = args->num_tokens != NULL ? args->num_tokens[n] : T;
        const row_span span = {n, n, T, 0, length, n * T, NULL};
        if (!skipped(&in, n)) {
            run_row(&in, &span, &out);
        }
    }
    return out;
}
