#include "cublas_loader.h"

#include "cuda_error.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MAX_SHAPES 64

/* The batch count that algorithms are chosen for, and the most entries of one call. */
#define CHOICE_BATCH 256
#define MAX_BATCH 32768

typedef struct lt_functions {
    cublasStatus_t (*create)(cublasLtHandle_t *handle);
    cublasStatus_t (*destroy)(cublasLtHandle_t handle);
    size_t (*get_version)(void);
    cublasStatus_t (*desc_init)(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                cudaDataType_t scale);
    cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
                               size_t size);
    cublasStatus_t (*layout_init)(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows,
                                  uint64_t cols, int64_t ld);
    cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t size);
    cublasStatus_t (*preference_init)(cublasLtMatmulPreference_t preference, size_t size);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size);
    cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t results[], int *found);
    cublasStatus_t (*check)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result);
    cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                             const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t workspace_size, cudaStream_t stream);
    const char *(*status_name)(cublasStatus_t status);
} lt_functions;

/* One product's sizes, as gdn_matmul has them; dense matrices. */
typedef struct lt_shape {
    int32_t m, n, k;
    bool transpose_a, transpose_b;
} lt_shape;

struct gdn_cublas {
    void *library;
    lt_functions lt;
    cublasLtHandle_t handle;
    size_t version;
    /* Grows under the lock; readers see the first num_shapes entries, which never change. */
    atomic_int num_shapes;
    lt_shape shape[MAX_SHAPES];
    bool usable[MAX_SHAPES]; /* false: nothing fits, the tiled kernel takes it */
    cublasLtMatmulAlgo_t algo[MAX_SHAPES];
};

static pthread_mutex_t cublas_lock = PTHREAD_MUTEX_INITIALIZER;

static bool load_functions(gdn_cublas *cublas)
{
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"cublasLtCreate", &cublas->lt.create},
        {"cublasLtDestroy", &cublas->lt.destroy},
        {"cublasLtGetVersion", &cublas->lt.get_version},
        {"cublasLtMatmulDescInit_internal", &cublas->lt.desc_init},
        {"cublasLtMatmulDescSetAttribute", &cublas->lt.desc_set},
        {"cublasLtMatrixLayoutInit_internal", &cublas->lt.layout_init},
        {"cublasLtMatrixLayoutSetAttribute", &cublas->lt.layout_set},
        {"cublasLtMatmulPreferenceInit_internal", &cublas->lt.preference_init},
        {"cublasLtMatmulPreferenceSetAttribute", &cublas->lt.preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &cublas->lt.heuristic},
        {"cublasLtMatmulAlgoCheck", &cublas->lt.check},
        {"cublasLtMatmul", &cublas->lt.matmul},
        {"cublasLtGetStatusName", &cublas->lt.status_name},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *const symbol = dlsym(cublas->library, symbols[i].name);
        if (symbol == NULL) {
            return false;
        }
        memcpy(symbols[i].slot, &symbol, sizeof(symbol));
    }
    return true;
}

static void *open_library(void)
{
    /* The major version these headers are of; its structs and enums are not those of another. */
    char name[32];
    (void)snprintf(name, sizeof(name), "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    /* Never closed: a device runtime cannot be unloaded safely. */
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void try_open(gdn_cuda_device *device)
{
    device->cublas_state = GDN_CUBLAS_MISSING;
    gdn_cublas *const cublas =
        device->allocator.alloc(device->allocator.user, sizeof(gdn_cublas), _Alignof(gdn_cublas));
    if (cublas == NULL) {
        return;
    }
    memset(cublas, 0, sizeof(*cublas));
    cublas->library = open_library();
    if (cublas->library != NULL && load_functions(cublas) &&
        cublas->lt.create(&cublas->handle) == CUBLAS_STATUS_SUCCESS) {
        cublas->version = cublas->lt.get_version();
        device->cublas = cublas;
        device->cublas_state = GDN_CUBLAS_OPEN;
        return;
    }
    device->allocator.free(device->allocator.user, cublas);
}

/* What one call needs. cuBLAS is column-major: our row-major C = op(A) op(B) is its C^T = op(B)^T op(A)^T, so that our B
 * is its first operand, and a row-major matrix is its transpose as it lies. */
typedef struct lt_call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t first, second, result;
} lt_call;

static bool set_layout(const lt_functions *lt, cublasLtMatrixLayout_t layout, int32_t rows, int32_t cols, int64_t ld,
                       int32_t batch, int64_t stride)
{
    return lt->layout_init(layout, sizeof(*layout), CUDA_R_32F, (uint64_t)cols, (uint64_t)rows, ld) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)) == CUBLAS_STATUS_SUCCESS &&
           lt->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)) ==
               CUBLAS_STATUS_SUCCESS;
}

