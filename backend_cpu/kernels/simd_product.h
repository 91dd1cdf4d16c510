/* Products and the triangular solve, in terms of one vector type (a vec_*.h is included before).
 *
 * A tile keeps ROWS x VECTORS accumulators in registers and walks the depth once: each step loads VECTORS
 * vectors of b and broadcasts ROWS values of a. Loop bounds that are parameters marked const are constants
 * at each call: the functions are inlined, the loops unrolled, the arrays become registers. */
#ifndef GDN_SIMD_PRODUCT_H
#define GDN_SIMD_PRODUCT_H

#include "kernels.h"

#ifdef __clang__
#define GDN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GDN_UNROLL _Pragma("GCC unroll 16")
#endif
#define GDN_INLINE static inline __attribute__((always_inline))

enum { TILE_ROWS_MAX = 8, TILE_VECTORS_MAX = 2 };

/* acc[i][c] += sum_{j < depth} a[j * lda + i] * b[j * ldb + c] */
GDN_INLINE void accumulate(vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int depth, const float *a, ptrdiff_t lda,
                           const float *b, ptrdiff_t ldb, const int ROWS, const int VECTORS)
{
    for (int j = 0; j < depth; j++, a += lda, b += ldb) {
        vf bj[TILE_VECTORS_MAX];
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            bj[c] = vf_load(b + c * VF_LANES);
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            const vf aij = vf_set1(a[i]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_fma(aij, bj[c], acc[i][c]);
            }
        }
    }
}

GDN_INLINE vf load_any(gdn_dtype dtype, const void *data, ptrdiff_t at)
{
    return dtype == GDN_DTYPE_F32    ? vf_load((const float *)data + at)
           : dtype == GDN_DTYPE_BF16 ? vf_load_bf16((const uint16_t *)data + at)
                                     : vf_load_f16((const uint16_t *)data + at);
}

GDN_INLINE void store_any(gdn_dtype dtype, void *data, ptrdiff_t at, vf x)
{
    if (dtype == GDN_DTYPE_F32) {
        vf_store((float *)data + at, x);
    } else if (dtype == GDN_DTYPE_BF16) {
        vf_store_bf16((uint16_t *)data + at, x);
    } else {
        vf_store_f16((uint16_t *)data + at, x);
    }
}

/* What the next chunk will read is far from what this one reads: token strides are kilobytes. It is asked for a few
 * lines at a time, since a processor drops requests that come in a burst, and into the second-level cache, since the
 * first has too few places for lines a power of two apart. */
GDN_INLINE void ask_line_range(const char *row, int bytes)
{
    for (int b = 0; b < bytes; b += 64) {
        __builtin_prefetch(row + b, 0, 2);
    }
}

GDN_INLINE void ask_ahead(const void *data, gdn_dtype dtype, ptrdiff_t at, ptrdiff_t ahead, int cols)
{
    const int size = dtype == GDN_DTYPE_F32 ? 4 : 2;
    ask_line_range((const char *)data + at * size + ahead, cols * size);
}

GDN_INLINE void ask_rows(const gdn_product *p, int row)
{
    const int tiles = p->rows / 8, tile = (row + 7) / 8;
    for (int i = p->ask_rows * tile / tiles; i < p->ask_rows * (tile + 1) / tiles && i < p->ask_rows; i++) {
        ask_line_range((const char *)p->ask + i * p->ask_step, p->ask_bytes);
    }
}

/* Rows row .. row + ROWS - 1 of the caller's tensor, added and asked for ahead. */
GDN_INLINE void add_rows(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                         const int ROWS, const int VECTORS)
{
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        if (row + i < p->add_rows) {
            const vf s = vf_set1(p->add_scale[(row + i) * p->add_scale_step]);
            const ptrdiff_t at = (row + i) * p->ldadd + col;
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_fma(s, load_any(p->add_dtype, p->add, at + c * VF_LANES), acc[i][c]);
            }
            if (p->add_ahead) {
                ask_ahead(p->add, p->add_dtype, at, p->add_ahead, VECTORS * VF_LANES);
            }
        }
    }
}

GDN_INLINE void store_rows(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                           const int ROWS, const int VECTORS)
{
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        if (row + i < p->out_rows) {
            const ptrdiff_t at = (row + i) * p->ldo + col;
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                store_any(p->out_dtype, p->out, at + c * VF_LANES, acc[i][c]);
            }
            if (p->out_ahead) {
                ask_ahead(p->out, p->out_dtype, at, p->out_ahead, VECTORS * VF_LANES);
            }
        }
    }
}

