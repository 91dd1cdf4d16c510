/* One chunk of one head: random inputs, the token recurrence that judges, and the letters of docs/algorithm.md.
 * Rows, columns and tokens count from 0. */

#ifndef TESTS_FORMULAS_CHUNK_H
#define TESTS_FORMULAS_CHUNK_H

#include "small_matrix.h"

/* One chunk of one head, with the state before it. */
struct chunk {
    int C;
    double scale, g[MAX], beta[MAX];
    struct mat Q, K, V, S0;
};

struct result {
    struct mat O, S, written; /* outputs, state after the chunk, the row u_t that each token writes */
};

static uint64_t seed = 20261129;

/* ---- inputs ---- */

static inline double uniform(double low, double high)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return low + (high - low) * (double)(seed >> 11) * 0x1p-53;
}

static inline struct mat random_mat(int rows, int cols)
{
    struct mat m = zeros(rows, cols);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            m.x[i][j] = uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1);
    return m;
}

/* Random rows of a given length. */
static inline struct mat random_rows(int rows, int cols, double length)
{
    struct mat m = random_mat(rows, cols);
    for (int i = 0; i < rows; i++) {
        double n = norm(row(m, i));
        for (int j = 0; j < cols; j++)
            m.x[i][j] *= length / n;
    }
    return m;
}

