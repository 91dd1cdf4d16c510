#include "environment.h"

#include "backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
    const char *const value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

const char *gdn_environment_backend_path(void)
{
    return variable("GDN_BACKEND_PATH");
}

gdn_status gdn_environment_read(gdn_environment *environment)
{
    memset(environment, 0, sizeof(*environment));
    environment->backend = variable("GDN_BACKEND");
    environment->implementations = variable("GDN_IMPL");
    environment->cpu_isa = variable("GDN_CPU_ISA");
    environment->backend_path = gdn_environment_backend_path();

    const char *const verbose = variable("GDN_VERBOSE");
    environment->verbose = verbose != NULL && strcmp(verbose, "0") != 0;

    const char *const threads = variable("GDN_NUM_THREADS");
    if (threads != NULL) {
        char *end = NULL;
        errno = 0;
        const long value = strtol(threads, &end, 10);
        if (errno != 0 || *end != '\0' || value < 1 || value > GDN_MAX_THREADS) {
            return GDN_INVALID("GDN_NUM_THREADS: \"%s\", must be a number in 1..%d", threads, GDN_MAX_THREADS);
        }
        environment->num_threads = (int32_t)value;
    }
    return GDN_OK;
}
