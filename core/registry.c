#include "registry.h"

#include "environment.h"
#include "module.h"
#include "struct_version.h"

#include <stdio.h>
#include <string.h>

static bool is_static(const char *name)
{
    for (int32_t i = 0; gdn_static_backends[i] != NULL; ++i) {
        if (strcmp(gdn_static_backends[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The name of the index-th module that no linked-in backend hides, or NULL past the last. */
static const char *module_name(int32_t index)
{
    for (int32_t i = 0; gdn_module_names[i] != NULL; ++i) {
        if (!is_static(gdn_module_names[i]) && index-- == 0) {
            return gdn_module_names[i];
        }
    }
    return NULL;
}

static int32_t count_modules(void)
{
    int32_t count = 0;
    while (module_name(count) != NULL) {
        ++count;
    }
    return count;
}

int32_t gdn_registry_count(void)
{
    int32_t count = count_modules();
    for (int32_t i = 0; gdn_static_backends[i] != NULL; ++i) {
        ++count;
    }
    return count;
}

void gdn_registry_find(int32_t index, const char *extra_path, gdn_backend_entry *entry)
{
    memset(entry, 0, sizeof(*entry));
    const int32_t num_modules = count_modules();
    if (index < num_modules) {
        entry->name = module_name(index);
        entry->backend = gdn_module_load(entry->name, extra_path, entry->reason, sizeof(entry->reason));
        return;
    }
    entry->backend = gdn_static_backends[index - num_modules];
    entry->name = entry->backend->name;
}

int32_t gdn_backend_count(void)
{
    return gdn_registry_count();
}

gdn_status gdn_backend_info(int32_t index, gdn_backend_report *report)
{
    if (report == NULL) {
        return GDN_INVALID("report: NULL, must point to a gdn_backend_report");
    }
    if (report->struct_size < sizeof(*report) || report->struct_size > sizeof(*report) + 4096) {
        return gdn_fail(GDN_ERROR_VERSION_MISMATCH, "report.struct_size: %zu, must be %zu", report->struct_size,
                        sizeof(*report));
    }
    const int32_t count = gdn_registry_count();
    if (index < 0 || index >= count) {
        return GDN_INVALID("index: %d, must be in 0..%d", (int)index, (int)count - 1);
    }
    gdn_backend_entry entry;
    gdn_registry_find(index, gdn_environment_backend_path(), &entry);

    memset((char *)report + sizeof(report->struct_size), 0, sizeof(*report) - sizeof(report->struct_size));
    if (entry.backend == NULL) {
        snprintf(report->reason, sizeof(report->reason), "%s", entry.reason);
    } else {
        entry.backend->probe(report);
    }
    snprintf(report->name, sizeof(report->name), "%s", entry.name);
    return GDN_OK;
}
