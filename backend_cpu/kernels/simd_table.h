/* The kernels of one instruction set, in terms of its vec_*.h, and their table: included once, by that instruction
 * set's one C file. */
#ifndef GDN_SIMD_TABLE_H
#define GDN_SIMD_TABLE_H

#include "kernels.h"

#include "simd_tile.h"

#include "gate_math.h"
#include "simd_decode_kv.h"
#include "simd_decode_vk.h"
#include "simd_elementwise.h"
#include "simd_solve.h"

#ifndef VF_OWN_PRODUCT /* the file has written simd_product and simd_product_rows itself */
#include "simd_product.h"
#endif

#ifndef VF_TABLE_EXTRA /* entries that only some tables have */
#define VF_TABLE_EXTRA
#endif

#ifndef VF_STRIP
#define VF_STRIP 1
#endif

const gdn_cpu_kernels VF_TABLE = {
    .name = VF_NAME,
    .strip = VF_STRIP,
    VF_TABLE_EXTRA.product_rows = simd_product_rows,
    .product = simd_product,
    .solve = simd_solve,
    .decay_mask = simd_decay_mask,
    .gates = gate_math_gates,
    .exp = simd_exp,
    .load_rows = simd_load_rows,
    .store_rows = simd_store_rows,
    .transpose = simd_transpose,
    .scale_rows = simd_scale_rows,
    .norm_factors = simd_norm_factors,
    .dot = simd_dot,
    .decode_columns = DECODE_COLUMNS,
    .decode_vk = simd_decode_vk,
    .decode_kv = simd_decode_kv,
};

#endif /* GDN_SIMD_TABLE_H */
