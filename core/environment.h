/* Every GDN_* variable the library reads, in one place; read when a context is created. */
#ifndef GDN_CORE_ENVIRONMENT_H
#define GDN_CORE_ENVIRONMENT_H

#include <gdn/gdn.h>

#include <stdbool.h>

typedef struct gdn_environment {
    const char *backend; /* GDN_BACKEND: as gdn_context_options.backend */
    const char *implementations; /* GDN_IMPL: as .implementations */
    const char *cpu_isa; /* GDN_CPU_ISA: as .cpu_isa */
    const char *backend_path; /* GDN_BACKEND_PATH: as .backend_path */
    int32_t num_threads; /* GDN_NUM_THREADS: as .num_threads; 0 if unset */
    bool verbose; /* GDN_VERBOSE: anything but empty and "0"; log lines go to stderr where no callback is set */
} gdn_environment;

/* Unset and empty variables give NULL, 0, false. A GDN_NUM_THREADS that is no number in 1..GDN_MAX_THREADS is INVALID_ARGUMENT. The
 * strings live as long as the environment does: copy what is kept. */
gdn_status gdn_environment_read(gdn_environment *environment);

/* GDN_BACKEND_PATH alone, which listing the backends needs; NULL where it is unset or empty. */
const char *gdn_environment_backend_path(void);

#endif
