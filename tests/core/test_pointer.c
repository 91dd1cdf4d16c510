/* Whose memory a pointer is: a device's own check, and what a host backend is not given. */
#include "check.h"
#include "pointer.h"

#include <string.h>

static char device_memory[16];
static char host_memory[16];
static int times_asked;

static bool owns(const void *ptr)
{
    times_asked++;
    return (const char *)ptr >= device_memory && (const char *)ptr < device_memory + sizeof(device_memory);
}

static gdn_status check_own(const gdn_device *device, const void *ptr, const char *name)
{
    (void)device;
    return owns(ptr) ? GDN_OK : gdn_fail(GDN_ERROR_INVALID_ARGUMENT, "%s: not mine", name);
}

static const gdn_backend host = {.name = "host", .host_memory = true};
static const gdn_backend accelerator = {.name = "accelerator", .owns_pointer = owns, .check_pointer = check_own};
static const gdn_backend silent = {.name = "silent"};
static const gdn_context on_host = {.backend = &host}, on_accelerator = {.backend = &accelerator},
                         on_silent = {.backend = &silent};

/* In this order: what is known stays known. */
static void an_unopened_device_is_not_asked(void **unused)
{
    (void)unused;
    assert_int_equal(gdn_pointer_check(&on_host, device_memory, "q"), GDN_OK);
    gdn_pointer_know(&host); /* host memory is everyone's */
    gdn_pointer_know(&silent); /* knows no pointers */
    assert_int_equal(gdn_pointer_check(&on_host, device_memory, "q"), GDN_OK);
    assert_int_equal(times_asked, 0);
}

static void memory_of_an_opened_device_is_refused_by_name(void **unused)
{
    (void)unused;
    for (int i = 0; i < 10; i++) {
        gdn_pointer_know(&accelerator); /* once is enough, often is harmless */
    }
    assert_int_equal(gdn_pointer_check(&on_host, device_memory + 3, "final_state"), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "final_state"));
    assert_non_null(strstr(gdn_last_error(), "accelerator"));
    times_asked = 0;
    assert_int_equal(gdn_pointer_check(&on_host, host_memory, "q"), GDN_OK);
    assert_int_equal(times_asked, 1);
}

static void a_device_checks_for_itself(void **unused)
{
    (void)unused;
    assert_int_equal(gdn_pointer_check(&on_accelerator, device_memory, "q"), GDN_OK);
    assert_int_equal(gdn_pointer_check(&on_accelerator, host_memory, "cu_seqlens"), GDN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(gdn_last_error(), "cu_seqlens: not mine");
    assert_int_equal(gdn_pointer_check(&on_silent, host_memory, "q"), GDN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unopened_device_is_not_asked),
        cmocka_unit_test(memory_of_an_opened_device_is_refused_by_name),
        cmocka_unit_test(a_device_checks_for_itself),
    };
    return cmocka_run_group_tests_name("pointer", tests, NULL, NULL);
}
