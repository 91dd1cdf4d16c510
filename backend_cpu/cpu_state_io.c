#include "cpu_state_io.h"

#include "cpu_rows.h"

/* A [V, K] state is transposed on its way, in tiles that stay in the first-level cache. */
#define TILE 16

static int32_t min_int32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Part of a tile's row. A whole one has a constant length, for which the compiler writes wide moves; for a short
 * variable one it takes a string instruction, which is many times slower. */
static inline void load_part(const void *src, gdn_dtype dtype, int64_t offset, int32_t count, float *dst)
{
    if (count == TILE) {
        gdn_cpu_load_row(src, dtype, offset, TILE, dst);
    } else {
        gdn_cpu_load_row(src, dtype, offset, count, dst);
    }
}

static inline void store_part(void *dst, gdn_dtype dtype, int64_t offset, int32_t count, const float *src)
{
    if (count == TILE) {
        gdn_cpu_store_row(dst, dtype, offset, TILE, src);
    } else {
        gdn_cpu_store_row(dst, dtype, offset, count, src);
    }
}

void gdn_cpu_state_load(const void *src, const gdn_state_layout *layout, int64_t at, int32_t K, int32_t V, float *S)
{
    if (layout->v_stride == 1) {
        for (int32_t k = 0; k < K; k++) {
            gdn_cpu_load_row(src, layout->dtype, at + k * layout->k_stride, V, S + (int64_t)k * V);
        }
        return;
    }
    float tile[TILE][TILE];
    for (int32_t v0 = 0; v0 < V; v0 += TILE) {
        const int32_t rows = min_int32(TILE, V - v0);
        for (int32_t k0 = 0; k0 < K; k0 += TILE) {
            const int32_t columns = min_int32(TILE, K - k0);
            for (int32_t v = 0; v < rows; v++) {
                load_part(src, layout->dtype, at + (v0 + v) * layout->v_stride + k0, columns, tile[v]);
            }
            for (int32_t k = 0; k < columns; k++) {
                float *const row = S + (int64_t)(k0 + k) * V + v0;
                for (int32_t v = 0; v < rows; v++) {
                    row[v] = tile[v][k];
                }
            }
        }
    }
}

void gdn_cpu_state_store(void *dst, const gdn_state_layout *layout, int64_t at, int32_t K, int32_t V, const float *S)
{
    if (layout->v_stride == 1) {
        for (int32_t k = 0; k < K; k++) {
            gdn_cpu_store_row(dst, layout->dtype, at + k * layout->k_stride, V, S + (int64_t)k * V);
        }
        return;
    }
    float tile[TILE][TILE];
    for (int32_t v0 = 0; v0 < V; v0 += TILE) {
        const int32_t rows = min_int32(TILE, V - v0);
        for (int32_t k0 = 0; k0 < K; k0 += TILE) {
            const int32_t columns = min_int32(TILE, K - k0);
            for (int32_t k = 0; k < columns; k++) {
                const float *const row = S + (int64_t)(k0 + k) * V + v0;
                for (int32_t v = 0; v < rows; v++) {
                    tile[v][k] = row[v];
                }
            }
            for (int32_t v = 0; v < rows; v++) {
                store_part(dst, layout->dtype, at + (v0 + v) * layout->v_stride + k0, columns, tile[v]);
            }
        }
    }
}

/* Rows of `count` contiguous elements, `rows` of them, of one type. */
static void copy_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int32_t rows, int32_t count,
                      size_t size)
{
    for (int32_t i = 0; i < rows; i++) {
        /* In place, source and destination are the same. */
        memmove(dst + (size_t)(i * dst_stride) * size, src + (size_t)(i * src_stride) * size, (size_t)count * size);
    }
}

void gdn_cpu_state_copy(void *dst, const gdn_state_layout *dst_layout, int64_t dst_at, const void *src,
                        const gdn_state_layout *src_layout, int64_t src_at, int32_t K, int32_t V)
{
    const bool same_type = src && src_layout->dtype == dst_layout->dtype;
    const size_t size = gdn_dtype_size(dst_layout->dtype);
    if (same_type) {
        char *const to = (char *)dst + (size_t)dst_at * size;
        const char *const from = (const char *)src + (size_t)src_at * size;
        if (dst_layout->k_stride == 1 && src_layout->k_stride == 1) {
            copy_rows(to, dst_layout->v_stride, from, src_layout->v_stride, V, K, size);
            return;
        }
        if (dst_layout->v_stride == 1 && src_layout->v_stride == 1) {
            copy_rows(to, dst_layout->k_stride, from, src_layout->k_stride, K, V, size);
            return;
        }
    }
    for (int32_t v = 0; v < V; v++) {
        for (int32_t k = 0; k < K; k++) {
            const int64_t to = dst_at + v * dst_layout->v_stride + k * dst_layout->k_stride;
            const int64_t from = src ? src_at + v * src_layout->v_stride + k * src_layout->k_stride : 0;
            if (same_type) {
                memcpy((char *)dst + (size_t)to * size, (const char *)src + (size_t)from * size, size);
            } else {
                gdn_store_element(dst, dst_layout->dtype, to,
                                  src ? gdn_load_element(src, src_layout->dtype, from) : 0.0f);
            }
        }
    }
}
