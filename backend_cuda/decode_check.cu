/* Checks of a decode run's metadata that are made only where the problem asks (check = 1), before anything is written:
 * slot conflicts between rows, and gates out of range. */
#include "decode_row.cuh"
#include "fault.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

constexpr int kThreads = 256;

__global__ void clear_kernel(gdn_metadata_fault *fault)
{
    *fault = gdn_metadata_fault{};
}

/* Use `i` of a row: 0 its read slot, 1 its write slot, then its token slots; -1 where there is none. */
__device__ __forceinline__ int64_t slot_use(const gdn_decode_params &p, int64_t n, const Row &row, int i)
{
    if (i < 2) {
        return i == 0 ? row.read : p.write_slots ? row.write : -1;
    }
    return p.token_slots ? load_index(p.token_slots, p.slots_dtype, n * p.tokens_per_row + i - 2) : -1;
}

/* A thread a row: no other row may read or write what it writes. */
__global__ void __launch_bounds__(kThreads, 4) check_slots_kernel(const gdn_decode_params p)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t n = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; n < p.num_rows; n += stride) {
        const Row row = row_of(p, n);
        for (int i = 1; i < 2 + row.tokens && !row.skipped; ++i) {
            const int64_t slot = slot_use(p, n, row, i);
            for (int64_t m = 0; m < p.num_rows && slot >= 0; ++m) {
                const Row other = row_of(p, m);
                if (m == n || other.skipped) {
                    continue;
                }
                for (int j = 0; j < 2 + other.tokens; ++j) {
                    if (slot_use(p, m, other, j) == slot) {
                        report_fault(p.fault, GDN_FAULT_SLOT_CONFLICT, n, slot);
                    }
                }
            }
        }
    }
}

/* A thread a (row, token, head). */
__global__ void __launch_bounds__(kThreads, 4) check_gates_kernel(const gdn_decode_params p)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    const int64_t count = p.num_rows * p.tokens_per_row * p.num_v_heads;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < count; i += stride) {
        const int head = static_cast<int>(i % p.num_v_heads);
        const int t = static_cast<int>(i / p.num_v_heads % p.tokens_per_row);
        const int64_t n = i / p.num_v_heads / p.tokens_per_row;
        const Row row = row_of(p, n);
        if (row.skipped || t >= row.tokens) {
            continue;
        }
        const float gate = load_element(p.gate.data, p.gate.dtype,
                                        n * p.gate.row_stride + t * p.gate.token_stride + head * p.gate.head_stride);
        const bool linear = p.gate_form == GDN_GATE_DECAY;
        if (gate > (linear ? 1.0f : 0.0f) || (linear && gate < 0.0f)) {
            report_fault(p.fault, GDN_FAULT_GATE, n, n * p.tokens_per_row + t);
        }
    }
}

__global__ void __launch_bounds__(kThreads) report_kernel(const gdn_decode_params p)
{
    if (!p.checked || p.fault->code == GDN_FAULT_NONE) {
        __syncthreads(); /* every thread has seen that before the word is written */
        report_rows(p);
    }
}

unsigned grid_for(int64_t items)
{
    const int64_t blocks = (items + kThreads - 1) / kThreads;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < 65535 ? blocks : 65535);
}

} // namespace
} // namespace gdn

int gdn_decode_check_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    gdn::clear_kernel<<<1, 1, 0, stream>>>(decode->fault);
    if (decode->read_slots) {
        gdn::check_slots_kernel<<<gdn::grid_for(decode->num_rows), gdn::kThreads, 0, stream>>>(*decode);
    }
    if (decode->gate_form != GDN_GATE_RAW) {
        gdn::check_gates_kernel<<<gdn::grid_for(decode->num_rows * decode->tokens_per_row * decode->num_v_heads),
                                  gdn::kThreads, 0, stream>>>(*decode);
    }
    return cudaPeekAtLastError();
}

int gdn_decode_report_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    gdn::report_kernel<<<1, gdn::kThreads, 0, stream>>>(*decode);
    return cudaPeekAtLastError();
}
