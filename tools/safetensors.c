#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct safetensors_file {
    void *mapping; /* NULL: the bytes are the caller's */
    size_t mapping_size;
    cJSON *header;
    const cJSON *metadata;
    safetensors_tensor *tensors; /* in the order of their data */
    size_t count;
    safetensors_tensor **by_name;
};

static const struct {
    const char *name;
    gdn_dtype dtype;
    uint64_t bytes;
} dtypes[] = {
    {"F32", GDN_DTYPE_F32, 4}, {"BF16", GDN_DTYPE_BF16, 2}, {"F16", GDN_DTYPE_F16, 2},
    {"I32", GDN_DTYPE_I32, 4}, {"I64", GDN_DTYPE_I64, 8},   {"U8", GDN_DTYPE_U8, 1},
};
#define NUM_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

static bool fail(char *error, size_t error_size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool fail(char *error, size_t error_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, error_size, format, args);
    va_end(args);
    /* A hostile name must not break the promise of one printable line. */
    for (char *c = error; error_size > 0 && *c != 0; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    return false;
}

/* A JSON number that is a whole number a double holds exactly. */
static bool whole_number(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 9007199254740992.0) {
        return false;
    }
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static bool read_tensor(const cJSON *item, const unsigned char *data, uint64_t data_size, safetensors_tensor *tensor,
                        char *error, size_t error_size)
{
    const char *const name = item->string;
    *tensor = (safetensors_tensor){.name = name};
    const cJSON *fields[3] = {NULL, NULL, NULL};
    static const char *const field_names[3] = {"dtype", "shape", "data_offsets"};
    if (!cJSON_IsObject(item)) {
        return fail(error, error_size, "tensor '%.64s': not a JSON object", name);
    }
    for (const cJSON *field = item->child; field != NULL; field = field->next) {
        int which = 0;
        while (which < 3 && strcmp(field->string, field_names[which]) != 0) {
            which++;
        }
        if (which == 3 || fields[which] != NULL) {
            return fail(error, error_size,
                        "tensor '%.64s': field '%.32s' is unknown or repeated; allowed once each: dtype, shape, "
                        "data_offsets",
                        name, field->string);
        }
        fields[which] = field;
    }
    for (int i = 0; i < 3; i++) {
        if (fields[i] == NULL) {
            return fail(error, error_size, "tensor '%.64s': lacks field %s", name, field_names[i]);
        }
    }

    uint64_t element = 0;
    const char *const dtype = cJSON_IsString(fields[0]) ? fields[0]->valuestring : "(not a string)";
    for (size_t i = 0; i < NUM_DTYPES; i++) {
        if (strcmp(dtype, dtypes[i].name) == 0) {
            tensor->dtype = dtypes[i].dtype;
            element = dtypes[i].bytes;
        }
    }
    if (element == 0) {
        return fail(error, error_size, "tensor '%.64s': dtype '%.16s' is not one of F32, BF16, F16, I32, I64, U8", name,
                    dtype);
    }

    if (!cJSON_IsArray(fields[1])) {
        return fail(error, error_size, "tensor '%.64s': shape is not an array", name);
    }
    uint64_t bytes = element;
    bool empty = false;
    for (const cJSON *size = fields[1]->child; size != NULL; size = size->next) {
        uint64_t value = 0;
        if (tensor->rank == SAFETENSORS_MAX_RANK) {
            return fail(error, error_size, "tensor '%.64s': more than %d dimensions", name, SAFETENSORS_MAX_RANK);
        }
        if (!whole_number(size, &value)) {
            return fail(error, error_size, "tensor '%.64s': shape[%d] is not a whole number in 0..2^53", name,
                        (int)tensor->rank);
        }
        tensor->size[tensor->rank++] = (int64_t)value;
        if (value == 0) {
            empty = true;
        } else if (bytes > UINT64_MAX / value) {
            return fail(error, error_size, "tensor '%.64s': its shape has more bytes than 2^64", name);
        } else {
            bytes *= value;
        }
    }
    bytes = empty ? 0 : bytes;

    uint64_t begin = 0, end = 0;
    if (!cJSON_IsArray(fields[2]) || cJSON_GetArraySize(fields[2]) != 2 || !whole_number(fields[2]->child, &begin) ||
        !whole_number(fields[2]->child->next, &end)) {
        return fail(error, error_size, "tensor '%.64s': data_offsets is not [begin, end]", name);
    }
    if (begin > end || end > data_size) {
        return fail(error, error_size,
                    "tensor '%.64s': data_offsets [%llu, %llu] are not ascending within the file's %llu bytes of data",
                    name, (unsigned long long)begin, (unsigned long long)end, (unsigned long long)data_size);
    }
    if (end - begin != bytes) {
        return fail(error, error_size, "tensor '%.64s': data_offsets span %llu bytes, its shape and dtype need %llu",
                    name, (unsigned long long)(end - begin), (unsigned long long)bytes);
    }
    tensor->data = data + begin;
    tensor->bytes = (size_t)bytes;
    return true;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(safetensors_tensor *const *)left)->name, (*(safetensors_tensor *const *)right)->name);
}

