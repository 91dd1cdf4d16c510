/* The fault word at the start of a workspace, as kernels write it. */
#ifndef GDN_CUDA_FAULT_CUH
#define GDN_CUDA_FAULT_CUH

#include "core/backend.h"

namespace gdn
{

/* Records a fault; that of the lowest row stays. Many threads may report at once: `unused` is the lock. The word
 * must have been cleared (all zeros) earlier in stream order. */
static __device__ __forceinline__ void report_fault(gdn_metadata_fault *fault, int32_t code, int64_t row, int64_t value)
{
    volatile gdn_metadata_fault *const shared = fault;
    for (bool done = false; !done;) {
        if (shared->code != GDN_FAULT_NONE && shared->row < row) {
            return;
        }
        if (atomicCAS(&fault->unused, 0, 1) == 0) {
            __threadfence();
            if (shared->code == GDN_FAULT_NONE || row < shared->row) {
                shared->row = row;
                shared->value = value;
                shared->code = code;
            }
            __threadfence();
            atomicExch(&fault->unused, 0);
            done = true;
        }
    }
}

} // namespace gdn

#endif
