/* A backend module as small as one can be: it takes the name of the one module that core looks for, host memory for its
 * memory, and one implementation that answers every decode with the number 42. The build makes variants of it that core
 * must pass over: another ABI, another version, another name, no entry symbol. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TOY_ABI
#define TOY_ABI GDN_BACKEND_ABI
#endif
#ifndef TOY_VERSION
#define TOY_VERSION GDN_VERSION_NUMBER
#endif
#ifndef TOY_NAME
#define TOY_NAME "cuda"
#endif
#ifndef TOY_ENTRY
#define TOY_ENTRY gdn_backend_entry
#endif

static const gdn_core_services *services;
extern const gdn_backend toy_backend;

typedef struct toy_device {
    gdn_device base;
    gdn_allocator allocator;
} toy_device;

/* The shim over core's service that every module brings. */
static gdn_status fail(gdn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    services->vfail(status, format, args);
    va_end(args);
    return status;
}

static void toy_probe(gdn_backend_report *report)
{
    report->usable = 1;
    report->num_devices = 1;
    snprintf(report->description, sizeof(report->description), "toy device of the test suite");
}

static gdn_status toy_open(gdn_device **device, const gdn_device_options *options)
{
    if (options->index != 0) {
        return fail(GDN_ERROR_INVALID_ARGUMENT, "device: %d, the toy backend has one", (int)options->index);
    }
    toy_device *const toy = options->allocator.alloc(options->allocator.user, sizeof(*toy), _Alignof(toy_device));
    if (toy == NULL) {
        return fail(GDN_ERROR_OUT_OF_MEMORY, "device: no memory");
    }
    memset(toy, 0, sizeof(*toy));
    toy->base.backend = &toy_backend;
    toy->allocator = options->allocator;
    snprintf(toy->base.description, sizeof(toy->base.description), "toy");
    *device = &toy->base;
    return GDN_OK;
}

static void toy_close(gdn_device *device)
{
    const gdn_allocator allocator = ((toy_device *)device)->allocator;
    allocator.free(allocator.user, device);
}

static gdn_status toy_alloc(gdn_device *device, void **ptr, size_t bytes)
{
    (void)device;
    *ptr = malloc(bytes);
    return *ptr != NULL ? GDN_OK : fail(GDN_ERROR_OUT_OF_MEMORY, "no %zu bytes", bytes);
}

static gdn_status toy_free(gdn_device *device, void *ptr)
{
    (void)device;
    free(ptr);
    return GDN_OK;
}

static bool toy_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    (void)device;
    if (problem->head_k_dim != 16) {
        snprintf(reason->text, sizeof(reason->text), "head_k_dim %d is not 16", (int)problem->head_k_dim);
        return false;
    }
    return true;
}

static gdn_status toy_book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                           gdn_choice *choice)
{
    (void)device;
    (void)problem;
    (void)max_workspace;
    gdn_ledger_book(&choice->ledger, "toy box", 1000);
    return GDN_OK;
}

static gdn_status toy_decode(const gdn_device *device, const gdn_decode_run *run)
{
    (void)device;
    *(float *)run->args->o = 42.0f;
    return GDN_OK;
}

static const gdn_implementation toy_implementation = {.name = "cuda.toy",
                                                      .summary = "answers 42",
                                                      .operation = GDN_OPERATION_DECODE,
                                                      .supports = toy_supports,
                                                      .book = toy_book,
                                                      .decode = toy_decode};

static const gdn_implementation *const toy_implementations[] = {&toy_implementation, NULL};

const gdn_backend toy_backend = {.abi = TOY_ABI,
                                 .version = TOY_VERSION,
                                 .name = TOY_NAME,
                                 .rank = -5,
                                 .host_memory = true,
                                 .probe = toy_probe,
                                 .open = toy_open,
                                 .close = toy_close,
                                 .alloc = toy_alloc,
                                 .free = toy_free,
                                 .implementations = toy_implementations};

__attribute__((visibility("default"))) const gdn_backend *TOY_ENTRY(const gdn_core_services *core);

const gdn_backend *TOY_ENTRY(const gdn_core_services *core)
{
    services = core;
    return &toy_backend;
}
