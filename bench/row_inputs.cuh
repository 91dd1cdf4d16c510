/* Inputs of a prefill call made on the device, the same for a seed on every run. */
#ifndef GDN_BENCH_ROW_INPUTS_CUH
#define GDN_BENCH_ROW_INPUTS_CUH

#include <cuda_bf16.h>
#include <stdint.h>

enum class Regime {
    kStandard, /* a model's gates: A ~ U(1, 16), dt = exp U(ln 1e-3, ln 0.1), a ~ N(0, 1) */
    kWeak, /* log decay = ln U(0, 1) / 16, and every fourth head has none */
    kStrong /* log decay = ln U(0, 1) */
};

constexpr int kDim = 128;

static __device__ uint32_t random_bits(uint64_t index, uint32_t seed)
{
    uint64_t x = index + (static_cast<uint64_t>(seed) << 40) + 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return static_cast<uint32_t>((x ^ x >> 31) >> 32);
}

/* In (0, 1). */
static __device__ float uniform(uint64_t index, uint32_t seed)
{
    return ((random_bits(index, seed) >> 8) + 0.5f) / 16777216.0f;
}

static __device__ float normal(uint64_t index, uint32_t seed)
{
    return sqrtf(-2.0f * logf(uniform(2 * index, seed))) * cospif(2.0f * uniform(2 * index + 1, seed));
}

/* One warp a vector of kDim normal elements, scaled to length 1 if asked. */
static __global__ void fill_vectors(__nv_bfloat16 *x, int64_t count, uint32_t seed, bool unit)
{
    const int64_t vector = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) / 32;
    if (vector >= count) {
        return;
    }
    const int64_t first = vector * kDim + threadIdx.x % 32 * 4;
    float values[4], square = 0.0f;
    for (int i = 0; i < 4; ++i) {
        values[i] = normal(first + i, seed);
        square += values[i] * values[i];
    }
    for (int step = 16; step > 0; step /= 2) {
        square += __shfl_xor_sync(0xffffffffu, square, step);
    }
    for (int i = 0; i < 4; ++i) {
        x[first + i] = __float2bfloat16(unit ? values[i] * rsqrtf(square) : values[i]);
    }
}

/* Log decay and beta = sigmoid(N(0, 1)), [tokens, heads]. */
static __global__ void fill_gates(float *log_decay, float *beta, int64_t count, int32_t heads, uint32_t seed,
                                  Regime regime)
{
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= count) {
        return;
    }
    const int32_t head = static_cast<int32_t>(i % heads);
    const float log_u = logf(uniform(i, seed));
    if (regime == Regime::kStandard) {
        const float A = 1.0f + 15.0f * uniform(head, seed + 1);
        const float dt = expf(logf(1e-3f) + uniform(head, seed + 2) * logf(100.0f));
        const float bias = dt + logf(-expm1f(-dt)); /* whose softplus is dt */
        log_decay[i] = -A * log1pf(expf(normal(i, seed + 3) + bias));
    } else {
        log_decay[i] = regime == Regime::kStrong ? log_u : head % 4 == 0 ? 0.0f : log_u / 16.0f;
    }
    beta[i] = 1.0f / (1.0f + expf(-normal(i, seed + 4)));
}

#endif
