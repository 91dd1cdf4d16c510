#include "tensor_map.h"

#include "../cuda_error.h"
#include "prefill.h"

#include <cuda_runtime_api.h>
#include <string.h>

typedef CUresult (*encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *data,
                              const cuuint64_t *size, const cuuint64_t *strides, const cuuint32_t *box,
                              const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                              CUtensorMapFloatOOBfill fill);

/* The driver's function, asked of the runtime: nothing links libcuda. */
static gdn_status find_encode(encode_fn *encode)
{
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    GDN_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found));
#else
    GDN_CUDA_TRY(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &symbol, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess || symbol == NULL) {
        return gdn_fail(GDN_ERROR_DEVICE, "the CUDA driver has no cuTensorMapEncodeTiled: too old");
    }
    memcpy(encode, &symbol, sizeof(*encode)); /* ISO C has no conversion from an object to a function pointer */
    return GDN_OK;
}

static int64_t at_least_one(int64_t x)
{
    return x < 1 ? 1 : x;
}

gdn_status gdn_sm90_tensor_map(CUtensorMap *map, const char *name, gdn_dtype dtype, const void *data, int64_t dim,
                               int64_t heads, int64_t tokens, int64_t rows, const gdn_layout *layout,
                               int64_t row_stride)
{
    encode_fn encode = NULL;
    GDN_TRY(find_encode(&encode));
    const CUtensorMapDataType type =
        dtype == GDN_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const cuuint64_t size[4] = {(cuuint64_t)dim, (cuuint64_t)heads, (cuuint64_t)at_least_one(tokens),
                                (cuuint64_t)at_least_one(rows)};
    /* A stride that nothing is ever multiplied with must still be one that the driver takes. */
    const cuuint64_t strides[3] = {2 * (cuuint64_t)(heads > 1 ? layout->head_stride : dim),
                                   2 * (cuuint64_t)(tokens > 1 ? layout->token_stride : dim),
                                   2 * (cuuint64_t)(rows > 1 ? row_stride : dim)};
    const cuuint32_t box[4] = {64, 1, GDN_SM90_CHUNK, 1};
    const cuuint32_t ones[4] = {1, 1, 1, 1};
    void *address = NULL;
    memcpy(&address, &data, sizeof(address)); /* the driver's parameter is not const */
    const CUresult result =
        encode(map, type, 4, address, size, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        return gdn_fail(GDN_ERROR_DEVICE,
                        "%s: cuTensorMapEncodeTiled: error %d for token stride %lld, head stride %lld, pointer %p",
                        name, (int)result, (long long)layout->token_stride, (long long)layout->head_stride, data);
    }
    return GDN_OK;
}
