/* The kernels for NEON, the AArch64 baseline. Compiled with that instruction set's own flags; nothing else is. */
#include "vec_neon.h"

#include "simd_table.h"
