/* Element types: conversion, packing, and loads and stores of an element whose type is known only at run time. */
#ifndef GDN_CUDA_DEVICE_ELEMENT_CUH
#define GDN_CUDA_DEVICE_ELEMENT_CUH

#include "ptx.cuh"

#include <gdn/gdn.h>

namespace gdn
{

/* Two floats rounded to nearest even, `low` in the low half: adjacent columns of a fragment. */
template <typename T> static __device__ __forceinline__ uint32_t pack2(float low, float high);

template <> __device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&v);
}

template <> __device__ __forceinline__ uint32_t pack2<__half>(float low, float high)
{
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&v);
}

template <typename T> static __device__ __forceinline__ float2 unpack2(uint32_t v);

template <> __device__ __forceinline__ float2 unpack2<__nv_bfloat16>(uint32_t v)
{
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

template <> __device__ __forceinline__ float2 unpack2<__half>(uint32_t v)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&v));
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}

/* Element `index` of a float array of any of the three float types. */
static __device__ __forceinline__ float load_element(const void *data, int32_t dtype, int64_t index)
{
    switch (dtype) {
    case GDN_DTYPE_BF16:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[index]);
    case GDN_DTYPE_F16:
        return __half2float(static_cast<const __half *>(data)[index]);
    default:
        return static_cast<const float *>(data)[index];
    }
}

/* load_element in two steps, for a type whose width the compiler knows: first the bits, so that several loads are under
 * way before the first is waited for. */
template <bool k16Bit> static __device__ __forceinline__ uint32_t load_bits(const void *data, int64_t index)
{
    return k16Bit ? static_cast<const uint16_t *>(data)[index] : static_cast<const uint32_t *>(data)[index];
}

template <bool k16Bit> static __device__ __forceinline__ float float_of_bits(uint32_t bits, int32_t dtype)
{
    if (!k16Bit) {
        return __uint_as_float(bits);
    }
    return dtype == GDN_DTYPE_BF16 ? __uint_as_float(bits << 16)
                                   : __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/* Element `index` of an array of `words` (1 or 2) 16-bit words an element, and of 32-bit words likewise: without a branch,
 * so that loads behind it need not wait. */
static __device__ __forceinline__ uint32_t load_halves(const void *data, int words, int64_t index)
{
    const uint16_t *const at = static_cast<const uint16_t *>(data) + index * words;
    uint32_t high = 0;
    if (words == 2) {
        high = at[1];
    }
    return at[0] | high << 16;
}

static __device__ __forceinline__ uint2 load_words(const void *data, int words, int64_t index)
{
    const uint32_t *const at = static_cast<const uint32_t *>(data) + index * words;
    uint2 loaded = make_uint2(at[0], 0);
    if (words == 2) {
        loaded.y = at[1];
    }
    return loaded;
}

/* The int32 or int64 number that load_words loaded. */
static __device__ __forceinline__ int64_t index_of(uint2 loaded, int words)
{
    return words == 2 ? static_cast<int64_t>(static_cast<uint64_t>(loaded.y) << 32 | loaded.x)
                      : static_cast<int64_t>(static_cast<int32_t>(loaded.x));
}

static __device__ __forceinline__ void store_element(void *data, int32_t dtype, int64_t index, float x)
{
    switch (dtype) {
    case GDN_DTYPE_BF16:
        static_cast<__nv_bfloat16 *>(data)[index] = __float2bfloat16_rn(x);
        break;
    case GDN_DTYPE_F16:
        static_cast<__half *>(data)[index] = __float2half_rn(x);
        break;
    default:
        static_cast<float *>(data)[index] = x;
        break;
    }
}

/* Element `index` of an int32 or int64 array. */
static __device__ __forceinline__ int64_t load_index(const void *data, int32_t dtype, int64_t index)
{
    return dtype == GDN_DTYPE_I32 ? static_cast<const int32_t *>(data)[index]
                                  : static_cast<const int64_t *>(data)[index];
}

} // namespace gdn

#endif
