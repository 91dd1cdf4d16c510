/* The kernels for AVX-512 (F, BW, DQ, VL) and FMA. Compiled with that instruction set's own flags; nothing else is. */
#include "vec_avx512.h"

#include "simd_table.h"
