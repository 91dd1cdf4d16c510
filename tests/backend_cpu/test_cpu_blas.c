/* The BLAS library: named, checked, its thread count held at 1 while a device wants it and restored after. */
#include "cpu_fixture.h"

#include "cpu_blas.h"

#ifdef GDN_HAVE_OPENBLAS
#include <cblas.h>
#endif

static void the_description_says_what_multiplies(void **unused)
{
    (void)unused;
    char name[96];
    const bool there = gdn_cpu_blas_name(name, sizeof(name));
    gdn_device *device = fixture_open(2, GDN_BLAS_AUTO);
    assert_non_null(strstr(device->description, name));
    assert_int_equal(gdn_cpu_device_of(device)->use_blas, there);
    fixture_close(device);
    device = fixture_open(2, GDN_BLAS_OFF);
    assert_false(gdn_cpu_device_of(device)->use_blas);
    assert_non_null(strstr(device->description, "plain products (blas is OFF)"));
    fixture_close(device);
#ifdef GDN_HAVE_OPENBLAS
    assert_true(there);
    assert_non_null(strstr(name, "OpenBLAS"));
    assert_non_null(strstr(name, openblas_get_corename()));
#else
    assert_string_equal(name, "plain products (built without BLAS)");
#endif
}

static void *no_memory(void *user, size_t size, size_t alignment)
{
    (void)user;
    (void)size;
    (void)alignment;
    return NULL;
}

static void the_check_passes_and_reports_lack_of_memory(void **unused)
{
    (void)unused;
    char name[96];
    if (!gdn_cpu_blas_name(name, sizeof(name))) {
        skip();
    }
    gdn_status status;
    gdn_allocator allocator = {fixture_alloc, fixture_free, NULL};
    assert_true(gdn_cpu_blas_computes_right(&allocator, &status));
    assert_int_equal(status, GDN_OK);
    allocator.alloc = no_memory;
    assert_false(gdn_cpu_blas_computes_right(&allocator, &status));
    assert_int_equal(status, GDN_ERROR_OUT_OF_MEMORY);
}

#ifdef GDN_HAVE_OPENBLAS

static void threads_are_held_from_the_first_device_to_the_last(void **unused)
{
    (void)unused;
    if (openblas_get_parallel() != OPENBLAS_THREAD) {
        skip(); /* no process-global count to look after */
    }
    openblas_set_num_threads(2);
    const int before = openblas_get_num_threads();
    gdn_device *const plain = fixture_open(1, GDN_BLAS_OFF);
    assert_int_equal(openblas_get_num_threads(), before);
    gdn_device *const first = fixture_open(1, GDN_BLAS_AUTO);
    assert_int_equal(openblas_get_num_threads(), 1);
    gdn_device *const second = fixture_open(2, GDN_BLAS_AUTO);
    fixture_close(first);
    assert_int_equal(openblas_get_num_threads(), 1);
    fixture_close(plain);
    fixture_close(second);
    assert_int_equal(openblas_get_num_threads(), before);
}

/* A device that could not be had leaves no count behind. */
static void a_failed_open_restores_them(void **unused)
{
    (void)unused;
    openblas_set_num_threads(2);
    const int before = openblas_get_num_threads();
    gdn_device_options options = fixture_options(1, GDN_BLAS_AUTO);
    options.allocator.alloc = no_memory;
    gdn_device *device;
    assert_int_equal(gdn_backend_cpu.open(&device, &options), GDN_ERROR_OUT_OF_MEMORY);
    assert_null(device);
    assert_int_equal(openblas_get_num_threads(), before);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_description_says_what_multiplies),
        cmocka_unit_test(the_check_passes_and_reports_lack_of_memory),
#ifdef GDN_HAVE_OPENBLAS
        cmocka_unit_test(threads_are_held_from_the_first_device_to_the_last),
        cmocka_unit_test(a_failed_open_restores_them),
#endif
    };
    return cmocka_run_group_tests_name("cpu_blas", tests, NULL, NULL);
}
