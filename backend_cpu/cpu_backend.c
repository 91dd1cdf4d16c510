/* The CPU backend: any machine of the architecture it was compiled for. */
#include "cpu_backend.h"

#include "cpu_blas.h"
#include "cpu_device.h"
#include "cpu_implementations.h"
#include "cpu_memory.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_threads.h"

#include <stdio.h>
#include <string.h>

#ifdef _OPENMP
#define MAX_THREADS GDN_MAX_THREADS
#else
#define MAX_THREADS 1 /* built without OpenMP */
#endif

static int32_t default_threads(void)
{
    const int32_t threads = MAX_THREADS > 1 ? gdn_cpu_default_threads() : 1;
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

static void describe(char *text, size_t size, int32_t threads, const char *products, gdn_cpu_isa isa)
{
    snprintf(text, size, "%d thread%s, %s, %s", threads, threads == 1 ? "" : "s", products, gdn_cpu_isa_name(isa));
}

static void note(const gdn_device *device, char *buffer, size_t size)
{
    if (gdn_cpu_forked() && gdn_cpu_device_of(device)->num_threads > 1) {
        snprintf(buffer, size, "a forked process, where the parent's OpenMP threads are gone: calls use 1 thread");
    }
}

static void probe(gdn_backend_report *report)
{
    char products[160];
    gdn_cpu_blas_name(products, sizeof(products));
    report->usable = 1;
    report->num_devices = 1;
    describe(report->description, sizeof(report->description), default_threads(), products, gdn_cpu_isa_best());
    report->reason[0] = '\0';
}

/* Chooses between BLAS and the plain products, and says which in `products`. */
static gdn_status choose_products(gdn_cpu_device *device, const gdn_device_options *options, char *products,
                                  size_t size)
{
    if (options->blas == GDN_BLAS_OFF) {
        snprintf(products, size, "plain products (blas is OFF)");
        return GDN_OK;
    }
    char name[96];
    const bool usable = gdn_cpu_blas_name(name, sizeof(name));
    snprintf(products, size, "%s", name);
    if (!usable) {
        return GDN_OK;
    }
    /* Held before the check, which would otherwise wake the library's own threads. */
    gdn_cpu_blas_hold_threads();
    gdn_status status;
    device->use_blas = gdn_cpu_blas_computes_right(&options->allocator, &status);
    if (device->use_blas) {
        return GDN_OK;
    }
    gdn_cpu_blas_release_threads();
    snprintf(products, size, "plain products (%s fails the start-up check)", name);
    return status;
}

static gdn_status cpu_open(gdn_device **device, const gdn_device_options *options)
{
    *device = NULL;
    if (options->index != 0) {
        return gdn_fail(GDN_ERROR_INVALID_ARGUMENT, "device: %d, backend cpu has device 0 only", options->index);
    }
    gdn_cpu_device *const cpu = options->allocator.alloc(options->allocator.user, sizeof(*cpu), 64);
    if (!cpu) {
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "context: no memory for the device (%zu bytes)", sizeof(*cpu));
    }
    memset(cpu, 0, sizeof(*cpu));
    cpu->allocator = options->allocator;
    char products[192];
    const gdn_status status = choose_products(cpu, options, products, sizeof(products));
    if (status != GDN_OK) {
        options->allocator.free(options->allocator.user, cpu);
        return status;
    }
    const int32_t threads = options->num_threads > 0 ? options->num_threads : default_threads();
    cpu->num_threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    cpu->isa = gdn_cpu_isa_within(options->cpu_isa);
    cpu->base.backend = &gdn_backend_cpu;
    describe(cpu->base.description, sizeof(cpu->base.description), cpu->num_threads, products, cpu->isa);
    *device = &cpu->base;
    return GDN_OK;
}

static void cpu_close(gdn_device *device)
{
    gdn_cpu_device *const cpu = (gdn_cpu_device *)device;
    if (cpu->use_blas) {
        gdn_cpu_blas_release_threads();
    }
    const gdn_allocator allocator = cpu->allocator;
    allocator.free(allocator.user, cpu);
}

static const gdn_generic_ops ops = {
    .schedule = gdn_cpu_schedule,
    .begin_wave = gdn_cpu_begin_wave,
    .gates = gdn_cpu_gates,
    .pack = gdn_cpu_pack,
    .matmul = gdn_cpu_matmul,
    .mask = gdn_cpu_mask,
    .inverse = gdn_cpu_inverse,
    .scale_rows = gdn_cpu_scale_rows,
    .load_states = gdn_cpu_load_states,
    .store_states = gdn_cpu_store_states,
    .decay_state = gdn_cpu_decay_state,
    .walk = gdn_cpu_walk,
    .find_checkpoints = gdn_cpu_find_checkpoints,
    .store_checkpoints = gdn_cpu_store_checkpoints,
    .unpack = gdn_cpu_unpack,
};

const gdn_backend gdn_backend_cpu = {
    .abi = GDN_BACKEND_ABI,
    .version = GDN_VERSION_NUMBER,
    .name = "cpu",
    .rank = 0,
    .host_memory = true,
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = gdn_cpu_alloc,
    .free = gdn_cpu_free,
    .copy = gdn_cpu_copy,
    .fill = gdn_cpu_fill,
    .synchronize = gdn_cpu_synchronize,
    .note = note,
    .gate = gdn_cpu_gate,
    .implementations = gdn_cpu_implementations,
    .ops = &ops,
};
