/* What the Hopper prefill takes, and why not the rest. */
#include "sm90_prefill.h"

#include "../cuda_device.h"
#include "../cuda_refusal.h"
#include "prefill.h"
#include "sm90_workspace.h"

#include <string.h>

/* Copies address bytes with 40 bits, tokens with 31. */
#define MAX_STRIDE ((int64_t)1 << 38)
#define MAX_TOKENS ((int64_t)INT32_MAX - 2 * GDN_SM90_CHUNK)

/* Whether the copy engine reaches a tensor. */
static bool copyable(const char *name, const gdn_layout *layout, int32_t heads, bool has_rows, gdn_reason *reason)
{
    const struct {
        const char *name;
        int64_t stride;
        bool used;
    } strides[] = {{"token_stride", layout->token_stride, true},
                   {"head_stride", layout->head_stride, heads > 1},
                   {"row_stride", layout->row_stride, has_rows && layout->row_stride != 0}};
    if (layout->alignment < 16) {
        return gdn_cuda_refuse(reason, "%s.alignment %u is less than 16", name, layout->alignment);
    }
    for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
        if (strides[i].used &&
            (strides[i].stride <= 0 || strides[i].stride % 8 != 0 || strides[i].stride > MAX_STRIDE)) {
            return gdn_cuda_refuse(reason, "%s.%s %lld is not a positive multiple of 8 up to 2^38", name,
                                   strides[i].name, (long long)strides[i].stride);
        }
    }
    return true;
}

bool gdn_sm90_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    const gdn_cuda_device *const cuda = gdn_cuda_device_of(device);
    const bool rows = problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
    if (cuda->compute_capability != 90) {
        return gdn_cuda_refuse(reason, "compute capability is %d.%d, not 9.0", cuda->compute_capability / 10,
                               cuda->compute_capability % 10);
    }
    if (strstr(GDN_CUDA_ARCHITECTURES, "90a") == NULL) {
        return gdn_cuda_refuse(reason, "this build has no code for sm_90a (%s)", GDN_CUDA_ARCHITECTURES);
    }
    const size_t smem = gdn_sm90_smem();
    if (cuda->shared_bytes_per_block < (int64_t)smem) {
        return gdn_cuda_refuse(reason, "a block may have %lld bytes of shared memory, not %zu",
                               (long long)cuda->shared_bytes_per_block, smem);
    }
    if (problem->head_k_dim != 64 && problem->head_k_dim != 128 && problem->head_k_dim != 256) {
        return gdn_cuda_refuse(reason, "head_k_dim %d is not 64, 128 or 256", problem->head_k_dim);
    }
    if (problem->head_v_dim % GDN_SM90_TILE != 0) {
        return gdn_cuda_refuse(reason, "head_v_dim %d is not a multiple of 64", problem->head_v_dim);
    }
    if (!gdn_cuda_takes_16_bit_products(problem, reason)) {
        return false;
    }
    if (gdn_sm90_splits_chunks(problem) && problem->checkpoints.dtype != GDN_DTYPE_F32) {
        return gdn_cuda_refuse(reason, "checkpoints inside a chunk of 64 tokens that are not f32");
    }
    if (gdn_sm90_splits_chunks(problem) && problem->max_checkpoints > INT32_MAX) {
        return gdn_cuda_refuse(reason, "max_checkpoints %lld is more than 31 bits hold",
                               (long long)problem->max_checkpoints);
    }
    if (problem->max_tokens > MAX_TOKENS || problem->max_seqs > INT32_MAX) {
        return gdn_cuda_refuse(reason, "max_tokens %lld or max_seqs %lld is more than 31 bits hold",
                               (long long)problem->max_tokens, (long long)problem->max_seqs);
    }
    return copyable("q", &problem->q, problem->num_k_heads, rows, reason) &&
           copyable("k", &problem->k, problem->num_k_heads, rows, reason) &&
           copyable("v", &problem->v, problem->num_v_heads, rows, reason) &&
           copyable("o", &problem->o, problem->num_v_heads, rows, reason);
}
