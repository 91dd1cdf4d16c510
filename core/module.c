#define _GNU_SOURCE /* dladdr */
#include "module.h"

#include "config.h"
#include "error_internal.h"

#include <stdio.h>
#include <string.h>

#if GDN_HAVE_MODULES

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

static const gdn_core_services core_services = {
    .abi = GDN_BACKEND_ABI,
    .version = GDN_VERSION_NUMBER,
    .vfail = gdn_vfail,
};

/* Appends one more "file: why not" to the reason, "; " between. */
static void add_reason(char *reason, size_t size, const char *path, const char *why)
{
    const size_t used = strlen(reason);
    if (used < size) {
        snprintf(reason + used, size - used, "%s%s: %s", used > 0 ? "; " : "", path, why);
    }
}

/* What comes after "path: " in a message that begins with it. */
static const char *without_path(const char *message, const char *path)
{
    const size_t length = strlen(path);
    return strncmp(message, path, length) == 0 && strncmp(message + length, ": ", 2) == 0 ? message + length + 2
                                                                                          : message;
}

static const gdn_backend *load_file(const char *path, const char *name, char *reason, size_t reason_size)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        add_reason(reason, reason_size, path, "no such file");
        return NULL;
    }
    /* dlopen of a directory or an empty file has a message of its own for each C library; say it plainly instead. */
    if (!S_ISREG(status.st_mode)) {
        add_reason(reason, reason_size, path, "not a file");
        return NULL;
    }
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *const why = dlerror();
        add_reason(reason, reason_size, path, why != NULL ? without_path(why, path) : "does not load");
        return NULL;
    }
    /* ISO C has no conversion from an object pointer to a function pointer; POSIX guarantees this one. */
    gdn_module_entry_fn entry = NULL;
    void *const symbol = dlsym(handle, GDN_MODULE_ENTRY_NAME);
    memcpy(&entry, &symbol, sizeof(entry));
    const gdn_backend *const backend = entry != NULL ? entry(&core_services) : NULL;

    char why[128] = "";
    if (entry == NULL) {
        snprintf(why, sizeof(why), "no %s symbol, not a gdn backend module", GDN_MODULE_ENTRY_NAME);
    } else if (backend == NULL) {
        snprintf(why, sizeof(why), "refused this library's version %d", GDN_VERSION_NUMBER);
    } else if (backend->abi != GDN_BACKEND_ABI) {
        snprintf(why, sizeof(why), "backend ABI %u, this library's is %u", backend->abi, GDN_BACKEND_ABI);
    } else if (backend->version != GDN_VERSION_NUMBER) {
        snprintf(why, sizeof(why), "version %d, this library's is %d", (int)backend->version, GDN_VERSION_NUMBER);
    } else if (strcmp(backend->name, name) != 0) {
        snprintf(why, sizeof(why), "brings backend \"%.32s\", not \"%.32s\"", backend->name, name);
    }
    if (why[0] != '\0') {
        add_reason(reason, reason_size, path, why);
        dlclose(handle);
        return NULL;
    }
    return backend; /* the handle stays open: a module is never unloaded */
}

/* The program's own file, whatever name it was started by. */
static bool program_file(char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length <= 0 || (size_t)length >= size - 1) {
        return false;
    }
    path[length] = '\0';
    return true;
}

/* The folder of the object this code is in: the shared library, or a program it is linked into. A name that is not absolute
 * would be looked up in the current directory, which is not searched. */
static bool own_folder(char *folder, size_t size)
{
    Dl_info own;
    Dl_info program;
    if (dladdr((const void *)&core_services, &own) == 0 || own.dli_fname == NULL) {
        return false;
    }
    /* A program's dli_fname is what it was called, not where it is. */
    const void *const headers = (const void *)getauxval(AT_PHDR);
    if (dladdr(headers, &program) != 0 && program.dli_fbase == own.dli_fbase) {
        if (!program_file(folder, size)) {
            return false;
        }
    } else if (own.dli_fname[0] != '/' || strlen(own.dli_fname) >= size) {
        return false;
    } else {
        memcpy(folder, own.dli_fname, strlen(own.dli_fname) + 1);
    }
    char *const slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

const gdn_backend *gdn_module_load(const char *name, const char *extra_path, char *reason, size_t reason_size)
{
    char folder[3584];
    char path[4096];
    reason[0] = '\0';
    if (own_folder(folder, sizeof(folder))) {
        snprintf(path, sizeof(path), "%s/libgdn_%s.so", folder, name);
        const gdn_backend *const backend = load_file(path, name, reason, reason_size);
        if (backend != NULL) {
            return backend;
        }
    } else {
        add_reason(reason, reason_size, name, "the folder of this library is not known; name one in backend_path");
    }
    if (extra_path != NULL && extra_path[0] != '\0') {
        if (strlen(extra_path) >= sizeof(folder)) {
            add_reason(reason, reason_size, "folder to search", "longer than 3583 bytes");
            return NULL;
        }
        snprintf(path, sizeof(path), "%s/libgdn_%s.so", extra_path, name);
        return load_file(path, name, reason, reason_size);
    }
    return NULL;
}

#else

const gdn_backend *gdn_module_load(const char *name, const char *extra_path, char *reason, size_t reason_size)
{
    (void)extra_path;
    snprintf(reason, reason_size, "built without module loading, and %s is not linked in", name);
    return NULL;
}

#endif
