/* Drivers that cannot be used, and what is said of them. The loader finds fake_driver.c's libraries before any real one: the
 * program needs no device, and GDN_TEST_DRIVER says which of them it has. */
#define _POSIX_C_SOURCE 200112L /* setenv */
#include "harness/suite.h"

#include <stdlib.h>
#include <string.h>

static void require_words(const char *text, const char *const words[2])
{
    for (int i = 0; i < 2; i++) {
        if (strstr(text, words[i]) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", text, words[i]);
        }
    }
}

/* The backend is there, not usable, and says why; a context of it is refused with the same reason; `auto` is the CPU. */
static void require_unusable(const char *driver, const char *first_word, const char *second_word)
{
    const char *const words[2] = {first_word, second_word};
    REQUIRE(setenv("GDN_FAKE_DRIVER", driver, 1) == 0);
    bool found = false;
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        REQUIRE_OK(gdn_backend_info(i, &report));
        if (strcmp(report.name, "cuda") == 0) {
            found = true;
            REQUIRE(report.usable == 0);
            require_words(report.reason, words);
        }
    }
    REQUIRE(found);

    gdn_context_options options;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    REQUIRE(gdn_context_create(&context, &options) == GDN_ERROR_BACKEND_UNAVAILABLE);
    require_words(gdn_last_error(), words);
    options.backend = "auto";
    REQUIRE_OK(gdn_context_create(&context, &options));
    REQUIRE(strcmp(gdn_context_backend(context), "cpu") == 0);
    gdn_context_destroy(&context);
}

static void no_driver(void **state)
{
    (void)state;
    require_unusable("", "no CUDA driver", "libcuda.so.1");
}

static void a_driver_without_a_function(void **state)
{
    (void)state;
    require_unusable("", "cuPointerGetAttribute", "too old");
}

static void a_driver_for_an_older_cuda(void **state)
{
    (void)state;
    require_unusable("old", "CUDA 11.4", "or later");
}

static void a_driver_that_does_not_start(void **state)
{
    (void)state;
    require_unusable("broken", "cuInit", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

static void a_driver_without_devices(void **state)
{
    (void)state;
    require_unusable("empty", "no device", "driver");
}

static void a_device_before_8_0(void **state)
{
    (void)state;
    require_unusable("turing", "compute capability 7.5", "8.0");
}

/* The device is usable by all that can be known beforehand; then it has no memory left. */
static void a_device_that_refuses_its_context(void **state)
{
    (void)state;
    REQUIRE(setenv("GDN_FAKE_DRIVER", "refuses", 1) == 0);
    gdn_context_options options;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    const gdn_status status = gdn_context_create(&context, &options);
    if (status == GDN_ERROR_BACKEND_UNAVAILABLE) {
        skip(); /* the build has no code for the made-up device of capability 9.0 */
    }
    REQUIRE(status == GDN_ERROR_OUT_OF_MEMORY);
    require_words(gdn_last_error(), (const char *const[2]){"cuDevicePrimaryCtxRetain", "CUDA_ERROR_OUT_OF_MEMORY"});
    REQUIRE(context == NULL);
}

int main(void)
{
    const char *const driver = getenv("GDN_TEST_DRIVER");
    if (driver != NULL && strcmp(driver, "none") == 0) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(no_driver)};
        return cmocka_run_group_tests_name("no cuda driver", tests, NULL, NULL);
    }
    if (driver != NULL && strcmp(driver, "ancient") == 0) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(a_driver_without_a_function)};
        return cmocka_run_group_tests_name("ancient cuda driver", tests, NULL, NULL);
    }
    /* First the one that does not start: one that has is kept. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_does_not_start),      cmocka_unit_test(a_driver_for_an_older_cuda),
        cmocka_unit_test(a_driver_without_devices),          cmocka_unit_test(a_device_before_8_0),
        cmocka_unit_test(a_device_that_refuses_its_context),
    };
    return cmocka_run_group_tests_name("cuda driver", tests, NULL, NULL);
}
