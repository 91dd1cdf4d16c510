#include "context.h"

#include "environment.h"
#include "implementation_list.h"
#include "log.h"
#include "pointer.h"
#include "registry.h"
#include "struct_version.h"

#include <stdio.h>
#include <stdlib.h>

static void *default_alloc(void *user, size_t size, size_t alignment)
{
    (void)user;
    /* aligned_alloc wants a multiple of the alignment. */
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void default_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

gdn_status gdn_context_options_init_sized(gdn_context_options *options, size_t struct_size)
{
    GDN_TRY(gdn_check_init_size(options, struct_size, sizeof(*options), "gdn_context_options"));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
    options->backend = "auto";
    return GDN_OK;
}

/* Where a value came from, to be named in messages: the option itself, or the variable that stood in for it. */
typedef struct option_names {
    const char *backend;
    const char *implementations;
    const char *cpu_isa;
} option_names;

static gdn_status check_cpu_isa(const char *isa, const char *name)
{
    static const char *const known[] = {"scalar", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if (strcmp(isa, known[i]) == 0) {
            return GDN_OK;
        }
    }
    return GDN_INVALID("%s: \"%s\", must be scalar, avx2, avx512 or neon", name, isa);
}

static gdn_status check_options(const gdn_context_options *options, const option_names *names)
{
    if (options->device < 0) {
        return GDN_INVALID("device: %d, must be at least 0", (int)options->device);
    }
    if (options->num_threads < 0 || options->num_threads > GDN_MAX_THREADS) {
        return GDN_INVALID("num_threads: %d, must be in 0..%d (0: as many as allowed)", (int)options->num_threads,
                           GDN_MAX_THREADS);
    }
    if (options->ignore_environment != 0 && options->ignore_environment != 1) {
        return GDN_INVALID("ignore_environment: %d, must be 0 or 1", (int)options->ignore_environment);
    }
    if (options->blas != GDN_BLAS_AUTO && options->blas != GDN_BLAS_OFF) {
        return GDN_INVALID("blas: %d, must be GDN_BLAS_AUTO or GDN_BLAS_OFF", (int)options->blas);
    }
    if ((options->allocator.alloc == NULL) != (options->allocator.free == NULL)) {
        return GDN_INVALID("allocator: %s is NULL, set both functions or neither",
                           options->allocator.alloc == NULL ? "alloc" : "free");
    }
    if (options->cpu_isa != NULL) {
        GDN_TRY(check_cpu_isa(options->cpu_isa, names->cpu_isa));
    }
    if (options->implementations != NULL && options->implementations[0] != '\0') {
        GDN_TRY(gdn_implementation_list_check(options->implementations, names->implementations));
    }
    return GDN_OK;
}

static void take_text(const char **option, const char **name, const char *value, const char *variable)
{
    if (*option == NULL && value != NULL) {
        *option = value;
        *name = variable;
    }
}

/* An option left at its default takes the environment's value: what a program sets itself stays. */
static void take_environment(gdn_context_options *options, option_names *names, const gdn_environment *environment)
{
    if (options->backend != NULL && strcmp(options->backend, "auto") == 0) {
        options->backend = NULL;
    }
    take_text(&options->backend, &names->backend, environment->backend, "GDN_BACKEND");
    take_text(&options->implementations, &names->implementations, environment->implementations, "GDN_IMPL");
    take_text(&options->cpu_isa, &names->cpu_isa, environment->cpu_isa, "GDN_CPU_ISA");
    if (options->num_threads == 0) {
        options->num_threads = environment->num_threads;
    }
    if (options->backend_path == NULL) {
        options->backend_path = environment->backend_path;
    }
}

static gdn_status open_backend(gdn_context *context, const gdn_backend_entry *entry, const gdn_context_options *options)
{
    const gdn_device_options device_options = {
        .index = options->device,
        .num_threads = options->num_threads,
        .blas = options->blas,
        .cpu_isa = options->cpu_isa,
        .allocator = context->allocator,
        .log = gdn_log_line,
        .log_target = context,
    };
    GDN_TRY(entry->backend->open(&context->device, &device_options));
    context->backend = entry->backend;
    gdn_pointer_know(entry->backend);
    gdn_log(context, GDN_LOG_INFO, "backend %s: %s", entry->backend->name, context->device->description);
    return GDN_OK;
}

/* Whether the entry's backend can be used now; logs and keeps the reason where it cannot. */
static bool is_usable(const gdn_context *context, gdn_backend_entry *entry)
{
    if (entry->backend != NULL) {
        gdn_backend_report report;
        memset(&report, 0, sizeof(report));
        report.struct_size = sizeof(report);
        entry->backend->probe(&report);
        if (report.usable) {
            return true;
        }
        memcpy(entry->reason, report.reason, sizeof(entry->reason));
    }
    gdn_log(context, GDN_LOG_INFO, "backend %s not usable: %s", entry->name, entry->reason);
    return false;
}

/* `option`: what the name came from. */
static gdn_status open_named(gdn_context *context, const gdn_context_options *options, const char *option)
{
    char names[128] = "auto";
    const int32_t count = gdn_registry_count();
    for (int32_t i = 0; i < count; ++i) {
        gdn_backend_entry entry;
        gdn_registry_find(i, options->backend_path, &entry);
        const size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, ", %s", entry.name);
        if (strcmp(entry.name, options->backend) != 0) {
            continue;
        }
        if (!is_usable(context, &entry)) {
            return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "%s: \"%s\" is not usable: %s", option, entry.name,
                            entry.reason);
        }
        return open_backend(context, &entry, options);
    }
    return GDN_INVALID("%s: \"%s\", must be one of %s", option, options->backend, names);
}

