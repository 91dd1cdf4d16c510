/* What the backend's files share: its constant, its operations, and the list of its implementations. */
#ifndef GDN_CUDA_BACKEND_H
#define GDN_CUDA_BACKEND_H

#include "core/generic_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const gdn_backend gdn_backend_cuda;

/* The implementations that plans choose from, in order; each is defined in the file of its name. */
extern const gdn_implementation *const gdn_cuda_implementations[];

/* cuda_memory.c */
gdn_status gdn_cuda_alloc(gdn_device *device, void **ptr, size_t bytes);
gdn_status gdn_cuda_free(gdn_device *device, void *ptr);
gdn_status gdn_cuda_copy(gdn_device *device, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                         void *stream);
gdn_status gdn_cuda_fill(gdn_device *device, void *dst, int byte, size_t bytes, void *stream);
gdn_status gdn_cuda_synchronize(gdn_device *device, void *stream);
gdn_status gdn_cuda_check_pointer(const gdn_device *device, const void *ptr, const char *name);
bool gdn_cuda_owns_pointer(const void *ptr);
gdn_status gdn_cuda_read_fault(const gdn_device *device, const void *workspace, void *stream,
                               gdn_metadata_fault *fault);

/* gate.cu */
gdn_status gdn_cuda_gate(const gdn_device *device, const gdn_tensor *a, const gdn_tensor *b, const float *A_log,
                         const float *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                         void *stream);

/* The operations of the generic prefill path; generic_ops.h says what each does. schedule is the fused prefills' too:
 * it checks a run's metadata and clears and writes the fault at the start of the workspace. */
gdn_status gdn_cuda_schedule(const gdn_device *device, const gdn_prefill_run *run, int32_t chunk_size,
                             gdn_chunk *chunks, int64_t bound, int64_t *used);
gdn_status gdn_cuda_begin_wave(const gdn_device *device, const gdn_prefill_run *run, gdn_wave *wave);
gdn_status gdn_cuda_gates(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *G,
                          float *beta);
gdn_status gdn_cuda_pack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                         gdn_pack_source source, float *dst);
gdn_status gdn_cuda_prepare(const gdn_device *device, const gdn_problem *problem, int32_t chunk_size);
void gdn_cuda_note(const gdn_device *device, char *buffer, size_t size);
gdn_status gdn_cuda_matmul(const gdn_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul);
gdn_status gdn_cuda_mask(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, gdn_mask_kind kind,
                         const float *gram, const float *G, const float *beta, float *dst);
gdn_status gdn_cuda_inverse(const gdn_device *device, const gdn_prefill_run *run, float *A, int64_t count,
                            int32_t chunk_size);
gdn_status gdn_cuda_scale_rows(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                               gdn_row_factor factor, const float *G, const float *beta, const float *src,
                               int32_t src_heads, int32_t width, float *dst);
gdn_status gdn_cuda_load_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *S,
                                const float *carry);
gdn_status gdn_cuda_store_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                 const float *S, float *carry);
gdn_status gdn_cuda_decay_state(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                int32_t step, const int32_t *ends, const float *G, const float *k, const float *src,
                                float *tail, float *dst);
gdn_status gdn_cuda_walk(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *G,
                         const float *q, const float *k, float *W, float *U, float *rows, float *S, bool *taken);
gdn_status gdn_cuda_find_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                     int32_t step, int32_t round, int32_t *ends, int64_t *entries, bool *any);
gdn_status gdn_cuda_store_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                      const int64_t *entries, const float *S);
gdn_status gdn_cuda_unpack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *O);

#ifdef __cplusplus
}
#endif

#endif
