/* The caller's allocator: the only source of host memory, every request freed, and each request failed once. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

typedef struct counting_allocator {
    int requests;
    int live;
    int fail_at; /* the request that gets NULL, from 0; -1: none */
} counting_allocator;

static void *counting_alloc(void *user, size_t size, size_t alignment)
{
    counting_allocator *const counter = user;
    assert_true(alignment != 0 && (alignment & (alignment - 1)) == 0);
    if (counter->requests++ == counter->fail_at) {
        return NULL;
    }
    void *const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    assert_non_null(memory);
    memset(memory, 0xA5, size);
    counter->live++;
    return memory;
}

static void counting_free(void *user, void *ptr)
{
    assert_non_null(ptr);
    ((counting_allocator *)user)->live--;
    free(ptr);
}

/* A context, two plans and their destruction; the first failure's status. */
static gdn_status live_through(counting_allocator *counter, gdn_blas blas)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    options.blas = blas;
    options.allocator = (gdn_allocator){counting_alloc, counting_free, counter};
    gdn_context *context = NULL;
    gdn_status status = gdn_context_create(&context, &options);
    if (status != GDN_OK) {
        assert_null(context);
        return status;
    }
    gdn_plan *plans[2] = {NULL, NULL};
    for (int i = 0; i < 2 && status == GDN_OK; i++) {
        gdn_problem p;
        REQUIRE_OK(gdn_problem_init(&p, 1, 2, 32, 32));
        p.operation = i == 0 ? GDN_OPERATION_PREFILL : GDN_OPERATION_DECODE;
        p.max_tokens = 100;
        status = gdn_plan_create(&plans[i], context, &p);
        assert_int_equal(plans[i] == NULL, status != GDN_OK);
    }
    gdn_plan_destroy(&plans[1]);
    gdn_plan_destroy(&plans[0]);
    gdn_context_destroy(&context);
    return status;
}

static void each_failed_request_is_reported_and_leaks_nothing(void **unused)
{
    (void)unused;
    for (gdn_blas blas = GDN_BLAS_AUTO; blas <= GDN_BLAS_OFF; blas++) {
        counting_allocator counter = {.fail_at = -1};
        assert_int_equal(live_through(&counter, blas), GDN_OK);
        assert_int_equal(counter.live, 0);
        const int requests = counter.requests;
        assert_true(requests >= 3);
        for (int i = 0; i < requests; i++) {
            counter = (counting_allocator){.fail_at = i};
            assert_int_equal(live_through(&counter, blas), GDN_ERROR_OUT_OF_MEMORY);
            assert_int_equal(counter.live, 0);
            assert_true(strlen(gdn_last_error()) > 0);
        }
        /* And all is well again. */
        counter = (counting_allocator){.fail_at = -1};
        assert_int_equal(live_through(&counter, blas), GDN_OK);
    }
}

static void backend_memory_that_is_not_there_is_out_of_memory(void **unused)
{
    (void)unused;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizer's allocator ends the program on such a request */
#endif
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    void *memory = &options;
    assert_int_equal(gdn_memory_alloc(context, &memory, SIZE_MAX / 2), GDN_ERROR_OUT_OF_MEMORY);
    assert_null(memory);
    assert_int_equal(gdn_memory_alloc(context, &memory, SIZE_MAX / 4), GDN_ERROR_OUT_OF_MEMORY);
    REQUIRE_OK(gdn_memory_alloc(context, &memory, 0));
    assert_non_null(memory);
    REQUIRE_OK(gdn_memory_free(context, &memory));
    assert_null(memory);
    gdn_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_request_is_reported_and_leaks_nothing),
        cmocka_unit_test(backend_memory_that_is_not_there_is_out_of_memory),
    };
    return cmocka_run_group_tests_name("allocation", tests, NULL, NULL);
}