/* By position; an empty tensor before one that starts at the same place. */
static int compare_positions(const void *left, const void *right)
{
    const safetensors_tensor *const a = left, *const b = right;
    if (a->data != b->data) {
        return (uintptr_t)a->data < (uintptr_t)b->data ? -1 : 1;
    }
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool check_metadata(const cJSON *metadata, char *error, size_t error_size)
{
    if (!cJSON_IsObject(metadata)) {
        return fail(error, error_size, "__metadata__: not a JSON object");
    }
    for (const cJSON *entry = metadata->child; entry != NULL; entry = entry->next) {
        if (!cJSON_IsString(entry)) {
            return fail(error, error_size, "__metadata__: the value of '%.64s' is not a string", entry->string);
        }
    }
    return true;
}

static bool read_tensors(safetensors_file *file, const unsigned char *data, uint64_t data_size, char *error,
                         size_t error_size)
{
    size_t capacity = 0;
    for (const cJSON *item = file->header->child; item != NULL; item = item->next) {
        capacity++;
    }
    file->tensors = calloc(capacity + 1, sizeof(*file->tensors));
    file->by_name = calloc(capacity + 1, sizeof(safetensors_tensor *));
    if (file->tensors == NULL || file->by_name == NULL) {
        return fail(error, error_size, "out of memory for %zu tensors", capacity);
    }
    for (const cJSON *item = file->header->child; item != NULL; item = item->next) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (file->metadata != NULL) {
                return fail(error, error_size, "__metadata__ appears twice");
            }
            if (!check_metadata(item, error, error_size)) {
                return false;
            }
            file->metadata = item;
        } else if (!read_tensor(item, data, data_size, &file->tensors[file->count], error, error_size)) {
            return false;
        } else {
            file->count++;
        }
    }

    qsort(file->tensors, file->count, sizeof(*file->tensors), compare_positions);
    const unsigned char *expected = data;
    for (size_t i = 0; i < file->count; i++) {
        const safetensors_tensor *const tensor = &file->tensors[i];
        if ((const unsigned char *)tensor->data != expected) {
            const bool overlap = (uintptr_t)tensor->data < (uintptr_t)expected;
            return fail(error, error_size, "tensor '%.64s': its data %s; tensors must follow one another", tensor->name,
                        overlap ? "overlaps that of another tensor" : "leaves a hole before it");
        }
        expected += tensor->bytes;
        file->by_name[i] = &file->tensors[i];
    }
    if ((uint64_t)(expected - data) != data_size) {
        return fail(error, error_size, "%llu bytes after the last tensor's data; the tensors must fill the file",
                    (unsigned long long)(data_size - (uint64_t)(expected - data)));
    }
    qsort(file->by_name, file->count, sizeof(safetensors_tensor *), compare_names);
    for (size_t i = 1; i < file->count; i++) {
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0) {
            return fail(error, error_size, "tensor '%.64s' appears twice", file->by_name[i]->name);
        }
    }
    return true;
}

