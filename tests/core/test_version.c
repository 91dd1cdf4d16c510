/* Versions, features, and the _init functions of the other structs. */
#include "check.h"

#include <string.h>

static void the_library_is_of_its_headers_version(void **unused)
{
    (void)unused;
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", GDN_VERSION_MAJOR, GDN_VERSION_MINOR, GDN_VERSION_PATCH);
    assert_int_equal(gdn_version(), GDN_VERSION_NUMBER);
    assert_string_equal(gdn_version_string(), text);
    assert_int_equal(GDN_VERSION_NUMBER, GDN_VERSION_MAJOR * 10000 + GDN_VERSION_MINOR * 100 + GDN_VERSION_PATCH);
}

static void features_are_words_on_one_line(void **unused)
{
    (void)unused;
    const char *const features = gdn_features();
    assert_true(strlen(features) > 0);
    assert_null(strchr(features, '\n'));
    assert_null(strstr(features, "  "));
    assert_non_null(strstr(features, "cpu"));
    assert_ptr_equal(features, gdn_features());
}

typedef gdn_status (*init_sized)(void *, size_t);

static gdn_status init_options(void *memory, size_t size)
{
    return gdn_context_options_init_sized(memory, size);
}

static gdn_status init_prefill(void *memory, size_t size)
{
    return gdn_prefill_args_init_sized(memory, size);
}

static gdn_status init_decode(void *memory, size_t size)
{
    return gdn_decode_args_init_sized(memory, size);
}

/* A struct of a later version is initialised as far as its caller says it goes; a shorter one is refused. */
static void structs_of_another_size(void **unused)
{
    (void)unused;
    static const struct {
        init_sized init;
        size_t size;
    } structs[] = {{init_options, sizeof(gdn_context_options)},
                   {init_prefill, sizeof(gdn_prefill_args)},
                   {init_decode, sizeof(gdn_decode_args)}};
    for (size_t i = 0; i < COUNT_OF(structs); i++) {
        unsigned char memory[2048];
        memset(memory, 0xA5, sizeof(memory));
        assert_int_equal(structs[i].init(memory, structs[i].size - 1), GDN_ERROR_VERSION_MISMATCH);
        assert_int_equal(structs[i].init(memory, 0), GDN_ERROR_VERSION_MISMATCH);
        assert_int_equal(structs[i].init(memory, SIZE_MAX), GDN_ERROR_VERSION_MISMATCH);
        for (size_t b = 0; b < sizeof(memory); b++) {
            assert_int_equal(memory[b], 0xA5);
        }
        REQUIRE_OK(structs[i].init(memory, structs[i].size + 64));
        size_t stored;
        memcpy(&stored, memory, sizeof(stored));
        assert_int_equal(stored, structs[i].size + 64);
        for (size_t b = structs[i].size; b < structs[i].size + 64; b++) {
            assert_int_equal(memory[b], 0);
        }
        assert_int_equal(memory[structs[i].size + 64], 0xA5);
    }
}

static void options_default_to_the_best_backend(void **unused)
{
    (void)unused;
    gdn_context_options options;
    memset(&options, 0xA5, sizeof(options));
    REQUIRE_OK(gdn_context_options_init(&options));
    assert_string_equal(options.backend, "auto");
    assert_int_equal(options.device, 0);
    assert_int_equal(options.num_threads, 0);
    assert_int_equal(options.blas, GDN_BLAS_AUTO);
    assert_int_equal(options.ignore_environment, 0);
    assert_null(options.implementations);
    assert_null(options.cpu_isa);
    assert_null(options.backend_path);
    assert_null(options.allocator.alloc);
    assert_null(options.allocator.free);
    assert_null(options.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_of_its_headers_version),
        cmocka_unit_test(features_are_words_on_one_line),
        cmocka_unit_test(structs_of_another_size),
        cmocka_unit_test(options_default_to_the_best_backend),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
