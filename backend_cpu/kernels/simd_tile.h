/* A tile of a product's results: ROWS x VECTORS registers, and the caller's rows that it meets at its end.
 *
 * Parameters marked const are constants at each call: the functions are inlined, their loops unrolled, and the arrays
 * become registers. */
#ifndef GDN_SIMD_TILE_H
#define GDN_SIMD_TILE_H

#include "kernels.h"

#ifdef __clang__
#define GDN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GDN_UNROLL _Pragma("GCC unroll 16")
#endif
#define GDN_INLINE static inline __attribute__((always_inline))

enum { TILE_ROWS_MAX = 8, TILE_VECTORS_MAX = 2 };

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

/* The caller's rows are far apart: token strides are kilobytes, beyond what a hardware prefetcher follows. What the next
 * chunk will want is asked for a few lines at a time, since a processor drops requests that come in a burst, and into the
 * second-level cache, since the first has too few places for lines a power of two apart. */
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

/* The share of a tile: as many rows for each 8 of the product as gets all of them asked. */
GDN_INLINE void ask_rows(const gdn_ask *ask, int row, int rows)
{
    const int share = (ask->count * 8 + rows - 1) / rows, first = (row + 7) / 8 * share;
    for (int i = first; i < first + share && i < ask->count; i++) {
        ask_line_range((const char *)ask->rows + i * ask->step, ask->bytes);
    }
}

GDN_INLINE void ask_all(const gdn_product *p, int row)
{
    for (int i = 0; i < 2; i++) {
        if (p->ask[i].count) {
            ask_rows(&p->ask[i], row, p->rows);
        }
    }
}

/* Rows row .. row + ROWS - 1 of the caller's tensor, added and asked for ahead. */
GDN_INLINE void add_rows_of(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                            const int ROWS, const int VECTORS, const gdn_dtype DTYPE)
{
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        if (row + i < p->add_rows) {
            const vf s = vf_set1(p->add_scale[(row + i) * p->add_scale_step]);
            const ptrdiff_t at = (row + i) * p->ldadd + col;
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_fma(s, load_any(DTYPE, p->add, at + c * VF_LANES), acc[i][c]);
            }
            if (p->add_ahead) {
                ask_ahead(p->add, DTYPE, at, p->add_ahead, VECTORS * VF_LANES);
            }
        }
    }
}

GDN_INLINE void store_rows_of(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                              const int ROWS, const int VECTORS, const gdn_dtype DTYPE)
{
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        if (row + i < p->out_rows) {
            const ptrdiff_t at = (row + i) * p->ldo + col;
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                store_any(DTYPE, p->out, at + c * VF_LANES, acc[i][c]);
            }
            if (p->out_ahead) {
                ask_ahead(p->out, DTYPE, at, p->out_ahead, VECTORS * VF_LANES);
            }
        }
    }
}

/* The type is asked once a tile. */
GDN_INLINE void add_rows(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                         const int ROWS, const int VECTORS)
{
    if (p->add_dtype == GDN_DTYPE_F32) {
        add_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_F32);
    } else if (p->add_dtype == GDN_DTYPE_BF16) {
        add_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_BF16);
    } else {
        add_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_F16);
    }
}

GDN_INLINE void store_rows(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                           const int ROWS, const int VECTORS)
{
    if (p->out_dtype == GDN_DTYPE_F32) {
        store_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_F32);
    } else if (p->out_dtype == GDN_DTYPE_BF16) {
        store_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_BF16);
    } else {
        store_rows_of(p, acc, row, col, ROWS, VECTORS, GDN_DTYPE_F16);
    }
}

#endif /* GDN_SIMD_TILE_H */
