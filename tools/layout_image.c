#include "layout_image.h"

#include <string.h>

#define MAX_DIM 1024 /* of a head, as gdn.h bounds it */

/* Element offset of a token: within its row for an equal-length batch and a decode, else within the packed tokens. */
static int64_t token_offset(const workload *load, const gdn_layout *layout, int64_t seq, int64_t token)
{
    const gdn_problem *const problem = &load->problem;
    const bool rows = problem->operation == GDN_OPERATION_DECODE || problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
    if (!rows || layout->row_stride == 0) {
        return token * layout->token_stride;
    }
    return seq * layout->row_stride + (token - load->cu[seq]) * layout->token_stride;
}

size_t layout_token_bytes(const workload *load, const gdn_layout *layout, int32_t heads, int32_t dim)
{
    if (load->total_tokens == 0) {
        return 0;
    }
    const int64_t last = token_offset(load, layout, load->num_seqs - 1, load->total_tokens - 1);
    return (size_t)(last + (heads - 1) * layout->head_stride + dim) * gdn_dtype_size(layout->dtype);
}

/* `count` neighbouring elements. */
static void access_run(unsigned char *image, int64_t offset, gdn_dtype dtype, float *values, int64_t count,
                       layout_access access, const unsigned char *original)
{
    const size_t size = gdn_dtype_size(dtype);
    unsigned char *const at = image + (size_t)offset * size;
    switch (access) {
    case LAYOUT_ENCODE:
        (void)gdn_convert(at, dtype, values, GDN_DTYPE_F32, count);
        break;
    case LAYOUT_DECODE:
        (void)gdn_convert(values, GDN_DTYPE_F32, at, dtype, count);
        break;
    case LAYOUT_ERASE:
        if (original != NULL) {
            memcpy(at, original + (size_t)offset * size, (size_t)count * size);
        } else {
            memset(at, LAYOUT_POISON, (size_t)count * size);
        }
        break;
    }
}

void layout_token(const workload *load, const gdn_layout *layout, int32_t heads, int32_t dim, unsigned char *image,
                  int64_t seq, int64_t token, float *values, layout_access access)
{
    const int64_t start = token_offset(load, layout, seq, token);
    for (int32_t h = 0; h < heads; h++) {
        access_run(image, start + h * layout->head_stride, layout->dtype,
                   values != NULL ? values + (int64_t)h * dim : NULL, dim, access, NULL);
    }
}

size_t layout_state_bytes(const gdn_problem *problem, const gdn_state_layout *layout, int64_t slots)
{
    if (slots == 0) {
        return 0;
    }
    const int64_t last = (slots - 1) * layout->slot_stride + (problem->num_v_heads - 1) * layout->head_stride +
                         (problem->head_v_dim - 1) * layout->v_stride + (problem->head_k_dim - 1) * layout->k_stride;
    return (size_t)(last + 1) * gdn_dtype_size(layout->dtype);
}

/* One head stored with V contiguous: columns of the dense [V, K] matrix. */
static void access_columns(unsigned char *image, int64_t start, const gdn_state_layout *layout, int32_t V, int32_t K,
                           float *matrix, layout_access access, const unsigned char *original)
{
    float column[MAX_DIM];
    for (int32_t k = 0; k < K; k++) {
        for (int32_t v = 0; v < V && access == LAYOUT_ENCODE && matrix != NULL; v++) {
            column[v] = matrix[(int64_t)v * K + k];
        }
        access_run(image, start + k * layout->k_stride, layout->dtype, column, V, access, original);
        for (int32_t v = 0; v < V && access == LAYOUT_DECODE && matrix != NULL; v++) {
            matrix[(int64_t)v * K + k] = column[v];
        }
    }
}

void layout_state(const gdn_problem *problem, const gdn_state_layout *layout, unsigned char *image, int64_t slot,
                  float *values, layout_access access, const unsigned char *original)
{
    const int32_t V = problem->head_v_dim, K = problem->head_k_dim;
    for (int32_t h = 0; h < problem->num_v_heads; h++) {
        const int64_t start = slot * layout->slot_stride + h * layout->head_stride;
        float *const matrix = values != NULL ? values + (int64_t)h * V * K : NULL;
        if (layout->k_stride != 1) {
            access_columns(image, start, layout, V, K, matrix, access, original);
            continue;
        }
        for (int32_t v = 0; v < V; v++) {
            access_run(image, start + v * layout->v_stride, layout->dtype,
                       matrix != NULL ? matrix + (int64_t)v * K : NULL, K, access, original);
        }
    }
}

void layout_indices(unsigned char *image, gdn_dtype dtype, const int64_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t narrow = (int32_t)values[i];
        if (dtype == GDN_DTYPE_I32) {
            memcpy(image + i * 4, &narrow, 4);
        } else {
            memcpy(image + i * 8, &values[i], 8);
        }
    }
}
