/* The triangular solve, in float32 whatever the products are. */
#ifndef GDN_SIMD_SOLVE_H
#define GDN_SIMD_SOLVE_H

#include "simd_tile.h"

/* `sums`, if not NULL: x is what its `scale` and `add` make of what x holds. */
GDN_INLINE void solve_columns(int rows, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y,
                              float *pairs, const gdn_product *sums, int col, const int VECTORS)
{
    for (int row = 0; row < rows; row += SOLVE_ROWS) {
        const float *nb = n + (row / GDN_TOKEN_BLOCK) * n_block + row % GDN_TOKEN_BLOCK;
        vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

        GDN_UNROLL
        for (int i = 0; i < SOLVE_ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_load(x + (row + i) * GDN_PANEL + c * VF_LANES);
                if (sums) {
                    acc[i][c] = vf_mul(vf_set1(sums->scale[row + i]), acc[i][c]);
                }
            }
        }
        if (sums && sums->add) {
            add_rows(sums, acc, row, col, SOLVE_ROWS, VECTORS);
        }
        for (int j = 0; j < row; j++, nb += GDN_PAIR) {
            vf xj[TILE_VECTORS_MAX];
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                xj[c] = vf_load(x + j * GDN_PANEL + c * VF_LANES);
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
                const int at = (row + i) * GDN_PANEL + c * VF_LANES;
                vf_store(x + at, acc[i][c]);
                if (!pairs) {
                    vf_store(y + at, vf_mul(vf_set1(scale[row + i]), acc[i][c]));
                }
            }
        }
#ifdef VF_STORE_PAIR
        if (pairs) {
            GDN_UNROLL
            for (int i = 0; i < SOLVE_ROWS; i += 2) {
                GDN_UNROLL
                for (int c = 0; c < VECTORS; c++) {
                    const int at = (row + i) / 2 * GDN_PANEL + c * VF_LANES;
                    VF_STORE_PAIR(pairs + at, acc[i][c], acc[i + 1][c]);
                    VF_STORE_PAIR(y + at, vf_mul(vf_set1(scale[row + i]), acc[i][c]),
                                  vf_mul(vf_set1(scale[row + i + 1]), acc[i + 1][c]));
                }
            }
        }
#endif
    }
}

GDN_INLINE void solve_all(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y,
                          float *pairs, const gdn_product *sums)
{
    const int step = 2 * VF_LANES;
    int col = 0;
    for (; col + step <= cols; col += step) {
        solve_columns(rows, n, n_block, x + col, scale, y + col, pairs ? pairs + col : NULL, sums, col, 2);
    }
    if (col < cols) {
        solve_columns(rows, n, n_block, x + col, scale, y + col, pairs ? pairs + col : NULL, sums, col, 1);
    }
}

static void simd_solve(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y)
{
    solve_all(rows, cols, n, n_block, x, scale, y, NULL, NULL);
}

#ifdef VF_STORE_PAIR
static void simd_solve_pairs(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale,
                             float *y, float *pairs)
{
    solve_all(rows, cols, n, n_block, x, scale, y, pairs, NULL);
}
#endif

#endif /* GDN_SIMD_SOLVE_H */