/* PLAIN: only `add` of float32, one add_scale, and all rows of a float32 out: nothing but the products' own work. */
GDN_INLINE void product_tile(const gdn_product *p, int row, int col, const int ROWS, const int VECTORS, const int PLAIN)
{
    const int block = row / GDN_TOKEN_BLOCK, in_block = row % GDN_TOKEN_BLOCK;
    vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

    if (!PLAIN && p->ask_rows && col == 0) {
        ask_rows(p, row);
    }
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            acc[i][c] = vf_zero();
        }
    }
    accumulate(acc, p->depth, p->a + block * p->a_block + in_block, p->lda, p->b + col, p->ldb, ROWS, VECTORS);
    if (PLAIN) {
        float *out = (float *)p->out + row * p->ldo + col;
        const float *add = (const float *)p->add + row * p->ldadd + col;
        const vf s = p->add ? vf_set1(p->add_scale[0]) : vf_zero();
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                if (p->add) {
                    acc[i][c] = vf_fma(s, vf_load(add + i * p->ldadd + c * VF_LANES), acc[i][c]);
                }
                vf_store(out + i * p->ldo + c * VF_LANES, acc[i][c]);
            }
        }
        return;
    }
    if (p->scale) {
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            const vf s = vf_set1(p->scale[row + i]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_mul(s, acc[i][c]);
            }
        }
    }
    if (p->lower) {
        const int depth = row + ROWS < p->lower_depth ? row + ROWS : p->lower_depth;
        accumulate(acc, depth, p->lower + block * p->lower_block + in_block, GDN_PAIR, p->lower_b + col, GDN_PANEL,
                   ROWS, VECTORS);
    }
    if (p->add) {
        add_rows(p, acc, row, col, ROWS, VECTORS);
    }
    store_rows(p, acc, row, col, ROWS, VECTORS);
}

GDN_INLINE void product_columns(const gdn_product *p, int col, const int VECTORS, const int PLAIN)
{
    int row = 0;
    while (row < p->rows) {
        /* A tile stays inside a block of 16 rows, where a jumps. Tiles of 6 leave no 2: 6 + 6 + 4, or 4 + 4. */
        int left = GDN_TOKEN_BLOCK - row % GDN_TOKEN_BLOCK;
        left = left < p->rows - row ? left : p->rows - row;
        if (left >= PRODUCT_ROWS && left - PRODUCT_ROWS != 2) {
            product_tile(p, row, col, PRODUCT_ROWS, VECTORS, PLAIN);
            row += PRODUCT_ROWS;
        } else {
            product_tile(p, row, col, 4, VECTORS, PLAIN);
            row += 4;
        }
    }
}

GDN_INLINE void product_all(const gdn_product *p, const int PLAIN)
{
    const int step = 2 * VF_LANES;
    int col = 0;
    for (; col + step <= p->cols; col += step) {
        product_columns(p, col, 2, PLAIN);
    }
    if (col < p->cols) {
        product_columns(p, col, 1, PLAIN);
    }
}

static void simd_product(const gdn_product *p)
{
    product_all(p, 1);
}

static void simd_product_rows(const gdn_product *p)
{
    product_all(p, 0);
}

GDN_INLINE void solve_columns(int rows, const float *n, ptrdiff_t n_block, float *x, ptrdiff_t ldx, const int VECTORS)
{
    for (int row = 0; row < rows; row += SOLVE_ROWS) {
        const float *nb = n + (row / GDN_TOKEN_BLOCK) * n_block + row % GDN_TOKEN_BLOCK;
        vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

        GDN_UNROLL
        for (int i = 0; i < SOLVE_ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_load(x + (row + i) * ldx + c * VF_LANES);
            }
        }
        for (int j = 0; j < row; j++, nb += GDN_PAIR) {
            vf xj[TILE_VECTORS_MAX];
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                xj[c] = vf_load(x + j * ldx + c * VF_LANES);
            }
            GDN_UNROLL
            for (int i = 0; i < SOLVE_ROWS; i++) {
                vf nij = vf_set1(nb[i]);
                GDN_UNROLL
                for (int c = 0; c < VECTORS; c++) {
                    acc[i][c] = vf_fma(nij, xj[c], acc[i][c]);
                }
            }
        }
        /* The triangle on the diagonal, wholly in registers. */
        GDN_UNROLL
        for (int j = 0; j < SOLVE_ROWS; j++) {
            GDN_UNROLL
            for (int i = 1; i < SOLVE_ROWS; i++) {
                if (i > j) {
                    vf nij = vf_set1(nb[j * GDN_PAIR + i]);
                    GDN_UNROLL
                    for (int c = 0; c < VECTORS; c++) {
                        acc[i][c] = vf_fma(nij, acc[j][c], acc[i][c]);
                    }
                }
            }
        }
        GDN_UNROLL
        for (int i = 0; i < SOLVE_ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                vf_store(x + (row + i) * ldx + c * VF_LANES, acc[i][c]);
            }
        }
    }
}

static void simd_solve(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, ptrdiff_t ldx)
{
    const int step = 2 * VF_LANES;
    int col = 0;
    for (; col + step <= cols; col += step) {
        solve_columns(rows, n, n_block, x + col, ldx, 2);
    }
    if (col < cols) {
        solve_columns(rows, n, n_block, x + col, ldx, 1);
    }
}

#endif /* GDN_SIMD_PRODUCT_H */
