/* Reading and writing safetensors files (https://github.com/huggingface/safetensors, "Format"):
 *
 *     8 bytes        N, little-endian
 *     N bytes        JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
 *     the rest       the tensors, row-major, little-endian, offsets counted from here
 *
 * A file is taken as hostile: every bound is checked in 64 bits, the tensors must tile the data exactly
 * (no hole, no overlap), names must be unique. A wrong file gives one line that says what is wrong with it.
 * Data may lie at any address: read elements with memcpy. This file and its source depend on cJSON alone. */
#ifndef GDN_TOOLS_SAFETENSORS_H
#define GDN_TOOLS_SAFETENSORS_H

#include <gdn/gdn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_MAX_RANK 8

/* Longest header taken; a million tensors fit in less. */
#define SAFETENSORS_MAX_HEADER ((uint64_t)16 << 20)

typedef struct safetensors_tensor {
    const char *name;
    gdn_dtype dtype; /* F32, BF16, F16, I32, I64 or U8 */
    int32_t rank; /* 0: a scalar */
    int64_t size[SAFETENSORS_MAX_RANK];
    const void *data; /* of any alignment */
    size_t bytes;
} safetensors_tensor;

typedef struct safetensors_entry { /* one pair of __metadata__ */
    const char *key;
    const char *value;
} safetensors_entry;

typedef struct safetensors_file safetensors_file;

/* Maps and checks a file. False: *file is NULL and `error` holds one line. */
bool safetensors_open(safetensors_file **file, const char *path, char *error, size_t error_size);

/* The same for bytes in memory, which must outlive the file. */
bool safetensors_parse(safetensors_file **file, const void *bytes, size_t size, char *error, size_t error_size);

/* Accepts NULL and a NULL *file; sets *file to NULL. */
void safetensors_close(safetensors_file **file);

/* Tensors in the order of their data; NULL where there is no such index, name or key. */
size_t safetensors_count(const safetensors_file *file);
const safetensors_tensor *safetensors_at(const safetensors_file *file, size_t index);
const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name);
const char *safetensors_metadata(const safetensors_file *file, const char *key);

/* Writes a file: to a temporary name beside `path`, renamed when complete, so that a failure leaves no half of one.
 * Tensors of wide elements come first, so that each is aligned to its element. False: `error` holds one line. */
bool safetensors_write(const char *path, const safetensors_tensor *tensors, size_t count,
                       const safetensors_entry *metadata, size_t num_metadata, char *error, size_t error_size);

#endif
