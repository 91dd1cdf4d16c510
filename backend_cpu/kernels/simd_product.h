/* Products, in terms of one vector type (a vec_*.h is included before).
 *
 * A tile walks the depth once: each step loads VECTORS vectors of b and broadcasts ROWS words of a. */
#ifndef GDN_SIMD_PRODUCT_H
#define GDN_SIMD_PRODUCT_H

#include "simd_tile.h"

#ifndef VF_WORD
/* Numbers in a word of an operand, and the product of words. */
#define VF_WORD 1
GDN_INLINE vf vf_word_fma(vf a, vf b, vf c)
{
    return vf_fma(a, b, c);
}
#endif

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
                acc[i][c] = vf_word_fma(aij, bj[c], acc[i][c]);
            }
        }
    }
}

/* PLAIN: only `add` of float32, one add_scale, and all rows of a float32 out: nothing but the products' own work. */
GDN_INLINE void product_tile(const gdn_product *p, int row, int col, const int ROWS, const int VECTORS, const int PLAIN)
{
    const int block = row / GDN_TOKEN_BLOCK, in_block = row % GDN_TOKEN_BLOCK;
    vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

    if (!PLAIN) {
        if (p->ask_rows && col == 0) {
            ask_rows(p, row);
        }
        if (p->add) {
            ask_tile(p->add, p->add_dtype, p->ldadd, row, col, p->add_rows, ROWS, VECTORS);
        } else {
            ask_tile(p->out, p->out_dtype, p->ldo, row, col, p->out_rows, ROWS, VECTORS);
        }
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
        const float *add = p->add ? (const float *)p->add + row * p->ldadd + col : NULL;
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
        accumulate(acc, (depth + VF_WORD - 1) / VF_WORD, p->lower + block * p->lower_block + in_block, p->lower_ld,
                   p->lower_b + col, GDN_PANEL, ROWS, VECTORS);
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

#endif /* GDN_SIMD_PRODUCT_H */