static bool parse_into(safetensors_file *file, const void *bytes, size_t size, char *error, size_t error_size)
{
    const unsigned char *const start = bytes;
    if (size < 8) {
        return fail(error, error_size, "%zu bytes, shorter than the 8 bytes of a safetensors header length", size);
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | start[i];
    }
    if (length > SAFETENSORS_MAX_HEADER) {
        return fail(error, error_size, "header length %llu, at most %llu is taken; is this a safetensors file?",
                    (unsigned long long)length, (unsigned long long)SAFETENSORS_MAX_HEADER);
    }
    if (length > size - 8) {
        return fail(error, error_size, "header length %llu, but only %zu bytes follow it", (unsigned long long)length,
                    size - 8);
    }
    const char *const text = (const char *)start + 8;
    const char *end = NULL;
    if (length > 0 && text[0] == '{') {
        file->header = cJSON_ParseWithLengthOpts(text, (size_t)length, &end, 0);
    }
    if (!cJSON_IsObject(file->header)) {
        return fail(error, error_size, "the header is not a JSON object");
    }
    for (const char *c = end; c < text + length; c++) {
        if (*c != ' ') {
            return fail(error, error_size, "the header has more than spaces after its JSON object");
        }
    }
    return read_tensors(file, start + 8 + length, (uint64_t)size - 8 - length, error, error_size);
}

bool safetensors_parse(safetensors_file **file, const void *bytes, size_t size, char *error, size_t error_size)
{
    *file = calloc(1, sizeof(**file));
    if (*file == NULL) {
        return fail(error, error_size, "out of memory");
    }
    if (!parse_into(*file, bytes, size, error, error_size)) {
        safetensors_close(file);
        return false;
    }
    return true;
}

bool safetensors_open(safetensors_file **file, const char *path, char *error, size_t error_size)
{
    *file = NULL;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return fail(error, error_size, "%s: %s", path, strerror(errno));
    }
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size > SIZE_MAX) {
        close(descriptor);
        return fail(error, error_size, "%s: not a regular file", path);
    }
    const size_t size = (size_t)status.st_size;
    void *mapping = NULL;
    if (size > 0) {
        mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    close(descriptor);
    if (mapping == MAP_FAILED) {
        return fail(error, error_size, "%s: cannot be mapped: %s", path, strerror(errno));
    }
    char reason[384];
    if (!safetensors_parse(file, mapping != NULL ? mapping : "", size, reason, sizeof(reason)) || *file == NULL) {
        if (mapping != NULL) {
            munmap(mapping, size);
        }
        return fail(error, error_size, "%s: %s", path, reason);
    }
    (*file)->mapping = mapping;
    (*file)->mapping_size = size;
    return true;
}

void safetensors_close(safetensors_file **file)
{
    if (file == NULL || *file == NULL) {
        return;
    }
    cJSON_Delete((*file)->header);
    free((*file)->tensors);
    free((*file)->by_name);
    if ((*file)->mapping != NULL) {
        munmap((*file)->mapping, (*file)->mapping_size);
    }
    free(*file);
    *file = NULL;
}

size_t safetensors_count(const safetensors_file *file)
{
    return file->count;
}

const safetensors_tensor *safetensors_at(const safetensors_file *file, size_t index)
{
    return index < file->count ? &file->tensors[index] : NULL;
}

const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name)
{
    safetensors_tensor key = {.name = name};
    safetensors_tensor *const key_pointer = &key;
    safetensors_tensor **const found =
        bsearch(&key_pointer, file->by_name, file->count, sizeof(safetensors_tensor *), compare_names);
    return found != NULL ? *found : NULL;
}

const char *safetensors_metadata(const safetensors_file *file, const char *key)
{
    for (const cJSON *entry = file->metadata != NULL ? file->metadata->child : NULL; entry != NULL;
         entry = entry->next) {
        if (strcmp(entry->string, key) == 0) {
            return entry->valuestring;
        }
    }
    return NULL;
}