static bool set_up(const lt_functions *lt, lt_call *call, const lt_shape *shape, int32_t batch, int64_t stride_a,
                   int64_t stride_b, int64_t stride_c)
{
    const cublasOperation_t first = shape->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = shape->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t a_rows = shape->transpose_a ? shape->k : shape->m;
    const int32_t a_cols = shape->transpose_a ? shape->m : shape->k;
    const int32_t b_rows = shape->transpose_b ? shape->n : shape->k;
    const int32_t b_cols = shape->transpose_b ? shape->k : shape->n;
    return lt->desc_init(&call->desc, sizeof(call->desc), CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->desc_set(&call->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)) == CUBLAS_STATUS_SUCCESS &&
           lt->desc_set(&call->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)) == CUBLAS_STATUS_SUCCESS &&
           set_layout(lt, &call->first, b_rows, b_cols, b_cols, batch, stride_b) &&
           set_layout(lt, &call->second, a_rows, a_cols, a_cols, batch, stride_a) &&
           set_layout(lt, &call->result, shape->m, shape->n, shape->n, batch, stride_c);
}

/* Chooses for a fixed batch count, then makes sure that one entry and many are computed the same way. */
static bool choose(const gdn_cublas *cublas, const lt_shape *shape, cublasLtMatmulAlgo_t *algo)
{
    const lt_functions *const lt = &cublas->lt;
    const int64_t stride_a = (int64_t)shape->m * shape->k;
    const int64_t stride_b = (int64_t)shape->k * shape->n;
    const int64_t stride_c = (int64_t)shape->m * shape->n;
    const size_t no_workspace = 0;
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t alignment = 16;
    cublasLtMatmulPreferenceOpaque_t preference;
    lt_call call;
    if (!set_up(lt, &call, shape, CHOICE_BATCH, stride_a, stride_b, stride_c) ||
        lt->preference_init(&preference, sizeof(preference)) != CUBLAS_STATUS_SUCCESS ||
        lt->preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_workspace,
                           sizeof(no_workspace)) != CUBLAS_STATUS_SUCCESS ||
        lt->preference_set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
                           sizeof(no_reduction)) != CUBLAS_STATUS_SUCCESS) {
        return false;
    }
    const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        if (lt->preference_set(&preference, alignments[i], &alignment, sizeof(alignment)) != CUBLAS_STATUS_SUCCESS) {
            return false;
        }
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    if (lt->heuristic(cublas->handle, &call.desc, &call.first, &call.second, &call.result, &call.result, &preference, 1,
                      &result, &found) != CUBLAS_STATUS_SUCCESS ||
        found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
        return false;
    }
    *algo = result.algo;
    const int32_t batches[] = {1, MAX_BATCH};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        if (!set_up(lt, &call, shape, batches[i], stride_a, stride_b, stride_c) ||
            lt->check(cublas->handle, &call.desc, &call.first, &call.second, &call.result, &call.result, algo,
                      &result) != CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > 0) {
            return false;
        }
    }
    return true;
}

static int find_shape(const gdn_cublas *cublas, const lt_shape *shape)
{
    const int count = atomic_load_explicit(&((gdn_cublas *)cublas)->num_shapes, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        const lt_shape *const known = &cublas->shape[i];
        if (known->m == shape->m && known->n == shape->n && known->k == shape->k &&
            known->transpose_a == shape->transpose_a && known->transpose_b == shape->transpose_b) {
            return i;
        }
    }
    return -1;
}

/* Under the lock. */
static void add_shape(gdn_cublas *cublas, lt_shape shape)
{
    const int count = atomic_load_explicit(&cublas->num_shapes, memory_order_relaxed);
    /* Leading dimensions and strides at 16 bytes, as alignment promises. */
    if (count == MAX_SHAPES || shape.m % 4 != 0 || shape.n % 4 != 0 || shape.k % 4 != 0 ||
        find_shape(cublas, &shape) >= 0) {
        return;
    }
    cublas->shape[count] = shape;
    cublas->usable[count] = choose(cublas, &shape, &cublas->algo[count]);
    atomic_store_explicit(&cublas->num_shapes, count + 1, memory_order_release);
}

gdn_status gdn_cublas_prepare(gdn_cuda_device *device, const gdn_problem *problem, int32_t chunk_size)
{
    if (device->blas == GDN_BLAS_OFF || problem->numerics != GDN_NUMERICS_TF32) {
        return GDN_OK;
    }
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(&device->base, &guard);
    if (status == GDN_OK) {
        (void)pthread_mutex_lock(&cublas_lock);
        if (device->cublas_state == GDN_CUBLAS_UNTRIED) {
            try_open(device);
        }
        if (device->cublas_state == GDN_CUBLAS_OPEN) {
            const int32_t C = chunk_size;
            const int32_t K = problem->head_k_dim;
            const int32_t V = problem->head_v_dim;
            add_shape(device->cublas, (lt_shape){C, C, K, false, true}); /* k k^T, q k^T */
            add_shape(device->cublas, (lt_shape){C, V, C, false, false}); /* A (beta v), P V' */
            add_shape(device->cublas, (lt_shape){C, K, C, false, false}); /* A (beta exp(G) k) */
        }
        (void)pthread_mutex_unlock(&cublas_lock);
    }
    gdn_cuda_leave(&guard);
    return status;
}

