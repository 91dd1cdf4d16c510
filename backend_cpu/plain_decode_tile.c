#include "plain_decode_tile.h"

#include "cpu_rows.h"

/* Sums in eight parts, one register's worth, in a fixed order. */
static float sum8(const float part[8])
{
    return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

float gdn_decode_dot(const float *x, const float *y, int32_t count)
{
    float part[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int32_t j = 0; j < 8; j++) {
            part[j] += x[i + j] * y[i + j];
        }
    }
    for (int32_t j = 0; i < count; i++, j++) {
        part[j] += x[i] * y[i];
    }
    return sum8(part);
}

float gdn_decode_update(float *restrict s, float alpha, float u, const float *restrict k, const float *restrict q,
                        int32_t count)
{
    float part[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int32_t j = 0; j < 8; j++) {
            s[i + j] = alpha * s[i + j] + u * k[i + j];
            part[j] += q[i + j] * s[i + j];
        }
    }
    for (int32_t j = 0; i < count; i++, j++) {
        s[i] = alpha * s[i] + u * k[i];
        part[j] += q[i] * s[i];
    }
    return sum8(part);
}

void gdn_decode_load_tile(const void *src, const gdn_state_layout *layout, int64_t at, int32_t v0, int32_t columns,
                          int32_t K, float *tile)
{
    if (layout->k_stride == 1) {
        for (int32_t c = 0; c < columns; c++) {
            gdn_cpu_load_row(src, layout->dtype, at + (v0 + c) * layout->v_stride, K, tile + c * K);
        }
        return;
    }
    for (int32_t k = 0; k < K; k++) {
        float row[GDN_DECODE_TILE_COLUMNS];
        gdn_cpu_load_row(src, layout->dtype, at + v0 + k * layout->k_stride, columns, row);
        for (int32_t c = 0; c < columns; c++) {
            tile[c * K + k] = row[c];
        }
    }
}

void gdn_decode_store_tile(void *dst, const gdn_state_layout *layout, int64_t at, int32_t v0, int32_t columns,
                           int32_t K, const float *tile)
{
    if (layout->k_stride == 1) {
        for (int32_t c = 0; c < columns; c++) {
            gdn_cpu_store_row(dst, layout->dtype, at + (v0 + c) * layout->v_stride, K, tile + c * K);
        }
        return;
    }
    for (int32_t k = 0; k < K; k++) {
        float row[GDN_DECODE_TILE_COLUMNS];
        for (int32_t c = 0; c < columns; c++) {
            row[c] = tile[c * K + k];
        }
        gdn_cpu_store_row(dst, layout->dtype, at + v0 + k * layout->k_stride, columns, row);
    }
}
