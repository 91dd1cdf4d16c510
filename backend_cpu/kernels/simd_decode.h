/* Decode on a block of the state, token after token: the pass that updates it for one token takes the dots of the next, so
 * that each token reads and writes it once, and only the first pass reads the caller's memory and the last writes it. */
#ifndef GDN_SIMD_DECODE_H
#define GDN_SIMD_DECODE_H

#include <stdint.h>
#include <string.h>

#include "simd_tile.h"

/* The functions below are made for each pair of types that is used, and not inlined: in one body, compilers run out of
 * registers for the addresses of all. */
#define DECODE_VARIANT static __attribute__((noinline)) void

GDN_INLINE int decode_size(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 ? 4 : 2;
}

/* Element `at` of rows of a type. */
GDN_INLINE void *decode_at(gdn_dtype dtype, const void *data, ptrdiff_t at)
{
    return (char *)(uintptr_t)data + at * decode_size(dtype);
}

/* Asks for the cache line of element `at`, once for all vectors of it; `i` is this one's first element in its row. Into the
 * second-level cache: what the first can wait for at a time does not keep memory busy (half the rate on Zen 4). */
GDN_INLINE void decode_ask(gdn_dtype dtype, const void *data, ptrdiff_t at, int i)
{
    if (i * decode_size(dtype) % 64 == 0) {
        __builtin_prefetch(decode_at(dtype, data, at), 0, 2);
    }
}

#endif
