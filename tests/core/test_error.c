/* Statuses and the last message: per thread, one line, cut rather than overrun. */
#include "check.h"
#include "error.h"

#include <pthread.h>
#include <string.h>

static void every_status_has_its_own_spelling(void **unused)
{
    (void)unused;
    static const char *const names[] = {"GDN_OK",
                                        "GDN_ERROR_INVALID_ARGUMENT",
                                        "GDN_ERROR_UNSUPPORTED",
                                        "GDN_ERROR_SLOT_CONFLICT",
                                        "GDN_ERROR_WORKSPACE_TOO_SMALL",
                                        "GDN_ERROR_OUT_OF_MEMORY",
                                        "GDN_ERROR_BACKEND_UNAVAILABLE",
                                        "GDN_ERROR_DEVICE",
                                        "GDN_ERROR_VERSION_MISMATCH",
                                        "GDN_ERROR_INTERNAL"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_string_equal(gdn_status_string((gdn_status)i), names[i]);
    }
    assert_string_equal(gdn_status_string((gdn_status)10), "unknown gdn_status");
    assert_string_equal(gdn_status_string((gdn_status)-1), "unknown gdn_status");
}

static void a_message_may_quote_the_one_before(void **unused)
{
    (void)unused;
    assert_int_equal(gdn_fail(GDN_ERROR_DEVICE, "x: %d", 3), GDN_ERROR_DEVICE);
    assert_string_equal(gdn_last_error(), "x: 3");
    gdn_fail(GDN_ERROR_INTERNAL, "again: %s", gdn_last_error());
    assert_string_equal(gdn_last_error(), "again: x: 3");
}

static void a_long_message_is_cut(void **unused)
{
    (void)unused;
    char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    gdn_fail(GDN_ERROR_INTERNAL, "%s", text);
    assert_true(strlen(gdn_last_error()) > 200 && strlen(gdn_last_error()) < 2000);
}

static void *other_thread(void *seen)
{
    *(int *)seen = gdn_last_error()[0] == '\0';
    gdn_fail(GDN_ERROR_INTERNAL, "another thread's");
    return NULL;
}

static void each_thread_has_its_own_message(void **unused)
{
    (void)unused;
    gdn_fail(GDN_ERROR_INTERNAL, "mine");
    pthread_t thread;
    int empty_at_first = 0;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &empty_at_first), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(empty_at_first);
    assert_string_equal(gdn_last_error(), "mine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_spelling),
        cmocka_unit_test(a_message_may_quote_the_one_before),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(each_thread_has_its_own_message),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
