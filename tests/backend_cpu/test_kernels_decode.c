/* Decode of every instruction set this machine has, against the plain twin and against itself token by token. */
#include "kernel_tables.h"

#include "numeric.h"

enum { MAX_K = 144, TOKENS = 5, COLUMNS = GDN_DECODE_COLUMNS };

static float state[BIG], out[BIG], wanted[BIG], tile[BIG];
static float k[TOKENS * MAX_K], q[TOKENS * MAX_K], v[TOKENS * COLUMNS], o[TOKENS * COLUMNS], o_wanted[TOKENS * COLUMNS];

typedef struct shape {
    bool kv, dense; /* dense: rows lie side by side */
    int K, count;
} shape;

static int rows_of(const shape *s)
{
    return s->kv ? s->K : s->count;
}

static int cols_of(const shape *s)
{
    return s->kv ? s->count : s->K;
}

/* Values of type `dtype`, and what the tokens are. */
static gdn_decode_block block_of(const shape *s, gdn_dtype dtype, const gdn_decode_block *terms)
{
    gdn_decode_block b = *terms;
    fill(k, TOKENS * MAX_K);
    fill(q, TOKENS * MAX_K);
    fill(v, TOKENS * COLUMNS);
    const int cols = cols_of(s);
    for (int i = 0; i < rows_of(s) * (cols + 3); i++) {
        gdn_store_element(state, dtype, i, (float)random_normal(&source));
    }
    for (int i = 0; i < TOKENS * MAX_K; i++) {
        k[i] *= 0.1f;
    }
    b.count = s->count;
    b.head_k_dim = s->K;
    b.k = k;
    b.q = q;
    b.v = v;
    b.o = o;
    b.src_dtype = b.dst_dtype = dtype;
    b.src = state;
    b.src_stride = s->dense ? cols : cols + 3;
    b.src_ahead = 16 * b.src_stride;
    b.asking_dots = rows_of(s) / 3;
    b.asking_update = rows_of(s) / 2;
    b.dst = out;
    b.dst_stride = s->dense ? cols : cols + 5;
    b.tile = tile;
    return b;
}

static void run(const gdn_cpu_kernels *kernels, const shape *s, const gdn_decode_block *b)
{
    (s->kv ? kernels->decode_kv : kernels->decode_vk)(b);
}

static const float alpha[TOKENS] = {0.875f, 0.5f, 1.0f, 0.0f, 0.75f}, beta[TOKENS] = {0.4f, 1.0f, 0.0f, 0.9f, 0.3f},
                   qk[TOKENS] = {0.2f, -0.7f, 1.5f, 0.1f, -0.2f};

typedef void check_shape(const gdn_cpu_kernels *kernels, const shape *s, const gdn_decode_block *terms);

static void each_count(const gdn_cpu_kernels *kernels, shape s, check_shape *check)
{
    const gdn_decode_block terms = {.alpha = alpha, .beta = beta, .qk = qk, .scale = 0.3f};
    for (s.count = 16; s.count <= COLUMNS; s.count += 16) {
        check(kernels, &s, &terms);
    }
}

static void each_shape(check_shape *check)
{
    for (int t = 0; t < num_tables; t++) {
        for (int kv = 0; kv < 2; kv++) {
            for (int K = 16; K <= MAX_K; K += 32) {
                each_count(tables[t], (shape){.kv = kv == 1, .K = K}, check);
            }
            each_count(tables[t], (shape){.kv = kv == 1, .dense = true, .K = 64}, check);
            each_count(tables[t], (shape){.kv = kv == 1, .dense = true, .K = 128}, check);
        }
    }
}

static void check_twin(const gdn_cpu_kernels *kernels, const shape *s, const gdn_decode_block *terms)
{
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    const int rows = rows_of(s), cols = cols_of(s);
    for (int d = 0; d < 6; d++) {
        gdn_decode_block b = block_of(s, dtypes[d % 3], terms);
        b.tokens = 1 + (s->K / 16 + s->count / 16 + d) % TOKENS;
        if (d >= 3) { /* widened on the way */
            b.dst_dtype = GDN_DTYPE_F32;
        }
        memset(out, 0xff, sizeof(out));
        memset(wanted, 0xff, sizeof(wanted));
        run(kernels, s, &b);
        b.dst = wanted;
        b.o = o_wanted;
        run(twin, s, &b);
        for (int t = 0; t < b.tokens; t++) {
            require_close("decode o", kernels, o + t * COLUMNS, o_wanted + t * COLUMNS, s->count, 4e-6);
        }
        const double ulp = b.dst_dtype == GDN_DTYPE_F32 ? 4e-6 : b.dst_dtype == GDN_DTYPE_BF16 ? 8e-3 : 1e-3;
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < b.dst_stride; c++) {
                const int64_t at = r * b.dst_stride + c;
                const double x = (double)gdn_load_element(out, b.dst_dtype, at),
                             y = (double)gdn_load_element(wanted, b.dst_dtype, at);
                if (c < cols ? !(fabs(x - y) <= ulp * (1.0 + fabs(y))) : !isnan(x)) {
                    fail_msg("%s.decode: row %d, column %d is %g, must be %g", kernels->name, r, c, x, y);
                }
            }
        }
    }
}

/* Several tokens at once, one at a time, into another place, in place, without a place, and without a tile: the same bits. */
static void check_itself(const gdn_cpu_kernels *kernels, const shape *s, const gdn_decode_block *terms)
{
    const int rows = rows_of(s), cols = cols_of(s);
    gdn_decode_block b = block_of(s, GDN_DTYPE_F32, terms);
    b.tokens = TOKENS;
    b.dst_stride = b.src_stride;
    run(kernels, s, &b);
    memcpy(o_wanted, o, sizeof(o));
    memset(o, 0xff, sizeof(o));
    b.dst = NULL;
    run(kernels, s, &b);
    for (int t = 0; t < TOKENS; t++) {
        require_same("decode without a state", kernels, o + t * COLUMNS, o_wanted + t * COLUMNS,
                     (size_t)s->count * sizeof(float));
    }
    b.dst = wanted;
    b.tile = wanted;
    if (s->kv ? b.dst_stride == s->count : b.dst_stride == s->K) {
        run(kernels, s, &b);
        require_same("decode without a tile", kernels, wanted, out, (size_t)(rows * cols) * sizeof(float));
    }
    b.tile = tile;
    b.dst = state;
    b.tokens = 1;
    for (int t = 0; t < TOKENS; t++) {
        b.k = k + t * s->K;
        b.q = q + t * s->K;
        b.v = v + t * COLUMNS;
        b.o = o + t * COLUMNS;
        b.alpha = alpha + t;
        b.beta = beta + t;
        b.qk = qk + t;
        run(kernels, s, &b);
        require_same("decode o, token by token", kernels, o + t * COLUMNS, o_wanted + t * COLUMNS,
                     (size_t)s->count * sizeof(float));
    }
    for (int r = 0; r < rows; r++) {
        require_same("decode, token by token", kernels, state + r * b.src_stride, out + r * b.src_stride,
                     (size_t)cols * sizeof(float));
    }
}

static void decode_is_the_formula(void **unused)
{
    (void)unused;
    each_shape(check_twin);
}

static void tokens_at_once_are_tokens_in_turn(void **unused)
{
    (void)unused;
    each_shape(check_itself);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_is_the_formula),
        cmocka_unit_test(tokens_at_once_are_tokens_in_turn),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
