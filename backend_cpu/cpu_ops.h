/* The CPU backend's generic operations (core/generic_ops.h), one a file. */
#ifndef GDN_CPU_OPS_H
#define GDN_CPU_OPS_H

#include "generic_ops.h"

gdn_status gdn_cpu_schedule(const gdn_device *device, const gdn_prefill_run *run, int32_t chunk_size, gdn_chunk *chunks,
                            int64_t bound, int64_t *used);
gdn_status gdn_cpu_begin_wave(const gdn_device *device, const gdn_prefill_run *run, gdn_wave *wave);
gdn_status gdn_cpu_gates(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *G,
                         float *beta);
gdn_status gdn_cpu_pack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                        gdn_pack_source source, float *dst);
gdn_status gdn_cpu_matmul(const gdn_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul);
gdn_status gdn_cpu_mask(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, gdn_mask_kind kind,
                        const float *gram, const float *G, const float *beta, float *dst);
gdn_status gdn_cpu_inverse(const gdn_device *device, const gdn_prefill_run *run, float *A, int64_t count,
                           int32_t chunk_size);
gdn_status gdn_cpu_scale_rows(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                              gdn_row_factor factor, const float *G, const float *beta, const float *src,
                              int32_t src_heads, int32_t width, float *dst);
gdn_status gdn_cpu_load_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *S,
                               const float *carry);
gdn_status gdn_cpu_store_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                const float *S, float *carry);
gdn_status gdn_cpu_decay_state(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, int32_t step,
                               const int32_t *ends, const float *G, const float *k, const float *src, float *tail,
                               float *dst);
gdn_status gdn_cpu_walk(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *G,
                        const float *q, const float *k, float *W, float *U, float *rows, float *S, bool *taken);
gdn_status gdn_cpu_find_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                    int32_t step, int32_t round, int32_t *ends, int64_t *entries, bool *any);
gdn_status gdn_cpu_store_checkpoints(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                     const int64_t *entries, const float *S);
gdn_status gdn_cpu_unpack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *O);

/* gdn_backend.gate. */
gdn_status gdn_cpu_gate(const gdn_device *device, const gdn_tensor *a, const gdn_tensor *b, const float *A_log,
                        const float *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                        void *stream);

#endif
