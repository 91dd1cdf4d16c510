#include "implementation_list.h"

#include "generic_ops.h"
#include "registry.h"

#include <stdio.h>
#include <string.h>

typedef struct list_item {
    const char *text; /* with the "-" */
    const char *prefix; /* without */
    size_t length; /* of the prefix */
    bool exclude;
} list_item;

/* Takes the item at *rest, which must not be NULL, and moves *rest to the next one, or to NULL. */
static list_item take_item(const char **rest)
{
    const char *const text = *rest;
    const char *const comma = strchr(text, ',');
    const bool exclude = text[0] == '-';
    const char *const prefix = exclude ? text + 1 : text;
    *rest = comma != NULL ? comma + 1 : NULL;
    return (list_item){
        .text = text,
        .prefix = prefix,
        .length = comma != NULL ? (size_t)(comma - prefix) : strlen(prefix),
        .exclude = exclude,
    };
}

static bool begins(const list_item *item, const char *name)
{
    return strncmp(name, item->prefix, item->length) == 0;
}

gdn_status gdn_implementation_list_check(const char *text, const char *name)
{
    if (strlen(text) >= GDN_MAX_IMPLEMENTATION_LIST) {
        return GDN_INVALID("%s: %zu characters, at most %d are allowed", name, strlen(text),
                           GDN_MAX_IMPLEMENTATION_LIST - 1);
    }
    for (const char *rest = text; rest != NULL;) {
        if (take_item(&rest).length == 0) {
            return GDN_INVALID(
                "%s: \"%s\", must be name prefixes separated by commas, each with \"-\" before it to exclude", name,
                text);
        }
    }
    return GDN_OK;
}

/* The context's items from the first; NULL for an empty list. */
static const char *items_of(const gdn_context *context)
{
    return context->implementations[0] != '\0' ? context->implementations : NULL;
}

bool gdn_implementation_list_allows(const gdn_context *context, const char *name)
{
    bool listed = false; /* some prefix is allowed by name: then one must match */
    bool matched = false;
    for (const char *rest = items_of(context); rest != NULL;) {
        const list_item item = take_item(&rest);
        const bool match = begins(&item, name);
        if (item.exclude && match) {
            return false;
        }
        listed = listed || !item.exclude;
        matched = matched || (!item.exclude && match);
    }
    return matched || !listed;
}

/* Whether the item is about a backend of this name: "cuda", "cuda.sm90". */
static bool is_about(const list_item *item, const char *backend)
{
    const size_t length = strlen(backend);
    return item->length <= length ? begins(item, backend)
                                  : strncmp(item->prefix, backend, length) == 0 && item->prefix[length] == '.';
}

static bool is_about_another_backend(const list_item *item, const gdn_context *context)
{
    for (const gdn_backend *const *entry = gdn_static_backends; *entry != NULL; ++entry) {
        if (*entry != context->backend && is_about(item, (*entry)->name)) {
            return true;
        }
    }
    for (const char *const *name = gdn_module_names; *name != NULL; ++name) {
        if (strcmp(*name, context->backend->name) != 0 && is_about(item, *name)) {
            return true;
        }
    }
    return false;
}

static bool begins_some_implementation(const list_item *item, const gdn_context *context)
{
    for (const gdn_implementation *const *entry = context->backend->implementations; *entry != NULL; ++entry) {
        if (begins(item, (*entry)->name)) {
            return true;
        }
    }
    return context->backend->ops != NULL && begins(item, gdn_generic_prefill.name);
}

bool gdn_implementation_list_strays(const gdn_context *context, char strays[GDN_MAX_IMPLEMENTATION_LIST])
{
    size_t used = 0;
    strays[0] = '\0';
    for (const char *rest = items_of(context); rest != NULL;) {
        const list_item item = take_item(&rest);
        if (!begins_some_implementation(&item, context) && !is_about_another_backend(&item, context)) {
            used += (size_t)snprintf(strays + used, GDN_MAX_IMPLEMENTATION_LIST - used, "%s%.*s", used > 0 ? "," : "",
                                     (int)(item.length + item.exclude), item.text);
        }
    }
    return used > 0;
}
