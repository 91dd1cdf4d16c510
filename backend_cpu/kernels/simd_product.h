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

GDN_INLINE void product_tile(const gdn_product *p, int row, int col, const int ROWS, const int VECTORS)
{
    const float *a = p->a + (row / GDN_TOKEN_BLOCK) * p->a_block + row % GDN_TOKEN_BLOCK;
    const float *b = p->b + col;
    const ptrdiff_t lda = p->lda, ldb = p->ldb;
    vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            acc[i][c] = vf_zero();
        }
    }
    for (int j = 0; j < p->depth; j++, a += lda, b += ldb) {
        vf bj[TILE_VECTORS_MAX];
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            bj[c] = vf_load(b + c * VF_LANES);
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            vf aij = vf_set1(a[i]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_fma(aij, bj[c], acc[i][c]);
            }
        }
    }
    if (p->out_scale) {
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            vf s = vf_set1(p->out_scale[row + i]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_mul(s, acc[i][c]);
            }
        }
    }
    if (p->add) {
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            const float *add = p->add + (row + i) * p->ldadd + col;
            vf s = vf_set1(p->add_scale[(row + i) * p->add_scale_step]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_fma(s, vf_load(add + c * VF_LANES), acc[i][c]);
            }
        }
    }
    float *out = p->out + row * p->ldo + col;
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            vf_store(out + i * p->ldo + c * VF_LANES, acc[i][c]);
        }
    }
}

GDN_INLINE void product_columns(const gdn_product *p, int col, const int VECTORS)
{
    int row = 0;
    while (row < p->rows) {
        /* A tile stays inside a block of 16 rows, where a jumps. Tiles of 6 leave no 2: 6 + 6 + 4, or 4 + 4. */
        int left = GDN_TOKEN_BLOCK - row % GDN_TOKEN_BLOCK;
        left = left < p->rows - row ? left : p->rows - row;
        if (left >= PRODUCT_ROWS && left - PRODUCT_ROWS != 2) {
            product_tile(p, row, col, PRODUCT_ROWS, VECTORS);
            row += PRODUCT_ROWS;
        } else {
            product_tile(p, row, col, 4, VECTORS);
            row += 4;
        }
    }
}

static void simd_product(const gdn_product *p)
{
    const int step = 2 * VF_LANES;
    int col = 0;
    for (; col + step <= p->cols; col += step) {
        product_columns(p, col, 2);
    }
    if (col < p->cols) {
        product_columns(p, col, 1);
    }
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
