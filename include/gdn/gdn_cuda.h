/* gdn.h for programs that use CUDA: the calls that take a stream, with the stream's own type.
 *
 * A cudaStream_t is a struct CUstream_st *, as is the driver's CUstream, so this header needs no toolkit. Each function
 * is the one of gdn.h with its stream filled in and the same statuses. The argument struct is not changed: its `stream`
 * is ignored. A NULL stream is the legacy default stream. */
#ifndef GDN_GDN_CUDA_H
#define GDN_GDN_CUDA_H

#include <gdn/gdn.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

static inline gdn_status gdn_prefill_cuda(const gdn_plan *plan, const gdn_prefill_args *args,
                                          struct CUstream_st *stream)
{
    gdn_prefill_args on_stream;
    if (args == NULL || args->struct_size != sizeof(on_stream)) {
        return gdn_prefill(plan, args); /* which says what is wrong */
    }
    on_stream = *args;
    on_stream.stream = stream;
    return gdn_prefill(plan, &on_stream);
}

static inline gdn_status gdn_decode_cuda(const gdn_plan *plan, const gdn_decode_args *args, struct CUstream_st *stream)
{
    gdn_decode_args on_stream;
    if (args == NULL || args->struct_size != sizeof(on_stream)) {
        return gdn_decode(plan, args);
    }
    on_stream = *args;
    on_stream.stream = stream;
    return gdn_decode(plan, &on_stream);
}

/* Waits for the stream. */
static inline gdn_status gdn_plan_check_cuda(const gdn_plan *plan, const void *workspace, struct CUstream_st *stream)
{
    return gdn_plan_check(plan, workspace, stream);
}

static inline gdn_status gdn_memory_copy_cuda(gdn_context *context, void *dst, const void *src, size_t bytes,
                                              gdn_copy_direction direction, struct CUstream_st *stream)
{
    return gdn_memory_copy(context, dst, src, bytes, direction, stream);
}

static inline gdn_status gdn_memory_fill_cuda(gdn_context *context, void *dst, int byte, size_t bytes,
                                              struct CUstream_st *stream)
{
    return gdn_memory_fill(context, dst, byte, bytes, stream);
}

static inline gdn_status gdn_synchronize_cuda(gdn_context *context, struct CUstream_st *stream)
{
    return gdn_synchronize(context, stream);
}

static inline gdn_status gdn_gate_cuda(gdn_context *context, const gdn_tensor *a, const gdn_tensor *b,
                                       const gdn_tensor *A_log, const gdn_tensor *dt_bias, float beta_scale,
                                       const gdn_tensor *log_decay, const gdn_tensor *beta, struct CUstream_st *stream)
{
    return gdn_gate(context, a, b, A_log, dt_bias, beta_scale, log_decay, beta, stream);
}

static inline gdn_status gdn_extend_chunkwise_cuda(gdn_context *context, const gdn_tensor *q, const gdn_tensor *k,
                                                   const gdn_tensor *v, const gdn_tensor *a, const gdn_tensor *b,
                                                   const gdn_tensor *A_log, const gdn_tensor *dt_bias,
                                                   const gdn_tensor *state_pool, const gdn_tensor *cache_indices,
                                                   const gdn_tensor *cu_seqlens, int32_t chunk_size,
                                                   const gdn_tensor *o, void *workspace, size_t workspace_size,
                                                   struct CUstream_st *stream)
{
    return gdn_extend_chunkwise(context, q, k, v, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens,
                                chunk_size, o, workspace, workspace_size, stream);
}

#ifdef __cplusplus
}
#endif

#endif /* GDN_GDN_CUDA_H */
