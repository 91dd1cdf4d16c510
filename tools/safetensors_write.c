#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *dtype_name(gdn_dtype dtype)
{
    switch (dtype) {
    case GDN_DTYPE_F32:
        return "F32";
    case GDN_DTYPE_BF16:
        return "BF16";
    case GDN_DTYPE_F16:
        return "F16";
    case GDN_DTYPE_I32:
        return "I32";
    case GDN_DTYPE_I64:
        return "I64";
    case GDN_DTYPE_U8:
        return "U8";
    default:
        return NULL;
    }
}

static uint64_t element_bytes(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_I64                             ? 8
           : dtype == GDN_DTYPE_U8                            ? 1
           : dtype == GDN_DTYPE_F32 || dtype == GDN_DTYPE_I32 ? 4
                                                              : 2;
}

/* {"dtype", "shape", "data_offsets"} of a tensor that starts at `begin`; NULL where memory ran out. */
static cJSON *describe(const safetensors_tensor *tensor, uint64_t begin)
{
    cJSON *const item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "dtype", dtype_name(tensor->dtype));
    cJSON *const shape = cJSON_AddArrayToObject(item, "shape");
    for (int32_t i = 0; i < tensor->rank; i++) {
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->size[i]));
    }
    cJSON *const offsets = cJSON_AddArrayToObject(item, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(begin + tensor->bytes)));
    return item;
}

/* The header text, padded with spaces so that the data starts at a multiple of 8; `order` gets the tensors'
 * places, wide elements first. The caller frees it. */
static char *build_header(const safetensors_tensor *tensors, size_t count, const safetensors_entry *metadata,
                          size_t num_metadata, size_t *order, size_t *length)
{
    cJSON *const header = cJSON_CreateObject();
    if (num_metadata > 0) {
        cJSON *const object = cJSON_AddObjectToObject(header, "__metadata__");
        for (size_t i = 0; i < num_metadata; i++) {
            cJSON_AddStringToObject(object, metadata[i].key, metadata[i].value);
        }
    }
    uint64_t begin = 0;
    size_t placed = 0;
    for (uint64_t width = 8; width >= 1; width /= 2) {
        for (size_t i = 0; i < count; i++) {
            if (element_bytes(tensors[i].dtype) == width) {
                cJSON_AddItemToObject(header, tensors[i].name, describe(&tensors[i], begin));
                begin += tensors[i].bytes;
                order[placed++] = i;
            }
        }
    }
    char *const text = cJSON_PrintUnformatted(header);
    cJSON_Delete(header);
    if (text == NULL) {
        return NULL;
    }
    const size_t used = strlen(text);
    *length = (used + 7) / 8 * 8;
    char *const padded = malloc(*length + 1);
    if (padded != NULL) {
        snprintf(padded, *length + 1, "%-*s", (int)*length, text);
    }
    cJSON_free(text);
    return padded;
}

static bool check(const safetensors_tensor *tensors, size_t count, char *error, size_t error_size)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = element_bytes(tensors[i].dtype);
        const bool known = dtype_name(tensors[i].dtype) != NULL;
        const bool rank_ok = tensors[i].rank >= 0 && tensors[i].rank <= SAFETENSORS_MAX_RANK;
        for (int32_t d = 0; rank_ok && d < tensors[i].rank; d++) {
            bytes *= (uint64_t)tensors[i].size[d];
        }
        if (!known || !rank_ok || bytes != tensors[i].bytes) {
            snprintf(error, error_size, "tensor '%.64s': dtype, rank or bytes do not agree", tensors[i].name);
            return false;
        }
    }
    return true;
}

static bool write_all(FILE *stream, const char *header, size_t length, const safetensors_tensor *tensors, size_t count,
                      const size_t *order)
{
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    bool good = fwrite(prefix, 1, 8, stream) == 8 && fwrite(header, 1, length, stream) == length;
    for (size_t i = 0; good && i < count; i++) {
        const safetensors_tensor *const tensor = &tensors[order[i]];
        good = tensor->bytes == 0 || fwrite(tensor->data, 1, tensor->bytes, stream) == tensor->bytes;
    }
    return good && fflush(stream) == 0;
}

/* A device or a pipe is written in place: a rename would replace it. */
static bool is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* A fresh file beside `path` with the mode a plain creation would give; its name in `temporary`. */
static FILE *open_temporary(const char *path, char *temporary, size_t size)
{
    if ((size_t)snprintf(temporary, size, "%s.XXXXXX", path) >= size) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    const int descriptor = mkstemp(temporary);
    if (descriptor < 0) {
        return NULL;
    }
    const mode_t mask = umask(0);
    umask(mask);
    FILE *const stream = fchmod(descriptor, 0666 & ~mask) == 0 ? fdopen(descriptor, "wb") : NULL;
    if (stream == NULL) {
        const int saved = errno;
        close(descriptor);
        unlink(temporary);
        errno = saved;
    }
    return stream;
}

static bool write_file(const char *path, const char *header, size_t length, const safetensors_tensor *tensors,
                       size_t count, const size_t *order)
{
    char temporary[4096];
    const bool special = is_special(path);
    FILE *const stream = special ? fopen(path, "wb") : open_temporary(path, temporary, sizeof(temporary));
    if (stream == NULL) {
        return false;
    }
    bool good = write_all(stream, header, length, tensors, count, order);
    int saved = errno;
    if (fclose(stream) != 0 && good) {
        good = false;
        saved = errno;
    }
    if (!special && (!good || rename(temporary, path) != 0)) {
        saved = good ? errno : saved;
        good = false;
        unlink(temporary);
    }
    errno = saved;
    return good;
}

bool safetensors_write(const char *path, const safetensors_tensor *tensors, size_t count,
                       const safetensors_entry *metadata, size_t num_metadata, char *error, size_t error_size)
{
    if (!check(tensors, count, error, error_size)) {
        return false;
    }
    size_t length = 0;
    size_t *const order = calloc(count + 1, sizeof(*order));
    char *const header = order != NULL ? build_header(tensors, count, metadata, num_metadata, order, &length) : NULL;
    bool good = header != NULL;
    if (!good) {
        snprintf(error, error_size, "%s: out of memory", path);
    } else if (!write_file(path, header, length, tensors, count, order)) {
        good = false;
        snprintf(error, error_size, "%s: cannot be written: %s", path, strerror(errno));
    }
    free(order);
    free(header);
    return good;
}