void gdn_cublas_close(gdn_cuda_device *device)
{
    gdn_cublas *const cublas = device->cublas;
    if (cublas == NULL) {
        return;
    }
    gdn_cuda_guard guard;
    if (gdn_cuda_enter(&device->base, &guard) == GDN_OK) {
        (void)cublas->lt.destroy(cublas->handle);
    }
    gdn_cuda_leave(&guard);
    device->allocator.free(device->allocator.user, cublas);
    device->cublas = NULL;
}

void gdn_cublas_describe(const gdn_cuda_device *device, char *buffer, size_t size)
{
    if (device->blas == GDN_BLAS_OFF) {
        (void)snprintf(buffer, size, "generic products: tiled kernels (blas OFF)");
    } else if (device->cublas_state == GDN_CUBLAS_OPEN) {
        (void)snprintf(buffer, size, "generic products: tiled kernels; TF32 ones cuBLASLt %zu where strides allow",
                       device->cublas->version);
    } else if (device->cublas_state == GDN_CUBLAS_MISSING) {
        (void)snprintf(buffer, size, "generic products: tiled kernels (libcublasLt.so.%d does not open)",
                       CUBLAS_VER_MAJOR);
    } else {
        (void)snprintf(buffer, size, "generic products: tiled kernels; cuBLASLt not opened, no plan asks for TF32");
    }
}

/* Whether an operand's entries follow one another at one stride over the batch; a dimension of one entry has any. */
static bool is_uniform(const gdn_batch_matrix *x, const int64_t batch[3], int64_t *stride)
{
    int order[3] = {0, 1, 2};
    *stride = 0;
    if (x->outer_index != NULL) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2 - i; j++) {
            if (x->stride[order[j]] > x->stride[order[j + 1]]) {
                const int moved = order[j];
                order[j] = order[j + 1];
                order[j + 1] = moved;
            }
        }
    }
    int64_t count = 1;
    for (int i = 0; i < 3; i++) {
        const int d = order[i];
        if (batch[d] == 1) {
            continue;
        }
        if (count == 1) {
            *stride = x->stride[d];
        } else if (x->stride[d] != *stride * count) {
            return false;
        }
        count *= batch[d];
    }
    return count == 1 || *stride > 0;
}

/* Whether all three operands order the batch alike: then one flat index serves them. */
static bool is_same_order(const gdn_matmul *matmul)
{
    for (int i = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++) {
            if (matmul->batch[i] == 1 || matmul->batch[j] == 1) {
                continue;
            }
            const bool a = matmul->a.stride[i] > matmul->a.stride[j];
            const bool b = matmul->b.stride[i] > matmul->b.stride[j];
            const bool c = matmul->c.stride[i] > matmul->c.stride[j];
            if (a != b || a != c) {
                return false;
            }
        }
    }
    return true;
}

gdn_status gdn_cublas_matmul(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul,
                             bool *taken)
{
    gdn_cublas *const cublas = device->cublas;
    const lt_shape shape = {matmul->m, matmul->n, matmul->k, matmul->transpose_a, matmul->transpose_b};
    int64_t stride_a = 0;
    int64_t stride_b = 0;
    int64_t stride_c = 0;
    *taken = false;
    if (cublas == NULL || matmul->numerics != GDN_NUMERICS_TF32) {
        return GDN_OK;
    }
    const int index = find_shape(cublas, &shape);
    if (index < 0 || !cublas->usable[index] || matmul->a.ld != (matmul->transpose_a ? matmul->m : matmul->k) ||
        matmul->b.ld != (matmul->transpose_b ? matmul->k : matmul->n) || matmul->c.ld != matmul->n ||
        !is_uniform(&matmul->a, matmul->batch, &stride_a) || !is_uniform(&matmul->b, matmul->batch, &stride_b) ||
        !is_uniform(&matmul->c, matmul->batch, &stride_c) || !is_same_order(matmul) ||
        (stride_a | stride_b | stride_c) % 4 != 0) {
        return GDN_OK;
    }
    *taken = true;
    const int64_t entries = matmul->batch[0] * matmul->batch[1] * matmul->batch[2];
    for (int64_t first = 0; first < entries; first += MAX_BATCH) {
        const int64_t left = entries - first;
        lt_call call;
        if (!set_up(&cublas->lt, &call, &shape, (int32_t)(left < MAX_BATCH ? left : MAX_BATCH), stride_a, stride_b,
                    stride_c)) {
            return gdn_fail(GDN_ERROR_INTERNAL, "cublasLt: a layout of %d x %d x %d was refused", shape.m, shape.n,
                            shape.k);
        }
        const cublasStatus_t status =
            cublas->lt.matmul(cublas->handle, &call.desc, &matmul->alpha, matmul->b.data + first * stride_b,
                              &call.first, matmul->a.data + first * stride_a, &call.second, &matmul->beta,
                              matmul->c.data + first * stride_c, &call.result, matmul->c.data + first * stride_c,
                              &call.result, &cublas->algo[index], NULL, 0, (cudaStream_t)run->stream);
        if (status != CUBLAS_STATUS_SUCCESS) {
            return gdn_fail(GDN_ERROR_DEVICE, "cublasLtMatmul: %s", cublas->lt.status_name(status));
        }
    }
    return GDN_OK;
}
