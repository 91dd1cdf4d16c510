/* Contexts: their options, several at once, in any order of destruction. */
#include "suite.h"

#include <string.h>

static gdn_context *create(gdn_blas blas, int32_t threads, const char *implementations)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = test_backend();
    options.blas = blas;
    options.num_threads = threads;
    options.implementations = implementations;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    assert_string_equal(gdn_context_backend(context), test_backend());
    return context;
}

static int check_on(gdn_context *context, const char *label)
{
    const case_spec spec = {.label = label,
                            .seed = 111,
                            .num_k_heads = 2,
                            .num_v_heads = 4,
                            .head_k_dim = 40,
                            .head_v_dim = 24,
                            .lengths = LENGTHS(130, 0, 65),
                            .num_seqs = 3,
                            .state_size = 1};
    test_case c;
    case_build(&c, &spec);
    const int complaints = check_built_case(context, &c);
    case_free(&c);
    return complaints;
}

static void products_without_a_blas_are_right(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (int32_t threads = 1; threads <= 2; threads++) {
        gdn_context *context = create(GDN_BLAS_OFF, threads, "generic");
        complaints += check_on(context, "blas OFF");
        gdn_context_destroy(&context);
        assert_null(context);
        context = create(GDN_BLAS_AUTO, threads, "generic");
        complaints += check_on(context, "blas AUTO");
        gdn_context_destroy(&context);
    }
    NO_COMPLAINTS(complaints);
}

static void contexts_end_in_any_order(void **unused)
{
    (void)unused;
    gdn_context *contexts[4];
    int complaints = 0;
    for (int i = 0; i < 4; i++) {
        contexts[i] = create(i % 2 == 0 ? GDN_BLAS_AUTO : GDN_BLAS_OFF, 1 + i, NULL);
    }
    static const int order[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        complaints += check_on(contexts[order[i]], "one of four contexts");
        gdn_context_destroy(&contexts[order[i]]);
    }
    gdn_context *again = create(GDN_BLAS_AUTO, 2, NULL);
    complaints += check_on(again, "after all others ended");
    gdn_context_destroy(&again);
    NO_COMPLAINTS(complaints);
}

static void no_options_are_the_defaults(void **unused)
{
    (void)unused;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, NULL));
    assert_true(strlen(gdn_context_backend(context)) > 0);
    gdn_context_destroy(&context);
    gdn_context_destroy(&context);
    gdn_context_destroy(NULL);
}

static void options_may_go_after_the_call(void **unused)
{
    (void)unused;
    char list[32] = "generic";
    gdn_context *context = create(GDN_BLAS_AUTO, 1, list);
    memset(list, 'x', sizeof(list) - 1);
    const int complaints = check_on(context, "options gone");
    gdn_context_destroy(&context);
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_without_a_blas_are_right),
        cmocka_unit_test(contexts_end_in_any_order),
        cmocka_unit_test(no_options_are_the_defaults),
        cmocka_unit_test(options_may_go_after_the_call),
    };
    return RUN_SUITE("contexts", tests);
}
