/* The micro-kernels of the fused CPU implementations: one table for each instruction set.
 *
 * The algorithm (fused_prefill.c, fused_decode.c) is written once and calls nothing but these.
 * README.md draws the blocks they work on. Letters are those of docs/algorithm.md.
 *
 * Every output element of a product is one chain of multiply-adds in the order of depth, whatever
 * the tile. So its bits depend neither on how many rows or columns a call has nor on its neighbours.
 */
#ifndef GDN_CPU_KERNELS_H
#define GDN_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gdn/gdn.h>

enum {
    GDN_TOKEN_BLOCK = 16, /* tokens of a block: the unit of the packed q and k, and of the triangle */
    GDN_PAIR = 2 * GDN_TOKEN_BLOCK, /* a packed row holds a block's k values, then its q values */
    GDN_PANEL = 32, /* columns of V worked on at once: a [K, 32] panel of the state stays in L1 */
    GDN_MAX_STRIP = 4, /* panels that go through a chunk stage by stage */
    GDN_MAX_CHUNK = 64,
    GDN_DECODE_COLUMNS = 128 /* most columns of a block */
};

/* Rows of the caller's memory. */
typedef struct gdn_ask {
    const void *rows;
    int count;
    int bytes; /* of a row */
    ptrdiff_t step; /* bytes */
} gdn_ask;

/* A word of an operand is a float32, and a product of words is a product; or, in the kernels that have pair_rows, a pair of
 * bfloat16, and a product of words is the sum of two products. Sums are float32 in both.
 *
 * out[i][c] = scale[i] * sum_{j < depth} a[j][i] * b[j][c]
 *           + sum_{j <= i, j < lower_depth} lower[j][i] * lower_b[j][c]          (lower NULL: no such term; in bfloat16 the
 *                                                                                sum is over the pairs of these j)
 *           + add_scale[i] * add[i][c]                                           (add NULL: no such term)
 * for i < rows, c < cols. a[j][i] is at a + j * lda + (i / 16) * a_block + i % 16, or with left_row_major at
 * a + j + (i / 16) * a_block + i % 16 * lda; lower, zero for j > i, likewise. With a_packed_keys (float32 `product` alone), a is
 * the packed array of q and k read across: a[j][i] is at a + (j / 16) * a_block + i * GDN_PAIR + j % 16. add and out are rows
 * of any float type, strides in elements; rows of add past add_rows are zeros, rows of out past out_rows are not written.
 * out may be add. */
typedef struct gdn_product {
    int rows; /* multiple of 8 */
    int cols; /* 16 or 32 */
    int depth; /* words, >= 0 */
    bool a_packed_keys;
    const float *a;
    ptrdiff_t lda, a_block;
    const float *b; /* rows of GDN_PANEL words */
    const float *scale; /* NULL: 1 */

    int lower_depth; /* numbers */
    const float *lower;
    ptrdiff_t lower_ld, lower_block;
    const float *lower_b; /* rows of GDN_PANEL */

    gdn_dtype add_dtype;
    int add_rows;
    const void *add;
    ptrdiff_t ldadd;
    const float *add_scale; /* (`product` alone) NULL: 1 */
    ptrdiff_t add_scale_step; /* 0: add_scale[0] for every row; 1: one for each row */
    ptrdiff_t add_ahead; /* bytes from a row of add to one that the next chunk will want; 0: none */

    gdn_dtype out_dtype;
    int out_rows;
    void *out;
    ptrdiff_t ldo;
    ptrdiff_t out_ahead; /* likewise */

    gdn_ask ask[2]; /* rows that will be wanted later, asked for while this works; count 0: none */
} gdn_product;

/* Gates of `count` <= GDN_MAX_CHUNK tokens. log_decay is clamped at -104, whose exponential is 0 in float32. */
typedef struct gdn_gate_terms {
    gdn_gate_form gate_form;
    gdn_beta_form beta_form;
    double A_log, dt_bias; /* RAW only */
    double beta_scale; /* LOGIT only */
} gdn_gate_terms;

/* `count` rows of a [V, K] state, or columns of a [K, V] one, at most GDN_DECODE_COLUMNS, go through `tokens` tokens:
 *   u = beta (v - alpha k s);  o = scale (alpha q s + (q k) u);  s = alpha s + k u
 * A row (of [K, V]: a column) of src is read before it is written to dst, which may be src; where there are several tokens, the
 * state is in `tile` in between, which may be dst. */
typedef struct gdn_decode_block {
    int count; /* a multiple of 16 */
    int head_k_dim; /* a multiple of 16 */
    int tokens;
    const float *k, *q; /* [tokens, head_k_dim] */
    const float *alpha, *beta, *qk; /* [tokens] */
    float scale;
    const float *v; /* [tokens, GDN_DECODE_COLUMNS], the first `count` of each row */
    float *o; /* likewise */
    gdn_dtype src_dtype;
    const void *src;
    ptrdiff_t src_stride;
    /* Elements from what is read to what will be. The first token's dots (of [K, V]) and its update ask for it meanwhile, those of
     * src's rows below these. */
    ptrdiff_t src_ahead;
    int asking_dots, asking_update;
    gdn_dtype dst_dtype; /* that of src or float32 */
    void *dst; /* may be src, or the tile; NULL: the state is not wanted */
    ptrdiff_t dst_stride;
    float *tile; /* several tokens: [count, head_k_dim] or [head_k_dim, count]. May be src; or dst, of such rows */
} gdn_decode_block;

