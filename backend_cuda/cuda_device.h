/* One opened CUDA device, and the guard every entry point of the backend holds while it calls CUDA. */
#ifndef GDN_CUDA_DEVICE_H
#define GDN_CUDA_DEVICE_H

#include "core/backend.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gdn_cublas gdn_cublas; /* cublas_loader.h */

typedef enum gdn_cublas_state { GDN_CUBLAS_UNTRIED, GDN_CUBLAS_OPEN, GDN_CUBLAS_MISSING } gdn_cublas_state;

typedef struct gdn_cuda_device {
    gdn_device base; /* first: a gdn_device is cast to this */
    gdn_allocator allocator;
    gdn_blas blas;
    void (*log)(void *log_target, gdn_log_level level, const char *line);
    void *log_target;

    void *context; /* CUcontext: the device's primary context, retained while open */
    int32_t compute_capability; /* 90 for 9.0 */
    int32_t driver_version; /* of CUDA, 12030 for 12.3 */
    int32_t num_sms;
    /* With opt-in. A kernel whose blocks ask for different amounts is allowed the largest of them on every launch: host threads
     * set that side by side, and a launch fails where the last to set it set less than it needs. */
    int64_t shared_bytes_per_block;
    int64_t l2_bytes;

    gdn_cublas *cublas; /* NULL unless OPEN */
    gdn_cublas_state cublas_state;
} gdn_cuda_device;

static inline const gdn_cuda_device *gdn_cuda_device_of(const gdn_device *device)
{
    return (const gdn_cuda_device *)device;
}

/* Makes the device's context current for the calling thread and remembers the caller's; leave puts that back.
 * Enter also refuses to work on top of an error that an earlier call left pending: it is reported, once, by name. Where enter
 * fails there is nothing to leave, and leaving does nothing. */
typedef struct gdn_cuda_guard {
    void *previous;
    bool changed;
} gdn_cuda_guard;

gdn_status gdn_cuda_enter(const gdn_device *device, gdn_cuda_guard *guard);
void gdn_cuda_leave(const gdn_cuda_guard *guard);

/* Whether a build for the architectures in `list` ("80-real 90a-real 90-virtual") has code for a device of a capability:
 * machine code runs on its own major version from its minor version on ("a" code on exactly its version), PTX on every
 * later version ("a" and "f" PTX on its own alone). */
bool gdn_cuda_has_code(const char *list, int capability);

void gdn_cuda_probe(gdn_backend_report *report);
gdn_status gdn_cuda_open(gdn_device **device, const gdn_device_options *options);
void gdn_cuda_close(gdn_device *device);

#ifdef __cplusplus
}

namespace gdn
{

/* The guard for .cu files:
 *     const DeviceGuard guard(device);
 *     GDN_TRY(guard.status()); */
class DeviceGuard
{
  public:
    explicit DeviceGuard(const gdn_device *device) : status_(gdn_cuda_enter(device, &guard_))
    {
    }
    ~DeviceGuard()
    {
        gdn_cuda_leave(&guard_);
    }
    DeviceGuard(const DeviceGuard &) = delete;
    DeviceGuard &operator=(const DeviceGuard &) = delete;
    gdn_status status() const
    {
        return status_;
    }

  private:
    gdn_cuda_guard guard_;
    gdn_status status_;
};

} // namespace gdn
#endif

#endif
