/* Gate and write-strength formulas, as gdn.h defines them: the device twin of core/numeric.h. */
#ifndef GDN_CUDA_DEVICE_GATES_CUH
#define GDN_CUDA_DEVICE_GATES_CUH

#include <gdn/gdn.h>

namespace gdn
{

/* A token's decay below exp(-104) is 0 in float32. Clamped before any sum, so that differences of sums stay exact. */
static constexpr float kMinLogDecay = -104.0f;

/* log softplus(x). softplus(x) = x above 20; below -20, log1p(e^x) = e^x, so that its logarithm is x itself. */
static __device__ __forceinline__ float log_softplus(float x)
{
    if (x > 20.0f) {
        return logf(x);
    }
    if (x < -20.0f) {
        return x;
    }
    return logf(log1pf(expf(x)));
}

/* -exp(A_log) softplus(x), the logarithms added first: no inf * 0. */
static __device__ __forceinline__ float log_decay_raw(float x, float A_log)
{
    return -expf(A_log + log_softplus(x));
}

/* Log decay of one token from any gate form, clamped; NaN passes through. */
static __device__ __forceinline__ float log_decay_of(float gate, int32_t form, float A_log, float dt_bias)
{
    float g = gate;
    if (form == GDN_GATE_DECAY) {
        g = logf(gate);
    } else if (form == GDN_GATE_RAW) {
        g = log_decay_raw(gate + dt_bias, A_log);
    }
    return g < kMinLogDecay ? kMinLogDecay : g;
}

/* exp(g) of one token. Decode multiplies a state by it call after call, so that an error in its last place adds up
 * (1.6e-5 of the state after 4096 calls of g = -1e-3): near 1, 1 + expm1(g) is rounded correctly where expf is not. */
static __device__ __forceinline__ float token_decay(float g)
{
    return g > -0.5f ? 1.0f + expm1f(g) : expf(g);
}

static __device__ __forceinline__ float beta_of(float b, int32_t form, float beta_scale)
{
    return form == GDN_BETA_LOGIT ? beta_scale * (1.0f / (1.0f + expf(-b))) : b;
}

/* The factor that normalises a vector of squared length `sum`. */
static __device__ __forceinline__ float norm_factor(float sum, int32_t norm, float eps)
{
    if (norm == GDN_QK_NORM_RSQRT) {
        return 1.0f / sqrtf(sum + eps);
    }
    if (norm == GDN_QK_NORM_EPS_OUTSIDE) {
        return 1.0f / (sqrtf(sum) + eps);
    }
    return 1.0f;
}

/* exp(G_i - G_j) for i >= j: the difference is at most rounding above 0. __expf's relative error is 2^-22 + |x| 2^-24,
 * under the operands' rounding wherever the result is not negligible. */
static __device__ __forceinline__ float decay_between(float Gi, float Gi_low, float Gj, float Gj_low)
{
    const float x = (Gi - Gj) + (Gi_low - Gj_low);
    return __expf(x > 0.0f ? 0.0f : x);
}

} // namespace gdn

#endif
