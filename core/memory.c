/* Backend memory for callers that want no backend header: argument checks, then the backend. */
#include "pointer.h"

static gdn_status check_context(const gdn_context *context)
{
    return context != NULL ? GDN_OK : GDN_INVALID("context: NULL, must be a context");
}

static gdn_status check_range(const void *ptr, size_t bytes, const char *name)
{
    if (ptr == NULL && bytes > 0) {
        return GDN_INVALID("%s: NULL, must point to %zu bytes", name, bytes);
    }
    if (bytes > PTRDIFF_MAX || gdn_pointer_wraps(ptr, bytes)) {
        return GDN_INVALID("bytes: %zu, from %s %p on they reach past the end of the address space", bytes, name, ptr);
    }
    return GDN_OK;
}

gdn_status gdn_memory_alloc(gdn_context *context, void **ptr, size_t bytes)
{
    if (ptr == NULL) {
        return GDN_INVALID("ptr: NULL, must point to the pointer to set");
    }
    *ptr = NULL;
    GDN_TRY(check_context(context));
    /* A zero-byte request gets a unique pointer, too, so that NULL always means failure. */
    return context->backend->alloc(context->device, ptr, bytes > 0 ? bytes : 1);
}

gdn_status gdn_memory_free(gdn_context *context, void **ptr)
{
    GDN_TRY(check_context(context));
    if (ptr == NULL) {
        return GDN_INVALID("ptr: NULL, must point to the pointer to free");
    }
    if (*ptr == NULL) {
        return GDN_OK;
    }
    void *const doomed = *ptr;
    *ptr = NULL;
    return context->backend->free(context->device, doomed);
}

gdn_status gdn_memory_copy(gdn_context *context, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                           void *stream)
{
    GDN_TRY(check_context(context));
    GDN_TRY(check_range(dst, bytes, "dst"));
    GDN_TRY(check_range(src, bytes, "src"));
    if ((int)direction < (int)GDN_COPY_TO_BACKEND || (int)direction > (int)GDN_COPY_WITHIN_BACKEND) {
        return GDN_INVALID("direction: %d, must be a gdn_copy_direction (0..2)", (int)direction);
    }
    return bytes == 0 ? GDN_OK : context->backend->copy(context->device, dst, src, bytes, direction, stream);
}

gdn_status gdn_memory_fill(gdn_context *context, void *dst, int byte, size_t bytes, void *stream)
{
    GDN_TRY(check_context(context));
    GDN_TRY(check_range(dst, bytes, "dst"));
    if (byte < 0 || byte > 255) {
        return GDN_INVALID("byte: %d, must be in 0..255", byte);
    }
    return bytes == 0 ? GDN_OK : context->backend->fill(context->device, dst, byte, bytes, stream);
}

gdn_status gdn_synchronize(gdn_context *context, void *stream)
{
    GDN_TRY(check_context(context));
    return context->backend->synchronize(context->device, stream);
}
