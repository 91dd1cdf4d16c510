/* G and beta of a wave's chunks, from any gate form. */
#include "device/gates.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

/* Sum of x over lanes 0..lane. */
__device__ __forceinline__ double inclusive_sum(double x, int lane)
{
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, x, offset);
        x += lane >= offset ? other : 0.0;
    }
    return x;
}

/* A warp a (slot, value head), a lane a token. Sums are taken in double and stored as pairs. */
__global__ void __launch_bounds__(kThreads, 4)
    gates_kernel(const gdn_chunk *chunks, int64_t count, int32_t num_v_heads, int32_t chunk_size, const Rows gate,
                 const Rows beta, const float *A_log, const float *dt_bias, int32_t gate_form, int32_t beta_form,
                 float beta_scale, float *G_out, float *beta_out)
{
    const int lane = threadIdx.x % 32;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
    for (int64_t i = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) / 32; i < count; i += stride) {
        const int head = static_cast<int>(i % num_v_heads);
        const gdn_chunk chunk = chunks[i / num_v_heads];
        const int32_t length = chunk.seq >= 0 ? chunk.length : 0;
        const float A = A_log != nullptr ? A_log[head] : 0.0f;
        const float bias = dt_bias != nullptr ? dt_bias[head] : 0.0f;
        float *const high = G_out + i * 2 * chunk_size;
        float *const low = high + chunk_size;
        float *const beta_row = beta_out + i * chunk_size;
        double before = 0.0;
        for (int32_t t0 = 0; t0 < chunk_size; t0 += 32) {
            const int32_t t = t0 + lane;
            float decay = 0.0f;
            float write = 0.0f;
            if (t < length) {
                const float g = load_element(gate.data, gate.dtype, gate.index(chunk, chunk_size, t, head));
                const float b = load_element(beta.data, beta.dtype, beta.index(chunk, chunk_size, t, head));
                decay = log_decay_of(g, gate_form, A, bias);
                write = beta_of(b, beta_form, beta_scale);
            }
            const double sum = before + inclusive_sum(static_cast<double>(decay), lane);
            before = __shfl_sync(0xffffffffu, sum, 31);
            if (t < chunk_size) {
                const float rounded = static_cast<float>(sum);
                high[t] = rounded;
                low[t] = static_cast<float>(sum - static_cast<double>(rounded));
                beta_row[t] = write;
            }
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_gates(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *G,
                          float *beta)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_problem *const problem = run->problem;
    const gdn_prefill_args *const args = run->args;
    const int64_t count = static_cast<int64_t>(wave->num_slots) * problem->num_v_heads;
    gates_kernel<<<grid_size((count + kThreads / 32 - 1) / (kThreads / 32)), kThreads, 0, stream_of(run)>>>(
        wave->chunks, count, problem->num_v_heads, wave->chunk_size, rows_of(run, problem->gate, args->gate),
        rows_of(run, problem->beta, args->beta), args->A_log, args->dt_bias, problem->gate_form, problem->beta_form,
        problem->beta_scale, G, beta);
    return gdn_cuda_launched("gates");
}
