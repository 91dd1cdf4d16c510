/* The kernels for AVX2, FMA and F16C. Compiled with that instruction set's own flags; nothing else is. */
#include "vec_avx2.h"

#include "simd_table.h"
