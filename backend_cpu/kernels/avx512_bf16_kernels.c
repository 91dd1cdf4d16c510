/* The kernels for AVX512-BF16: products of rounded pairs by vdpbf16ps, everything else as for AVX-512. Compiled with
 * that instruction set's own flags; nothing else is. */
#include "vec_avx512.h"

#undef VF_NAME
#undef VF_TABLE
#define VF_NAME "avx512_bf16"
#define VF_TABLE gdn_cpu_kernels_avx512_bf16

/* A word is a pair; its product adds two products to a float32 sum. */
#define VF_WORD 2
static inline vf vf_word_fma(vf a, vf b, vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

#define VF_STRIP GDN_MAX_STRIP
#include "avx512_pairs.h"
#define VF_TABLE_EXTRA .pair_rows = pair_rows, .solve_pairs = simd_solve_pairs,

#include "simd_table.h"
