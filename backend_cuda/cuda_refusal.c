#include "cuda_refusal.h"

#include <stdarg.h>
#include <stdio.h>

bool gdn_cuda_refuse(gdn_reason *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason->text, sizeof(reason->text), format, args);
    va_end(args);
    return false;
}

bool gdn_cuda_takes_16_bit_products(const gdn_problem *problem, gdn_reason *reason)
{
    const gdn_dtype dtype = problem->q.dtype;
    if (dtype != GDN_DTYPE_BF16 && dtype != GDN_DTYPE_F16) {
        return gdn_cuda_refuse(reason, "q, k, v are neither bf16 nor f16");
    }
    if (problem->numerics != GDN_NUMERICS_DEFAULT &&
        !(problem->numerics == GDN_NUMERICS_BF16 && dtype == GDN_DTYPE_BF16)) {
        return gdn_cuda_refuse(reason, "numerics asks for other operands than q's type");
    }
    if (problem->num_segments > 1) {
        return gdn_cuda_refuse(reason, "num_segments %d, sequences are not cut here", problem->num_segments);
    }
    return true;
}
