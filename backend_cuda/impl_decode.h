#ifndef GDN_CUDA_IMPL_DECODE_H
#define GDN_CUDA_IMPL_DECODE_H

#include "core/backend.h"

extern const gdn_implementation gdn_cuda_decode;

#endif
