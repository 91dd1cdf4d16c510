/* The safetensors reader takes what is well-formed and refuses the rest with one line; the writer writes what it takes. */
#include "check.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct file_text { /* a header and `data_bytes` bytes of data behind it */
    const char *header;
    size_t data_bytes;
    const char *message; /* part of the line expected; NULL: the file is fine */
} file_text;

#define Q_AT(offsets) "{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}}"
#define Q_SHAPE(shape) "{\"q\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[0,8]}}"
#define EMPTY(name) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}"

static const file_text files[] = {
    {"{}", 0, NULL},
    {Q_AT("[0,8]"), 8, NULL},
    {Q_AT("[0,8]") "     ", 8, NULL},
    {"{\"__metadata__\":{\"a\":\"b\"}," EMPTY("x") "," EMPTY("y") "}", 0, NULL},
    {"{\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, NULL},
    {"", 0, "not a JSON object"},
    {"[1]", 0, "not a JSON object"},
    {"{", 0, "not a JSON object"},
    {" {}", 0, "not a JSON object"},
    {"{} x", 0, "more than spaces"},
    {Q_AT("[0,8]"), 4, "not ascending within"},
    {Q_AT("[0,8]"), 9, "after the last tensor"},
    {Q_AT("[0,80]"), 8, "not ascending within"},
    {Q_AT("[8,0]"), 8, "not ascending within"},
    {Q_AT("[-8,0]"), 8, "is not [begin, end]"},
    {Q_AT("[0]"), 8, "is not [begin, end]"},
    {Q_AT("[0,8,9]"), 8, "is not [begin, end]"},
    {Q_AT("[0,8.5]"), 9, "is not [begin, end]"},
    {Q_AT("{\"a\":0,\"b\":8}"), 8, "is not [begin, end]"},
    {Q_AT("[0,1e300]"), 8, "is not [begin, end]"},
    {Q_SHAPE("[3]"), 8, "its shape and dtype need 12"},
    {Q_SHAPE("[1099511627776,1099511627776]"), 8, "more bytes than 2^64"},
    {Q_SHAPE("[1.5]"), 8, "not a whole number"},
    {Q_SHAPE("[-2]"), 8, "not a whole number"},
    {Q_SHAPE("[2,1,1,1,1,1,1,1,1]"), 8, "more than 8 dimensions"},
    {Q_SHAPE("2"), 8, "shape is not an array"},
    {"{\"q\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "dtype 'F64' is not one of"},
    {"{\"q\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "not one of"},
    {"{\"q\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "lacks field data_offsets"},
    {"{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", 8, "unknown or repeated"},
    {"{\"q\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown or repeated"},
    {"{\"q\":3}", 0, "not a JSON object"},
    {"{" EMPTY("q") "," EMPTY("q") "}", 0, "appears twice"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "is not a string"},
    {"{\"__metadata__\":[]}", 0, "not a JSON object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "appears twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
     9, "hole"},
    {"{\"q\\n\\u001b[31m\":3}", 0, "tensor 'q??[31m'"},
};

static size_t build(const file_text *file, unsigned char *bytes, size_t size)
{
    const size_t length = strlen(file->header);
    assert_true(8 + length + file->data_bytes <= size);
    memset(bytes, 0, size);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    memcpy(bytes + 8, file->header, length);
    return 8 + length + file->data_bytes;
}

static void headers_are_taken_or_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        unsigned char bytes[1024];
        char error[512] = "";
        safetensors_file *file = NULL;
        const size_t size = build(&files[i], bytes, sizeof(bytes));
        const bool taken = safetensors_parse(&file, bytes, size, error, sizeof(error));
        if (taken != (files[i].message == NULL) || taken != (file != NULL) ||
            (!taken && strstr(error, files[i].message) == NULL) || strchr(error, '\n') != NULL) {
            fail_msg("header %s: %s '%s'", files[i].header, taken ? "taken" : "refused with", error);
        }
        safetensors_close(&file);
        assert_null(file);
    }
}

/* Every prefix of a good file is a bad one. */
static void a_cut_file_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[1024];
    char error[512];
    const size_t size = build(&files[1], bytes, sizeof(bytes));
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *const exact = malloc(cut + 1); /* a read past the end is a sanitizer's finding */
        safetensors_file *file = NULL;
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_false(safetensors_parse(&file, exact, cut, error, sizeof(error)));
        free(exact);
    }
}