/* Sizes that divide nothing; C, K and V never agree. */
static const int sizes[][3] = {{1, 3, 2}, {2, 3, 5}, {3, 8, 2}, {5, 1, 4}, {13, 7, 5}, {37, 11, 6}, {64, 17, 9}};
enum { NUM_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* g in [g_min, 0], beta in [0, beta_max], unit keys. */
static inline struct chunk draw(int size, double g_min, double beta_max)
{
    int C = sizes[size][0], K = sizes[size][1], V = sizes[size][2];
    struct chunk c = {.C = C, .scale = 1 / sqrt(K)};
    c.Q = random_rows(C, K, 1);
    c.K = random_rows(C, K, 1);
    c.V = random_mat(C, V);
    c.S0 = random_mat(K, V);
    for (int i = 0; i < C; i++) {
        c.g[i] = uniform(g_min, 0);
        c.beta[i] = uniform(0, beta_max);
    }
    return c;
}

static const double gates[] = {0, -0.01, -0.5, -5, -60};
enum { NUM_GATES = sizeof(gates) / sizeof(gates[0]) };

#define FOR_EACH_CHUNK(c, beta_max)                     \
    for (int size_ = 0; size_ < NUM_SIZES; size_++)     \
        for (int gate_ = 0; gate_ < NUM_GATES; gate_++) \
            for (struct chunk c = draw(size_, gates[gate_], beta_max), *once_ = &c; once_; once_ = NULL)

/* For the formulas that divide by gamma: exp(G) must stay far from underflow. */
#define FOR_EACH_MILD_CHUNK(c)                      \
    for (int size_ = 0; size_ < NUM_SIZES; size_++) \
        for (struct chunk c = draw(size_, -0.05, 1), *once_ = &c; once_; once_ = NULL)

/* ---- the judge, and the letters of the chunk form ---- */

/* The token recurrence in four steps: S <- alpha S; u = beta (v - k S); S <- S + k^T u; o = scale q S. */
static inline struct result recurrence(const struct chunk *c)
{
    struct result r = {zeros(c->C, c->V.cols), c->S0, zeros(c->C, c->V.cols)};
    for (int t = 0; t < c->C; t++) {
        struct mat k = row(c->K, t), u;
        r.S = times(exp(c->g[t]), r.S);
        u = times(c->beta[t], add(row(c->V, t), -1, mul(k, r.S)));
        r.S = add(r.S, 1, mul(transpose(k), u));
        put(&r.written, t, 0, u);
        put(&r.O, t, 0, times(c->scale, mul(row(c->Q, t), r.S)));
    }
    return r;
}

/* G_t; G_(-1) is 0. */
static inline double prefix_sum(const struct chunk *c, int t)
{
    double G = 0;
    for (int i = 0; i <= t; i++)
        G += c->g[i];
    return G;
}

/* exp(G_to - G_from), the decay of tokens from+1 .. to; decay(c, t, -1) is gamma_t. */
static inline double decay(const struct chunk *c, int to, int from)
{
    return exp(prefix_sum(c, to) - prefix_sum(c, from));
}

static inline struct mat decay_mask(const struct chunk *c)
{
    struct mat D = zeros(c->C, c->C);
    for (int i = 0; i < c->C; i++)
        for (int j = 0; j <= i; j++)
            D.x[i][j] = decay(c, i, j);
    return D;
}

/* Gamma x */
static inline struct mat gamma_rows(const struct chunk *c, struct mat x)
{
    double gamma[MAX];
    for (int i = 0; i < c->C; i++)
        gamma[i] = decay(c, i, -1);
    return scale_rows(gamma, x);
}

/* diag(exp(G_C - G_i)) Kc, transposed: what carries V' into the state. */
static inline struct mat keys_to_end(const struct chunk *c)
{
    double d[MAX];
    for (int i = 0; i < c->C; i++)
        d[i] = decay(c, c->C - 1, i);
    return transpose(scale_rows(d, c->K));
}

static inline struct mat chunk_L(const struct chunk *c)
{
    return lower(scale_rows(c->beta, hadamard(decay_mask(c), mul(c->K, transpose(c->K)))), 1);
}

static inline struct mat chunk_A(const struct chunk *c)
{
    return inverse_of_unit_lower(chunk_L(c));
}

static inline struct mat chunk_U(const struct chunk *c)
{
    return mul(chunk_A(c), scale_rows(c->beta, c->V));
}

static inline struct mat chunk_W(const struct chunk *c)
{
    return mul(chunk_A(c), scale_rows(c->beta, gamma_rows(c, c->K)));
}

/* M = I + StrictLower(B Kc Kc^T) without the I: no decay in it. */
static inline struct mat chunk_L_of_M(const struct chunk *c)
{
    return lower(scale_rows(c->beta, mul(c->K, transpose(c->K))), 1);
}

/* P = D o Q Kc^T */
static inline struct mat chunk_P(const struct chunk *c)
{
    return hadamard(decay_mask(c), mul(c->Q, transpose(c->K)));
}

static inline struct mat chunk_O(const struct chunk *c, struct mat V_new)
{
    return times(c->scale, add(gamma_rows(c, mul(c->Q, c->S0)), 1, mul(chunk_P(c), V_new)));
}

static inline struct mat chunk_S(const struct chunk *c, struct mat V_new)
{
    return add(times(decay(c, c->C - 1, -1), c->S0), 1, mul(keys_to_end(c), V_new));
}

/* V' without U and W. */
static inline struct mat residual_form(const struct chunk *c)
{
    struct mat R = add(c->V, -1, gamma_rows(c, mul(c->K, c->S0)));
    return mul(chunk_A(c), scale_rows(c->beta, R));
}

/* alpha_t (I - beta_t k_t^T k_t) */
static inline struct mat transition(const struct chunk *c, int t)
{
    struct mat k = row(c->K, t);
    return times(exp(c->g[t]), add(eye(c->K.cols), -c->beta[t], mul(transpose(k), k)));
}

/* sum over i <= t of z_i x_i, where z_i = (transition t) ... (transition i+1) beta_i k_i^T is a column. */
static inline struct mat z_times(const struct chunk *c, int t, struct mat X)
{
    struct mat sum = zeros(c->K.cols, X.cols), product = eye(c->K.cols);
    for (int i = t; i >= 0; i--) {
        struct mat z = times(c->beta[i], mul(product, transpose(row(c->K, i))));
        sum = add(sum, 1, mul(z, row(X, i)));
        product = mul(product, transition(c, i));
    }
    return sum;
}

/* Both parts of a run's map, each from a pass over tokens: E from the state I with v = 0, F from the state 0. */
static inline void segment_map(const struct chunk *c, struct mat *E, struct mat *F)
{
    struct chunk s = *c;
    s.S0 = zeros(c->K.cols, c->V.cols);
    *F = recurrence(&s).S;
    s.S0 = eye(c->K.cols);
    s.V = zeros(c->C, c->K.cols);
    *E = recurrence(&s).S;
}

static inline struct chunk rows_of(const struct chunk *c, int from, int count)
{
    struct chunk s = *c;
    s.C = count;
    s.Q = block(c->Q, from, 0, count, c->Q.cols);
    s.K = block(c->K, from, 0, count, c->K.cols);
    s.V = block(c->V, from, 0, count, c->V.cols);
    for (int i = 0; i < count; i++) {
        s.g[i] = c->g[from + i];
        s.beta[i] = c->beta[from + i];
    }
    return s;
}

#endif
