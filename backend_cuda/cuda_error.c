#include "cuda_error.h"

#include <stdbool.h>
#include <string.h>

/* Errors after which the driver refuses all further work of the process on this device. */
static bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
        return true;
    default:
        return false;
    }
}

/* The part of "cudaMalloc(ptr, bytes)" that a message needs: "cudaMalloc". */
static int name_length(const char *call)
{
    int length = 0;
    while (call[length] != '\0' && call[length] != '(') {
        length++;
    }
    return length;
}

/* `prefix` and the first `length` characters of `what` name what failed. */
static gdn_status fail(cudaError_t error, const char *prefix, int length, const char *what)
{
    return gdn_fail(error == cudaErrorMemoryAllocation ? GDN_ERROR_OUT_OF_MEMORY : GDN_ERROR_DEVICE,
                    "%s%.*s: %s (%s)%s", prefix, length, what, cudaGetErrorName(error), cudaGetErrorString(error),
                    is_sticky(error) ? "; the process can no longer use this device" : "");
}

gdn_status gdn_cuda_fail(cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    return fail(error, "", name_length(call), call);
}

gdn_status gdn_cuda_launched(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? GDN_OK : fail(error, "launch of ", (int)strlen(kernel), kernel);
}