static void a_lying_header_length_is_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {100, UINT64_MAX, UINT64_MAX - 7, SAFETENSORS_MAX_HEADER + 1, (uint64_t)1 << 63};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        unsigned char bytes[16] = {0};
        char error[512];
        safetensors_file *file = NULL;
        for (int b = 0; b < 8; b++) {
            bytes[b] = (unsigned char)(lengths[i] >> (8 * b));
        }
        assert_false(safetensors_parse(&file, bytes, sizeof(bytes), error, sizeof(error)));
        assert_non_null(strstr(error, "header length"));
    }
}

/* A megabyte of brackets must not take the stack with it. */
static void deep_nesting_is_refused(void **state)
{
    (void)state;
    const size_t length = 1 << 20;
    unsigned char *const bytes = calloc(1, length + 8);
    char error[512];
    safetensors_file *file = NULL;
    assert_non_null(bytes);
    bytes[2] = 0x10;
    memset(bytes + 8, '[', length);
    memcpy(bytes + 8, "{\"q\":", 5);
    assert_false(safetensors_parse(&file, bytes, length + 8, error, sizeof(error)));
    free(bytes);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    static const float f32[6] = {1, -2, 3.5f, 0, 1e-30f, 1e30f};
    static const uint16_t bf16[3] = {0x3f80, 0xc000, 0x7f80};
    static const int64_t i64[2] = {-1, INT64_MAX};
    static const uint8_t u8[1] = {255};
    const safetensors_tensor tensors[] = {
        {"bytes", GDN_DTYPE_U8, 1, {1}, u8, 1},
        {"o", GDN_DTYPE_F32, 2, {2, 3}, f32, sizeof(f32)},
        {"narrow", GDN_DTYPE_BF16, 3, {3, 1, 1}, bf16, sizeof(bf16)},
        {"slots", GDN_DTYPE_I64, 1, {2}, i64, sizeof(i64)},
        {"empty", GDN_DTYPE_I32, 2, {0, 7}, u8, 0},
    };
    const safetensors_entry metadata[] = {{"gdn.source", "a \"quoted\" name\n"}, {"gdn.scale", "0.5"}};
    char error[512];
    safetensors_file *file = NULL;
    if (!safetensors_write("written.safetensors", tensors, COUNT_OF(tensors), metadata, 2, error, sizeof(error)) ||
        !safetensors_open(&file, "written.safetensors", error, sizeof(error))) {
        fail_msg("%s", error);
    }
    assert_int_equal(safetensors_count(file), COUNT_OF(tensors));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        const safetensors_tensor *const got = safetensors_find(file, tensors[i].name);
        assert_non_null(got);
        assert_int_equal(got->dtype, tensors[i].dtype);
        assert_int_equal(got->rank, tensors[i].rank);
        assert_memory_equal(got->size, tensors[i].size, (size_t)got->rank * sizeof(int64_t));
        assert_int_equal(got->bytes, tensors[i].bytes);
        assert_int_equal((uintptr_t)got->data % gdn_dtype_size(got->dtype), 0);
        if (got->bytes > 0) {
            assert_memory_equal(got->data, tensors[i].data, got->bytes);
        }
    }
    assert_string_equal(safetensors_metadata(file, "gdn.source"), "a \"quoted\" name\n");
    assert_string_equal(safetensors_metadata(file, "gdn.scale"), "0.5");
    assert_null(safetensors_metadata(file, "gdn.norm"));
    assert_null(safetensors_find(file, "q"));
    assert_null(safetensors_at(file, COUNT_OF(tensors)));
    safetensors_close(&file);
    remove("written.safetensors");
}

static void a_failing_write_leaves_nothing(void **state)
{
    (void)state;
    char error[512] = "";
    const safetensors_tensor wrong = {"o", GDN_DTYPE_F32, 1, {2}, "1234", 4};
    assert_false(safetensors_write("wrong.safetensors", &wrong, 1, NULL, 0, error, sizeof(error)));
    assert_non_null(strstr(error, "do not agree"));
    assert_false(safetensors_write("no/such/folder/o.safetensors", NULL, 0, NULL, 0, error, sizeof(error)));
    assert_non_null(strstr(error, "no/such/folder"));
    assert_null(fopen("wrong.safetensors", "rb"));
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    char error[512];
    safetensors_file *file = NULL;
    assert_false(safetensors_open(&file, "no-such.safetensors", error, sizeof(error)));
    assert_non_null(strstr(error, "no-such.safetensors"));
    assert_false(safetensors_open(&file, ".", error, sizeof(error)));
    assert_non_null(strstr(error, "not a regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_taken_or_refused_by_name),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_lying_header_length_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_failing_write_leaves_nothing),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
