/* The backend's constant, its device and its memory. */
#include "cpu_fixture.h"

static void the_constant_is_complete(void **unused)
{
    (void)unused;
    const gdn_backend *const backend = &gdn_backend_cpu;
    assert_int_equal(backend->abi, GDN_BACKEND_ABI);
    assert_int_equal(backend->version, GDN_VERSION_NUMBER);
    assert_string_equal(backend->name, "cpu");
    assert_true(backend->host_memory);
    int prefills = 0, decodes = 0;
    for (const gdn_implementation *const *entry = backend->implementations; *entry != NULL; entry++) {
        const gdn_implementation *const implementation = *entry;
        assert_non_null(implementation->name);
        assert_non_null(implementation->summary);
        assert_non_null(implementation->supports);
        assert_non_null(implementation->book);
        const bool prefill = implementation->operation == GDN_OPERATION_PREFILL;
        assert_int_equal(implementation->prefill != NULL, prefill);
        assert_int_equal(implementation->decode != NULL, !prefill);
        prefills += prefill;
        decodes += !prefill;
    }
    assert_true(decodes >= 1);
    assert_true(prefills >= 1);
}

static void the_probe_says_what_there_is(void **unused)
{
    (void)unused;
    gdn_backend_report report;
    memset(&report, 0xff, sizeof(report));
    gdn_backend_cpu.probe(&report);
    assert_int_equal(report.usable, 1);
    assert_int_equal(report.num_devices, 1);
    assert_string_equal(report.reason, "");
    assert_non_null(strstr(report.description, "thread"));
}

static void the_device_is_checked(void **unused)
{
    (void)unused;
    gdn_device *device;
    gdn_device_options options = fixture_options(1, GDN_BLAS_OFF);
    options.index = 1;
    assert_int_equal(gdn_backend_cpu.open(&device, &options), GDN_ERROR_INVALID_ARGUMENT);
    assert_null(device);
    assert_non_null(strstr(gdn_last_error(), "device: 1"));
    device = fixture_open(0, GDN_BLAS_OFF);
    assert_in_range(gdn_cpu_device_of(device)->num_threads, 1, 1024);
    fixture_close(device);
}

static void memory_comes_aligned_and_goes(void **unused)
{
    (void)unused;
    gdn_device *const device = fixture_open(1, GDN_BLAS_OFF);
    static const size_t sizes[] = {0, 1, 255, 4096};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *a;
        void *b;
        REQUIRE_OK(gdn_backend_cpu.alloc(device, &a, sizes[i]));
        REQUIRE_OK(gdn_backend_cpu.alloc(device, &b, sizes[i]));
        assert_non_null(a);
        assert_int_equal((uintptr_t)a % GDN_WORKSPACE_ALIGNMENT, 0);
        REQUIRE_OK(gdn_backend_cpu.fill(device, a, 0x5a, sizes[i], NULL));
        REQUIRE_OK(gdn_backend_cpu.copy(device, b, a, sizes[i], GDN_COPY_WITHIN_BACKEND, NULL));
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(((unsigned char *)b)[j], 0x5a);
        }
        REQUIRE_OK(gdn_backend_cpu.free(device, a));
        REQUIRE_OK(gdn_backend_cpu.free(device, b));
    }
    REQUIRE_OK(gdn_backend_cpu.free(device, NULL));
    void *huge = &huge;
    assert_int_equal(gdn_backend_cpu.alloc(device, &huge, SIZE_MAX / 2), GDN_ERROR_OUT_OF_MEMORY);
    assert_null(huge);
    REQUIRE_OK(gdn_backend_cpu.synchronize(device, NULL));
    fixture_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_constant_is_complete),
        cmocka_unit_test(the_probe_says_what_there_is),
        cmocka_unit_test(the_device_is_checked),
        cmocka_unit_test(memory_comes_aligned_and_goes),
    };
    return cmocka_run_group_tests_name("cpu_backend", tests, NULL, NULL);
}
