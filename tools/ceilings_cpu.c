#include "ceilings.h"

#include "timing.h"

#include <stdint.h>
#include <stdlib.h>

/* Chains of multiply-adds that wait for nothing but themselves: 12 cover latency times width of today's units.
 * The accumulators approach b / (1 - a), so nothing overflows or turns subnormal. The compiler must not know the numbers: it
 * would leave out a chain that starts where it ends. */
static const volatile float fma_factor = 0.5f, fma_term = 1.0f;
#define CHAINS 12
#define DEFINE_FMA_LOOP(name, bytes, attributes)                     \
    typedef float name##_vector __attribute__((vector_size(bytes))); \
    attributes static float name(int64_t rounds)                     \
    {                                                                \
        name##_vector x[CHAINS], a, b;                               \
        for (int i = 0; i < (int)(sizeof(a) / sizeof(float)); i++) { \
            a[i] = fma_factor;                                       \
            b[i] = fma_term;                                         \
        }                                                            \
        for (int c = 0; c < CHAINS; c++) {                           \
            x[c] = b * (float)(c + 1);                               \
        }                                                            \
        for (int64_t r = 0; r < rounds; r++) {                       \
            for (int c = 0; c < CHAINS; c++) {                       \
                x[c] = x[c] * a + b;                                 \
            }                                                        \
        }                                                            \
        for (int c = 1; c < CHAINS; c++) {                           \
            x[0] += x[c];                                            \
        }                                                            \
        return x[0][0];                                              \
    }

DEFINE_FMA_LOOP(fma_plain, 16, )
#if defined(__x86_64__)
DEFINE_FMA_LOOP(fma_avx2, 32, __attribute__((target("avx2,fma"))))
DEFINE_FMA_LOOP(fma_avx512, 64, __attribute__((target("avx512f"))))
#endif

typedef struct fma_kind {
    float (*run)(int64_t rounds);
    int lanes;
    const char *source;
} fma_kind;

static fma_kind widest_fma(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return (fma_kind){fma_avx512, 16, "float32 FMA in registers, AVX-512"};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return (fma_kind){fma_avx2, 8, "float32 FMA in registers, AVX2"};
    }
#endif
    return (fma_kind){fma_plain, 4, "float32 multiply-add in registers"};
}

static double measure_flops(int threads, const fma_kind *kind)
{
    const int64_t rounds = INT64_C(1) << 21;
    double best = 0;
    volatile float sink = 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        const double start = timing_clock();
#pragma omp parallel num_threads(threads)
        sink = kind->run(rounds);
        const double seconds = timing_clock() - start;
        const double flops = 2.0 * CHAINS * kind->lanes * (double)rounds * threads / seconds;
        best = flops > best ? flops : best;
    }
    (void)sink;
    return best;
}

static double measure_bytes(int threads)
{
    (void)threads; /* without OpenMP nothing below reads it */
    const int64_t count = INT64_C(64) << 20;
    float *const values = malloc((size_t)count * sizeof(float));
    double best = 0;
    for (int repeat = 0; values != NULL && repeat < 5; repeat++) {
        const double start = timing_clock();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            values[i] = repeat == 0 ? (float)i : values[i] * 0.5f + 1.0f;
        }
        const double bytes = 2.0 * (double)count * sizeof(float) / (timing_clock() - start);
        best = repeat > 0 && bytes > best ? bytes : best;
    }
    free(values);
    return best;
}

ceilings ceilings_cpu(int threads)
{
#if !defined(_OPENMP)
    threads = 1;
#endif
    const fma_kind kind = widest_fma();
    return (ceilings){measure_flops(threads, &kind), measure_bytes(threads), kind.source, "in-place update of 256 MiB"};
}
