/* One head's state and keys decayed to a point inside a chunk: the body of decay_state (core/generic_ops.h). */
#ifndef GDN_CPU_DECAY_H
#define GDN_CPU_DECAY_H

#include <stdint.h>

typedef struct gdn_cpu_decay {
    int32_t chunk_size, end, K, V; /* end: tokens of the chunk consumed; <= 0: tail is zeroed, dst left */
    const float *G; /* [2, C] */
    const float *k; /* [C, K] */
    const float *src; /* [K, V] */
    float *tail; /* [C, K] */
    float *dst; /* [K, V]; may be src */
} gdn_cpu_decay;

void gdn_cpu_decay_chunk(const gdn_cpu_decay *decay);

#endif
