/* Which element types are which; sizes and names are public (gdn.h). */
#ifndef GDN_CORE_DTYPE_H
#define GDN_CORE_DTYPE_H

#include <gdn/gdn.h>

#include <stdbool.h>

bool gdn_dtype_is_float(gdn_dtype dtype); /* f32, bf16, f16 */
bool gdn_dtype_is_index(gdn_dtype dtype); /* i32, i64 */

#endif
