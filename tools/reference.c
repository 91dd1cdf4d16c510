#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* log softplus(x), exact at both ends: softplus(x) -> exp(x) below, x above 20 as the models define it. */
static double log_softplus(double x)
{
    return x > 20 ? log(x) : x < -20 ? x : log(log1p(exp(x)));
}

static double decay_of(const workload *load, int64_t t, int32_t head)
{
    const gdn_problem *const problem = &load->problem;
    const double gate = load->gate[t * problem->num_v_heads + head];
    switch (problem->gate_form) {
    case GDN_GATE_DECAY:
        return gate;
    case GDN_GATE_LOG_DECAY:
        return exp(gate);
    case GDN_GATE_RAW:
        break;
    }
    const double bias = load->dt_bias != NULL ? load->dt_bias[head] : 0;
    return exp(-exp(load->A_log[head] + log_softplus(gate + bias)));
}

static double beta_of(const workload *load, int64_t t, int32_t head)
{
    const gdn_problem *const problem = &load->problem;
    const double beta = load->beta[t * problem->num_v_heads + head];
    return problem->beta_form == GDN_BETA_LOGIT ? problem->beta_scale / (1 + exp(-beta)) : beta;
}

static void read_vector(const workload *load, const float *source, double *x)
{
    const gdn_problem *const problem = &load->problem;
    const int32_t dim = problem->head_k_dim;
    double sum = 0;
    for (int32_t d = 0; d < dim; d++) {
        x[d] = source[d];
        sum += x[d] * x[d];
    }
    double factor = 1;
    if (problem->qk_norm == GDN_QK_NORM_RSQRT) {
        factor = 1 / sqrt(sum + (double)problem->qk_norm_eps);
    } else if (problem->qk_norm == GDN_QK_NORM_EPS_OUTSIDE) {
        factor = 1 / (sqrt(sum) + (double)problem->qk_norm_eps);
    }
    if (sum == 0) {
        factor = 1; /* 0 / 0 where eps is 0: a zero vector stays zero */
    }
    for (int32_t d = 0; d < dim; d++) {
        x[d] *= factor;
    }
}

/* One token: S [V, K], a row for each element of v. */
static void step(double *restrict S, double *restrict o, const double *restrict q, const double *restrict k,
                 const float *restrict v, double decay, double beta, double scale, int32_t V, int32_t K)
{
    for (int32_t i = 0; i < V; i++) {
        double *const row = S + (int64_t)i * K;
        double read = 0, out = 0;
#pragma omp simd reduction(+ : read)
        for (int32_t j = 0; j < K; j++) {
            row[j] = decay == 0 ? 0 : row[j] * decay; /* a reset also forgets infinities */
            read += k[j] * row[j];
        }
        const double u = beta * ((double)v[i] - read);
#pragma omp simd reduction(+ : out)
        for (int32_t j = 0; j < K; j++) {
            row[j] += k[j] * u;
            out += q[j] * row[j];
        }
        o[i] = scale * out;
    }
}

bool reference_run(const workload *load, int64_t seq, int32_t head, int64_t max_tokens, double *o, double *S,
                   reference_state_fn visit, void *user)
{
    const gdn_problem *const problem = &load->problem;
    const int32_t K = problem->head_k_dim, V = problem->head_v_dim, H = problem->num_k_heads;
    const int32_t ratio = problem->num_v_heads / H;
    const int32_t k_head = problem->head_map == GDN_HEAD_MAP_TILED ? head % H : head / ratio;
    double *const q = malloc(2 * (size_t)K * sizeof(double));
    if (q == NULL) {
        return false;
    }
    double *const k = q + K;
    if (workload_has_state(load, seq)) {
        const float *const initial = load->initial + seq * workload_state_size(load) + (int64_t)head * V * K;
        for (int64_t i = 0; i < (int64_t)V * K; i++) {
            S[i] = initial[i];
        }
    } else {
        memset(S, 0, (size_t)V * (size_t)K * sizeof(double));
    }
    const int64_t there = workload_length(load, seq), length = there < max_tokens ? there : max_tokens;
    for (int64_t i = 0; i < length; i++) {
        const int64_t t = load->cu[seq] + i;
        read_vector(load, load->q + (t * H + k_head) * K, q);
        read_vector(load, load->k + (t * H + k_head) * K, k);
        step(S, o + i * V, q, k, load->v + (t * problem->num_v_heads + head) * V, decay_of(load, t, head),
             beta_of(load, t, head), (double)problem->scale, V, K);
        if (visit != NULL) {
            visit(user, i + 1, S);
        }
    }
    if (there == 0 && visit != NULL) {
        visit(user, 0, S);
    }
    free(q);
    return true;
}

double reference_cost(const workload *load)
{
    return 7.0 * load->problem.head_v_dim * load->problem.head_k_dim;
}
