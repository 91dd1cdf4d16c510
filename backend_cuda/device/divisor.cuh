/* Division by a number that the host knows and the compiler does not: a product and a shift instead of the twenty
 * instructions of an unsigned division. */
#ifndef GDN_CUDA_DEVICE_DIVISOR_CUH
#define GDN_CUDA_DEVICE_DIVISOR_CUH

#include <stdint.h>

namespace gdn
{

/* n / d = (n + high half of n * multiplier) >> shift, for n below 2^31 and d from 1 to 2^31: Granlund and Montgomery,
 * "Division by invariant integers using multiplication", 1994. */
struct Divisor {
    uint32_t multiplier, shift;
};

static inline Divisor divisor_of(uint32_t d)
{
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < d) {
        ++shift;
    }
    return {static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1), shift};
}

static __device__ __forceinline__ uint32_t divide(uint32_t n, Divisor by)
{
    return (__umulhi(n, by.multiplier) + n) >> by.shift;
}

} // namespace gdn

#endif
