/* The floating-point mode inside a call: subnormals flushed to zero (a state that decays for long would otherwise fill with them
 * and slow every operation on it), rounding to nearest, no traps. It is the same on every thread, whichever mode the caller's
 * thread has and a team's threads were made with, so that bits depend on neither. The thread's own mode comes back at the end. */
#ifndef GDN_CPU_FLOAT_MODE_H
#define GDN_CPU_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline uint64_t gdn_float_mode_enter(void)
{
#if defined(__x86_64__)
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(0x9fc0u); /* FTZ: results, DAZ: operands; all exceptions masked */
    return saved;
#elif defined(__aarch64__)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(1) << 24)); /* FZ: both */
    return saved;
#else
    return 0;
#endif
}

static inline void gdn_float_mode_restore(uint64_t saved)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
#else
    (void)saved;
#endif
}

#endif