typedef struct gdn_cpu_kernels {
    const char *name; /* "avx512" */

    /* Panels that take each step of a chunk before any takes the next: 1 keeps a panel in L1; more keep the left operands there,
     * and give rounded rows time to arrive before they are loaded. */
    int strip;

    /* bfloat16 kernels only, else NULL: rows x cols numbers (rows of src) -> ceil(rows / 2) rows of cols words, each the
     * rounded pair of rows 2 j and 2 j + 1; a row that is not there counts as zeros. cols a multiple of 16. */
    void (*pair_rows)(int rows, int cols, const float *src, ptrdiff_t lds, float *dst, ptrdiff_t ldd);

    /* Tiles: depth is fastest in left operands, which are padded with zeros to whole tiles, and products have no `lower` beside
     * `scale`. Such kernels alone have what follows; cols is a multiple of 32. */
    bool left_row_major;
    /* rows x cols numbers, each row times its scale -> rows of cols / 2 words, the pairs along the row; */
    void (*round_rows)(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                       ptrdiff_t ldd);
    /* and such rows -> words of the pairs of rows 2 j and 2 j + 1, as pair_rows gives them. */
    void (*pair_words)(int rows, int cols, const float *src, ptrdiff_t lds, float *dst, ptrdiff_t ldd);

    /* `count` times solve_pairs, of as many rows, where x = p->out holds only the sums of p, a product_rows whose scale and add
     * are still to be applied. */
    void (*solve_sums)(const gdn_product *p, int count, const float *n, ptrdiff_t n_block, const float *scale,
                       float *const *y, float *const *pairs);

    void (*thread_begin)(void); /* (optional) called by each thread before and after its work */
    void (*thread_end)(void);

    /* `count` products, none of which reads what another writes: the whole of gdn_product, */
    void (*product_rows)(const gdn_product *p, int count);
    /* and without scale, lower, ahead or rows left out, add and out float32, add_scale_step 0. */
    void (*product)(const gdn_product *p, int count);

    /* Forward substitution with a unit lower triangle, in place: x[i] += sum_{j < i} n[j][i] x[j], n = -L; and
     * y[i] = scale[i] x[i]. n[j][i] of row block b is at n + b * n_block + j * GDN_PAIR + i % 16; rows a multiple of 8, cols 16
     * or 32; x and y are rows of GDN_PANEL. */
    void (*solve)(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y);
    /* bfloat16 kernels only: the same, but y receives the pairs of scale[i] x[i], and `pairs` those of x[i]. */
    void (*solve_pairs)(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y,
                        float *pairs);

    /* One row block of -L | P from k k^T | q k^T (both [rows, GDN_PAIR]; rows = tokens up to the block's end):
     *   D = exp(G_i - G_j);  out = -beta_i D (k_i k_j), i > j, else 0  |  D (q_i k_j), i >= j, else 0
     * G as the sum of two floats; G and beta are those of the chunk, `first` the block's first token. */
    void (*decay_mask)(int rows, int first, const float *G_high, const float *G_low, const float *beta,
                       const float *kkqk, float *out);

    /* gate, beta raw values -> log_decay (clamped) and beta. In place allowed. */
    void (*gates)(const gdn_gate_terms *terms, int count, const double *gate, const double *beta, double *log_decay,
                  double *beta_out);
    /* y = exp(x), x <= 0, count a multiple of 16 */
    void (*exp)(int count, const float *x, float *y);

    /* Rows of GDN_DTYPE_F32, BF16 or F16 from and to float32; cols a multiple of 16. Strides in elements. */
    void (*load_rows)(gdn_dtype dtype, int rows, int cols, const void *src, ptrdiff_t stride, float *dst,
                      ptrdiff_t ldd);
    void (*store_rows)(gdn_dtype dtype, int rows, int cols, const float *src, ptrdiff_t lds, void *dst,
                       ptrdiff_t stride);
    /* dst[c][r] = scale[r] src[r][c], scale NULL: 1; rows and cols multiples of 16 */
    void (*transpose)(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                      ptrdiff_t ldd);

    /* x[i] *= scale[i]; cols a multiple of 16 */
    void (*scale_rows)(int rows, int cols, const float *scale, float *x, ptrdiff_t ldx);
    /* factor[i] = scale over the l2 norm of row i, as `norm` says; scale alone for GDN_QK_NORM_NONE */
    void (*norm_factors)(gdn_qk_norm norm, float eps, float scale, int rows, int cols, const float *x, ptrdiff_t ldx,
                         float *factor);
    float (*dot)(int count, const float *x, const float *y); /* count a multiple of 16 */

    int decode_columns; /* of a [K, V] state that decode_kv takes best where they do not go through the tile */
    void (*decode_vk)(const gdn_decode_block *b);
    void (*decode_kv)(const gdn_decode_block *b);
} gdn_cpu_kernels;

/* The tables that this build has; a pointer is NULL where the architecture has no such instruction set. */
extern const gdn_cpu_kernels gdn_cpu_kernels_scalar;
#if defined(__x86_64__)
extern const gdn_cpu_kernels gdn_cpu_kernels_avx2;
extern const gdn_cpu_kernels gdn_cpu_kernels_avx512;
extern const gdn_cpu_kernels gdn_cpu_kernels_avx512_bf16;
extern const gdn_cpu_kernels gdn_cpu_kernels_amx_bf16;
#elif defined(__aarch64__)
extern const gdn_cpu_kernels gdn_cpu_kernels_neon;
#endif

#endif /* GDN_CPU_KERNELS_H */
