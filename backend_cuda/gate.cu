/* gdn_gate: gates alone. */
#include "device/gates.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

/* A [tokens, heads] tensor. */
struct Plane {
    void *data;
    int32_t dtype;
    int64_t token_stride, head_stride;
};

__global__ void __launch_bounds__(kThreads, 4)
    gate_kernel(int64_t count, int64_t heads, const Plane a, const Plane b, const float *A_log, const float *dt_bias,
                float beta_scale, const Plane log_decay, const Plane beta)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < count; i += stride) {
        const int64_t t = i / heads;
        const int64_t h = i - t * heads;
        if (a.data != nullptr) {
            const float x = load_element(a.data, a.dtype, t * a.token_stride + h * a.head_stride);
            const float bias = dt_bias != nullptr ? dt_bias[h] : 0.0f;
            static_cast<float *>(log_decay.data)[t * log_decay.token_stride + h * log_decay.head_stride] =
                log_decay_raw(x + bias, A_log[h]);
        }
        if (b.data != nullptr) {
            const float x = load_element(b.data, b.dtype, t * b.token_stride + h * b.head_stride);
            static_cast<float *>(beta.data)[t * beta.token_stride + h * beta.head_stride] =
                beta_of(x, GDN_BETA_LOGIT, beta_scale);
        }
    }
}

Plane plane_of(const gdn_tensor *tensor)
{
    return tensor != nullptr ? Plane{tensor->data, tensor->dtype, tensor->stride[0], tensor->stride[1]} : Plane{};
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_gate(const gdn_device *device, const gdn_tensor *a, const gdn_tensor *b, const float *A_log,
                         const float *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                         void *stream)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_tensor *const any = a != nullptr ? a : b;
    const int64_t count = any->size[0] * any->size[1];
    if (count == 0) {
        return GDN_OK;
    }
    gate_kernel<<<grid_size((count + kThreads - 1) / kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        count, any->size[1], plane_of(a), plane_of(b), A_log, dt_bias, beta_scale, plane_of(log_decay), plane_of(beta));
    return gdn_cuda_launched("gate");
}
