/* gdn_memory_*: backend memory for callers that include no backend's header. */
#include "suite.h"

#include <string.h>

static void bytes_come_back_as_they_went(void **unused)
{
    (void)unused;
    enum { BYTES = 100003 };
    static unsigned char out[BYTES], in[BYTES];
    for (int i = 0; i < BYTES; i++) {
        out[i] = (unsigned char)(i * 7919 >> 3);
    }
    void *first = NULL, *second = NULL;
    REQUIRE_OK(gdn_memory_alloc(test_context(), &first, BYTES));
    REQUIRE_OK(gdn_memory_alloc(test_context(), &second, BYTES));
    assert_true(first != NULL && second != NULL && first != second);
    REQUIRE_OK(gdn_memory_copy(test_context(), first, out, BYTES, GDN_COPY_TO_BACKEND, NULL));
    REQUIRE_OK(gdn_memory_copy(test_context(), second, first, BYTES, GDN_COPY_WITHIN_BACKEND, NULL));
    REQUIRE_OK(gdn_memory_fill(test_context(), first, 0x5A, BYTES / 2, NULL));
    REQUIRE_OK(gdn_memory_copy(test_context(), in, second, BYTES, GDN_COPY_FROM_BACKEND, NULL));
    REQUIRE_OK(gdn_synchronize(test_context(), NULL));
    assert_memory_equal(in, out, BYTES);
    REQUIRE_OK(gdn_memory_copy(test_context(), in, first, BYTES, GDN_COPY_FROM_BACKEND, NULL));
    REQUIRE_OK(gdn_synchronize(test_context(), NULL));
    for (int i = 0; i < BYTES; i++) {
        assert_int_equal(in[i], i < BYTES / 2 ? 0x5A : out[i]);
    }
    REQUIRE_OK(gdn_memory_free(test_context(), &first));
    REQUIRE_OK(gdn_memory_free(test_context(), &second));
    assert_true(first == NULL && second == NULL);
    REQUIRE_OK(gdn_memory_free(test_context(), &first));
}

static void nothing_may_be_asked_for(void **unused)
{
    (void)unused;
    void *memory = NULL;
    REQUIRE_OK(gdn_memory_alloc(test_context(), &memory, 0));
    assert_non_null(memory);
    REQUIRE_OK(gdn_memory_copy(test_context(), NULL, NULL, 0, GDN_COPY_TO_BACKEND, NULL));
    REQUIRE_OK(gdn_memory_fill(test_context(), NULL, 0, 0, NULL));
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
}

static void wrong_bytes_to_fill_with_are_refused(void **unused)
{
    (void)unused;
    void *memory = NULL;
    REQUIRE_OK(gdn_memory_alloc(test_context(), &memory, 16));
    assert_int_equal(gdn_memory_fill(test_context(), memory, 256, 16, NULL), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "byte: 256"));
    assert_int_equal(gdn_memory_fill(test_context(), memory, -1, 16, NULL), GDN_ERROR_INVALID_ARGUMENT);
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
}

static void sizes_past_the_address_space_are_refused(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 1};
    char host[16] = {0};
    void *memory = NULL;
    REQUIRE_OK(gdn_memory_alloc(test_context(), &memory, sizeof(host)));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(gdn_memory_copy(test_context(), memory, host, sizes[i], GDN_COPY_TO_BACKEND, NULL),
                         GDN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(gdn_last_error(), "bytes: "));
        assert_int_equal(gdn_memory_fill(test_context(), memory, 0, sizes[i], NULL), GDN_ERROR_INVALID_ARGUMENT);
    }
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back_as_they_went),
        cmocka_unit_test(nothing_may_be_asked_for),
        cmocka_unit_test(wrong_bytes_to_fill_with_are_refused),
        cmocka_unit_test(sizes_past_the_address_space_are_refused),
    };
    return RUN_SUITE("memory", tests);
}
