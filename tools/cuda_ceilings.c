#include "cuda_driver_private.h"
#include "random_inputs.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 10 };

typedef struct copy_job {
    cuda_address to, from;
    size_t bytes;
} copy_job;

static cuda_result queue_copy(cuda_driver *driver, void *user)
{
    const copy_job *const job = user;
    return driver->copy_on_device(job->to, job->from, job->bytes, driver->stream);
}

double cuda_copy_rate(cuda_driver *driver)
{
    copy_job job = {0, 0, (size_t)1 << 30};
    double best = 0;
    if (driver->memory_alloc(&job.to, job.bytes) == 0 && driver->memory_alloc(&job.from, job.bytes) == 0) {
        for (int i = 0; i < REPEATS; i++) {
            const double seconds = cuda_time(driver, queue_copy, &job);
            if (seconds > 0 && 2.0 * (double)job.bytes / seconds > best) {
                best = 2.0 * (double)job.bytes / seconds;
            }
        }
    }
    (void)driver->memory_free(job.to);
    (void)driver->memory_free(job.from);
    return best;
}

/* cuBLAS as documented: statuses are 0 on success, enums are ints. */
enum { BLAS_NO_TRANSPOSE = 0, BLAS_BF16 = 14, BLAS_COMPUTE_F32 = 68, BLAS_DEFAULT_ALGORITHM = -1 };

typedef struct cublas {
    void *library, *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                int compute_type, int algorithm);
} cublas;

static bool open_cublas(cublas *blas, void *stream)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    for (size_t i = 0; i < 2 && blas->library == NULL; i++) {
        blas->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (blas->library == NULL) {
        return false;
    }
    const struct {
        void *slot;
        const char *name;
    } functions[] = {{&blas->create, "cublasCreate_v2"},
                     {&blas->destroy, "cublasDestroy_v2"},
                     {&blas->set_stream, "cublasSetStream_v2"},
                     {&blas->gemm, "cublasGemmEx"}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *const symbol = dlsym(blas->library, functions[i].name);
        if (symbol == NULL) {
            return false;
        }
        memcpy(functions[i].slot, &symbol, sizeof(symbol));
    }
    return blas->create(&blas->handle) == 0 && blas->set_stream(blas->handle, stream) == 0;
}

typedef struct product_job {
    cublas *blas;
    int n;
    cuda_address a, b, c;
} product_job;

/* cuBLAS takes addresses as pointers. */
static void *device_pointer(cuda_address address)
{
    const uintptr_t bits = (uintptr_t)address;
    void *pointer = NULL;
    memcpy(&pointer, &bits, sizeof(pointer));
    return pointer;
}

static cuda_result queue_product(cuda_driver *driver, void *user)
{
    const product_job *const job = user;
    const float one = 1, zero = 0;
    (void)driver;
    return job->blas->gemm(job->blas->handle, BLAS_NO_TRANSPOSE, BLAS_NO_TRANSPOSE, job->n, job->n, job->n, &one,
                           device_pointer(job->a), BLAS_BF16, job->n, device_pointer(job->b), BLAS_BF16, job->n, &zero,
                           device_pointer(job->c), BLAS_BF16, job->n, BLAS_COMPUTE_F32, BLAS_DEFAULT_ALGORITHM);
}

/* Random signs and mantissas, magnitudes in [1, 2): a product's power, and so its clock, depends on its data. */
static bool fill_random(cuda_driver *driver, cuda_address to, size_t count, uint64_t stream)
{
    uint16_t *const values = malloc(count * sizeof(uint16_t));
    for (size_t i = 0; values != NULL && i < count; i++) {
        values[i] = (uint16_t)(0x3f80u | (random_bits(1, stream, i) & 0x807fu));
    }
    const bool good = values != NULL && driver->copy_to_device(to, values, count * sizeof(uint16_t)) == 0;
    free(values);
    return good;
}

double cuda_bf16_rate(cuda_driver *driver)
{
    cublas blas = {0};
    product_job job = {&blas, 8192, 0, 0, 0};
    const size_t count = (size_t)job.n * (size_t)job.n, bytes = count * sizeof(uint16_t);
    double best = 0;
    if (open_cublas(&blas, driver->stream) && driver->memory_alloc(&job.a, bytes) == 0 &&
        driver->memory_alloc(&job.b, bytes) == 0 && driver->memory_alloc(&job.c, bytes) == 0 &&
        fill_random(driver, job.a, count, 1) && fill_random(driver, job.b, count, 2)) {
        for (int i = 0; i < REPEATS; i++) {
            const double seconds = cuda_time(driver, queue_product, &job);
            const double flops = 2.0 * (double)count * job.n / seconds;
            best = seconds > 0 && flops > best ? flops : best;
        }
    }
    (void)driver->memory_free(job.a);
    (void)driver->memory_free(job.b);
    (void)driver->memory_free(job.c);
    if (blas.handle != NULL) {
        (void)blas.destroy(blas.handle);
    }
    /* The library stays loaded: its own clean-up at exit may still need it. */
    return best;
}
