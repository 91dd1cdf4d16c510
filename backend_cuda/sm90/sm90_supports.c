/* What the Hopper prefill takes, and why not the rest. */
#include "sm90_prefill.h"

#include "../cuda_device.h"
#include "prefill.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Copies address bytes with 40 bits, tokens with 31. */
#define MAX_STRIDE ((int64_t)1 << 38)
#define MAX_TOKENS ((int64_t)INT32_MAX - 2 * GDN_SM90_CHUNK)

static bool refuse(gdn_reason *reason, const char *format, ...) GDN_PRINTF(2, 3);

static bool refuse(gdn_reason *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason->text, sizeof(reason->text), format, args);
    va_end(args);
    return false;
}

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
        return refuse(reason, "%s.alignment %u is less than 16", name, layout->alignment);
    }
    for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
        if (strides[i].used &&
            (strides[i].stride <= 0 || strides[i].stride % 8 != 0 || strides[i].stride > MAX_STRIDE)) {
            return refuse(reason, "%s.%s %lld is not a positive multiple of 8 up to 2^38", name, strides[i].name,
                          (long long)strides[i].stride);
        }
    }
    return true;
}

bool gdn_sm90_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    const gdn_cuda_device *const cuda = gdn_cuda_device_of(device);
    const bool rows = problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
    if (cuda->compute_capability != 90) {
        return refuse(reason, "compute capability is %d.%d, not 9.0", cuda->compute_capability / 10,
                      cuda->compute_capability % 10);
    }
    if (strstr(GDN_CUDA_ARCHITECTURES, "90a") == NULL) {
        return refuse(reason, "this build has no code for sm_90a (%s)", GDN_CUDA_ARCHITECTURES);
    }
    const size_t half = gdn_sm90_state_output_smem(), fused = gdn_sm90_fused_smem();
    const size_t smem = half > fused ? half : fused;
    if (cuda->shared_bytes_per_block < (int64_t)smem) {
        return refuse(reason, "a block may have %lld bytes of shared memory, not %zu",
                      (long long)cuda->shared_bytes_per_block, smem);
    }
    if (problem->head_k_dim != GDN_SM90_DIM || problem->head_v_dim != GDN_SM90_DIM) {
        return refuse(reason, "head dims %d and %d are not both 128", problem->head_k_dim, problem->head_v_dim);
    }
    if (problem->q.dtype != GDN_DTYPE_BF16 && problem->q.dtype != GDN_DTYPE_F16) {
        return refuse(reason, "q is f32, not bf16 or f16");
    }
    if (problem->numerics != GDN_NUMERICS_DEFAULT &&
        !(problem->numerics == GDN_NUMERICS_BF16 && problem->q.dtype == GDN_DTYPE_BF16)) {
        return refuse(reason, "numerics other than rounding operands to the type of q");
    }
    if (problem->checkpoint_form == GDN_CHECKPOINT_AT) {
        return refuse(reason, "checkpoints at positions: only every n tokens");
    }
    if (problem->checkpoint_form == GDN_CHECKPOINT_EVERY && problem->checkpoint_interval % GDN_SM90_CHUNK != 0) {
        return refuse(reason, "checkpoint_interval %d is not a multiple of 64", problem->checkpoint_interval);
    }
    if (problem->num_segments > 1) {
        return refuse(reason, "num_segments %d: sequences are not cut", problem->num_segments);
    }
    if (problem->max_tokens > MAX_TOKENS || problem->max_seqs > INT32_MAX) {
        return refuse(reason, "max_tokens %lld or max_seqs %lld is more than 31 bits hold",
                      (long long)problem->max_tokens, (long long)problem->max_seqs);
    }
    return copyable("q", &problem->q, problem->num_k_heads, rows, reason) &&
           copyable("k", &problem->k, problem->num_k_heads, rows, reason) &&
           copyable("v", &problem->v, problem->num_v_heads, rows, reason) &&
           copyable("o", &problem->o, problem->num_v_heads, rows, reason);
}
