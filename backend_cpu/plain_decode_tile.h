/* A few columns of one head's state, each as K numbers in a row, and what a token does to one of them. */
#ifndef GDN_CPU_PLAIN_DECODE_TILE_H
#define GDN_CPU_PLAIN_DECODE_TILE_H

#include <gdn/gdn.h>

#define GDN_DECODE_TILE_COLUMNS 8

/* Numbers of a tile, which lies on the stack (16 KiB): 8 columns up to K = 512, 4 of the longest. */
#define GDN_DECODE_TILE_SIZE 4096

static inline int32_t gdn_decode_tile_columns(int32_t K)
{
    const int32_t fit = GDN_DECODE_TILE_SIZE / K;
    return fit < GDN_DECODE_TILE_COLUMNS ? fit : GDN_DECODE_TILE_COLUMNS;
}

/* x.y, in a fixed order of summation. */
float gdn_decode_dot(const float *x, const float *y, int32_t count);

/* s <- alpha s + u k; returns q.s. */
float gdn_decode_update(float *restrict s, float alpha, float u, const float *restrict k, const float *restrict q,
                        int32_t count);

/* Columns v0..v0+columns-1 of a head's state to or from tile[columns][K]; `at` is the offset of its element (0, 0). */
void gdn_decode_load_tile(const void *src, const gdn_state_layout *layout, int64_t at, int32_t v0, int32_t columns,
                          int32_t K, float *tile);
void gdn_decode_store_tile(void *dst, const gdn_state_layout *layout, int64_t at, int32_t v0, int32_t columns,
                           int32_t K, const float *tile);

#endif
