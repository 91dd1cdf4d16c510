/* The triangular solve of two panels at once, for kernels that leave sums to it. */
#ifndef GDN_SIMD_SOLVE_TWO_H
#define GDN_SIMD_SOLVE_TWO_H

#include "simd_tile.h"

/* solve_pairs of whole panels of 32 columns, two at once: a triangle of 4 rows leaves the unit less to wait for than one of 8.
 * `p`: the two products whose sums alone are in x. Every element takes the same steps as in solve_columns. */
static __attribute__((noinline)) void solve_two_panels(const gdn_product *p, const float *n, ptrdiff_t n_block,
                                                       const float *scale, float *const y[2], float *const pairs[2])
{
    enum { ROWS = 4, PANELS = 2, VECTORS = GDN_PANEL / VF_LANES };
    float *const x[PANELS] = {p[0].out, p[1].out};
    for (int row = 0; row < p->rows; row += ROWS) {
        const float *nb = n + (row / GDN_TOKEN_BLOCK) * n_block + row % GDN_TOKEN_BLOCK;
        vf acc[PANELS][TILE_ROWS_MAX][TILE_VECTORS_MAX];
        GDN_UNROLL
        for (int m = 0; m < PANELS; m++) {
            GDN_UNROLL
            for (int i = 0; i < ROWS; i++) {
                const vf s = vf_set1(p[m].scale[row + i]);
                GDN_UNROLL
                for (int c = 0; c < VECTORS; c++) {
                    acc[m][i][c] = vf_mul(s, vf_load(x[m] + (row + i) * GDN_PANEL + c * VF_LANES));
                }
            }
            if (p[m].add) {
                add_rows(&p[m], acc[m], row, 0, ROWS, VECTORS);
            }
        }
        for (int j = 0; j < row; j++, nb += GDN_PAIR) {
            vf xj[PANELS][VECTORS];
            GDN_UNROLL
            for (int m = 0; m < PANELS; m++) {
                GDN_UNROLL
                for (int c = 0; c < VECTORS; c++) {
                    xj[m][c] = vf_load(x[m] + j * GDN_PANEL + c * VF_LANES);
                }
            }
            GDN_UNROLL
            for (int i = 0; i < ROWS; i++) {
                const vf nij = vf_set1(nb[i]);
                GDN_UNROLL
                for (int m = 0; m < PANELS; m++) {
                    GDN_UNROLL
                    for (int c = 0; c < VECTORS; c++) {
                        acc[m][i][c] = vf_fma(nij, xj[m][c], acc[m][i][c]);
                    }
                }
            }
        }
        GDN_UNROLL
        for (int j = 0; j < ROWS; j++) {
            GDN_UNROLL
            for (int i = 1; i < ROWS; i++) {
                if (i > j) {
                    const vf nij = vf_set1(nb[j * GDN_PAIR + i]);
                    GDN_UNROLL
                    for (int m = 0; m < PANELS; m++) {
                        GDN_UNROLL
                        for (int c = 0; c < VECTORS; c++) {
                            acc[m][i][c] = vf_fma(nij, acc[m][j][c], acc[m][i][c]);
                        }
                    }
                }
            }
        }
        GDN_UNROLL
        for (int m = 0; m < PANELS; m++) {
            GDN_UNROLL
            for (int i = 0; i < ROWS; i += 2) {
                GDN_UNROLL
                for (int c = 0; c < VECTORS; c++) {
                    const int at = (row + i) * GDN_PANEL + c * VF_LANES;
                    const int half = (row + i) / 2 * GDN_PANEL + c * VF_LANES;
                    const vf even = acc[m][i][c], odd = acc[m][i + 1][c];
                    vf_store(x[m] + at, even);
                    vf_store(x[m] + at + GDN_PANEL, odd);
                    VF_STORE_PAIR(pairs[m] + half, even, odd);
                    VF_STORE_PAIR(y[m] + half, vf_mul(vf_set1(scale[row + i]), even),
                                  vf_mul(vf_set1(scale[row + i + 1]), odd));
                }
            }
        }
    }
}

#endif /* GDN_SIMD_SOLVE_TWO_H */
