/* The tests' own decoding and rounding of element types, in double: nothing of core's is used, so that a
 * fault in core's conversions cannot hide. */
#ifndef GDN_TESTS_FORMATS_H
#define GDN_TESTS_FORMATS_H

#include <gdn/gdn.h>

/* Element `index` of an array of F32, BF16 or F16. */
double format_decode(gdn_dtype dtype, const void *data, int64_t index);

/* Rounds x to nearest, ties to even, and stores it. */
void format_encode(gdn_dtype dtype, void *data, int64_t index, double x);

/* Half the distance between neighbouring values of the type at |x|. */
double format_half_ulp(gdn_dtype dtype, double x);

size_t format_size(gdn_dtype dtype);

int64_t format_load_index(gdn_dtype dtype, const void *data, int64_t index);
void format_store_index(gdn_dtype dtype, void *data, int64_t index, int64_t value);

#endif
