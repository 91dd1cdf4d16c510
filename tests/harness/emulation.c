#include "emulation.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

__attribute__((target("f16c"))) static bool flushes(void)
{
    const unsigned mode = _mm_getcsr();
    volatile float subnormal = 3e-5f;
    volatile unsigned short bits = 0x0100;
    _mm_setcsr(mode | 0x8040); /* flush to zero, denormals are zeros */
    const bool lost = _cvtss_sh(subnormal, 0) == 0 || _cvtsh_ss(bits) == 0.0f;
    _mm_setcsr(mode);
    return lost;
}

bool emulation_flushes_float16(void)
{
    /* CPUs with AVX2 have F16C, whose name not all compilers know here. */
    return __builtin_cpu_supports("avx2") && flushes();
}

#else

bool emulation_flushes_float16(void)
{
    return false;
}

#endif
