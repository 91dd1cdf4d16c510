/* Two devices in one process: each context works on its own, whichever the caller has current, from one thread or two. */
#include "gpu_tools.h"

#include <pthread.h>

static gdn_context *contexts[2];

static const case_spec spec = {.label = "two devices",
                               .seed = 1,
                               .num_k_heads = 2,
                               .num_v_heads = 4,
                               .head_k_dim = 128,
                               .dtype = GDN_DTYPE_BF16,
                               .length = 300};

static void both_devices_give_the_same_bits(void **state)
{
    (void)state;
    test_case c[2];
    for (int i = 0; i < 2; i++) {
        case_build(&c[i], &spec);
        REQUIRE_CUDA(cudaSetDevice(1 - i)); /* the caller is on the other one, and stays there */
        REQUIRE_OK(case_run(contexts[i], &c[i], NULL));
        int current = -1;
        REQUIRE_CUDA(cudaGetDevice(&current));
        REQUIRE(current == 1 - i);
    }
    NO_COMPLAINTS(same_results(&c[0], &c[1]));
    case_free(&c[0]);
    case_free(&c[1]);
}

static void memory_of_the_other_device_is_refused(void **state)
{
    (void)state;
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, contexts[0], &c));
    void *other = NULL;
    REQUIRE_OK(gdn_memory_alloc(contexts[1], &other, c.buffer[c.view[CASE_Q].buffer].bytes));
    gdn_prefill_args args = stage.prefill;
    args.q = other;
    REQUIRE(gdn_prefill(stage.plan, &args) == GDN_ERROR_INVALID_ARGUMENT);
    REQUIRE_OK(gdn_memory_free(contexts[1], &other));
    stage_close(&stage);
    case_free(&c);
}

typedef struct worker {
    gdn_context *context;
    test_case c;
    gdn_status status;
} worker;

static void *work(void *argument)
{
    worker *const w = argument;
    for (int i = 0; i < 20 && w->status == GDN_OK; i++) {
        w->status = case_run(w->context, &w->c, NULL);
    }
    return NULL;
}

static void two_threads_use_a_device_each(void **state)
{
    (void)state;
    worker workers[2] = {{.context = contexts[0]}, {.context = contexts[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        case_build(&workers[i].c, &spec);
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
        REQUIRE(workers[i].status == GDN_OK);
    }
    NO_COMPLAINTS(same_results(&workers[0].c, &workers[1].c));
    case_free(&workers[0].c);
    case_free(&workers[1].c);
}

int main(void)
{
    contexts[0] = gpu_context(0);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) {
        printf("skipped: the machine has %d CUDA device, the test needs two\n", count);
        gdn_context_destroy(&contexts[0]);
        return TEST_SKIPPED;
    }
    contexts[1] = gpu_context(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_devices_give_the_same_bits),
        cmocka_unit_test(memory_of_the_other_device_is_refused),
        cmocka_unit_test(two_threads_use_a_device_each),
    };
    const int failed = cmocka_run_group_tests_name("cuda devices", tests, NULL, NULL);
    gdn_context_destroy(&contexts[0]);
    gdn_context_destroy(&contexts[1]);
    return failed;
}