/* The best usable backend: by rank, and of equal ranks the first. One that is usable but does not open is an error, not
 * a reason to fall back silently. */
static gdn_status open_best(gdn_context *context, const gdn_context_options *options)
{
    gdn_backend_entry best = {.backend = NULL};
    const int32_t count = gdn_registry_count();
    for (int32_t i = 0; i < count; ++i) {
        gdn_backend_entry entry;
        gdn_registry_find(i, options->backend_path, &entry);
        if (is_usable(context, &entry) && (best.backend == NULL || entry.backend->rank > best.backend->rank)) {
            best = entry;
        }
    }
    if (best.backend == NULL) {
        return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "backend: auto, and no backend is usable (gdn_backend_info says "
                                                       "why)");
    }
    return open_backend(context, &best, options);
}

gdn_status gdn_context_create(gdn_context **context, const gdn_context_options *caller_options)
{
    if (context == NULL) {
        return GDN_INVALID("context: NULL, must point to the handle to set");
    }
    *context = NULL;
    gdn_context_options options;
    GDN_TRY(gdn_context_options_init(&options));
    if (caller_options != NULL) {
        GDN_TRY(
            gdn_check_struct_size(caller_options, caller_options->struct_size, sizeof(options), "gdn_context_options"));
        memcpy(&options, caller_options, sizeof(options));
    }
    option_names names = {.backend = "backend", .implementations = "implementations", .cpu_isa = "cpu_isa"};
    gdn_environment environment = {0};
    if (!options.ignore_environment) {
        GDN_TRY(gdn_environment_read(&environment));
        take_environment(&options, &names, &environment);
    }
    if (options.backend == NULL) {
        options.backend = "auto";
    }
    GDN_TRY(check_options(&options, &names));
    if (options.allocator.alloc == NULL) {
        options.allocator = (gdn_allocator){.alloc = default_alloc, .free = default_free};
    }

    gdn_context *const created =
        options.allocator.alloc(options.allocator.user, sizeof(*created), _Alignof(gdn_context));
    if (created == NULL) {
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "context: the allocator has no %zu bytes", sizeof(*created));
    }
    memset(created, 0, sizeof(*created));
    created->allocator = options.allocator;
    created->log = options.log;
    created->log_user = options.log_user;
    created->verbose = environment.verbose;
    if (options.implementations != NULL) {
        memcpy(created->implementations, options.implementations, strlen(options.implementations) + 1);
    }
    const gdn_status status = strcmp(options.backend, "auto") == 0 ? open_best(created, &options)
                                                                   : open_named(created, &options, names.backend);
    if (status != GDN_OK) {
        options.allocator.free(options.allocator.user, created);
        return status;
    }
    char strays[GDN_MAX_IMPLEMENTATION_LIST];
    if (gdn_implementation_list_strays(created, strays)) {
        gdn_log(created, GDN_LOG_WARNING, "%s: \"%s\" names nothing that backend %s has", names.implementations, strays,
                created->backend->name);
    }
    *context = created;
    return GDN_OK;
}

void gdn_context_destroy(gdn_context **context)
{
    if (context == NULL || *context == NULL) {
        return;
    }
    gdn_context *const doomed = *context;
    *context = NULL;
    doomed->backend->close(doomed->device);
    const gdn_allocator allocator = doomed->allocator;
    allocator.free(allocator.user, doomed);
}

const char *gdn_context_backend(const gdn_context *context)
{
    return context != NULL ? context->backend->name : "";
}
