/* Every wrong pointer and count of a run: the status, the argument and value in the message, and nothing written. */
#include "spoil.h"

static void the_good_calls_are_good(void **unused)
{
    (void)unused;
    void (*const builds[])(test_case *) = {build_pool_case, build_dense_case, build_decode_case};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(builds); i++) {
        test_case c;
        builds[i](&c);
        complaints += check_built_case(test_context(), &c);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

static void null_pointers(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_ARGUMENT(build_pool_case, p->q = NULL, bad, "q", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->k = NULL, bad, "k", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->v = NULL, bad, "v", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->o = NULL, bad, "o", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->gate = NULL, bad, "gate", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->beta = NULL, bad, "beta", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->A_log = NULL, bad, "A_log", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->cu_seqlens = NULL, bad, "cu_seqlens", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->state = NULL, bad, "state", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->read_slots = NULL, bad, "read_slots", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->checkpoints = NULL, bad, "checkpoints", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->checkpoint_positions = NULL, bad, "checkpoint_positions", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->checkpoint_offsets = NULL, bad, "checkpoint_offsets", "NULL");
    SPOIL_ARGUMENT(build_pool_case, p->workspace = NULL, bad, "workspace", "NULL");
    SPOIL_ARGUMENT(build_decode_case, d->q = NULL, bad, "q", "NULL");
    SPOIL_ARGUMENT(build_decode_case, d->o = NULL, bad, "o", "NULL");
    SPOIL_ARGUMENT(build_decode_case, d->gate = NULL, bad, "gate", "NULL");
    SPOIL_ARGUMENT(build_decode_case, d->state = NULL, bad, "state", "NULL");
    SPOIL_ARGUMENT(build_decode_case, d->read_slots = NULL, bad, "read_slots", "NULL");
    NO_COMPLAINTS(complaints);
}

/* What would wrap round the address space is refused before anything adds to it. */
static void pointers_whose_elements_do_not_fit_memory(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    void *const last = (void *)(UINTPTR_MAX - 255);
    SPOIL_ARGUMENT(build_pool_case, p->q = last, bad, "q", "past the end of the address space");
    SPOIL_ARGUMENT(build_pool_case, p->o = last, bad, "o", "past the end of the address space");
    SPOIL_ARGUMENT(build_pool_case, p->workspace = last, bad, "workspace", "past the end of the address space");
    SPOIL_ARGUMENT(build_decode_case, d->state = last, bad, "state", "past the end of the address space");
    NO_COMPLAINTS(complaints);
}

static void pointers_the_problem_has_no_use_for(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_ARGUMENT(build_pool_case, p->final_state = p->checkpoints, bad, "final_state", "");
    SPOIL_ARGUMENT(build_dense_case, p->A_log = p->beta, bad, "A_log", "");
    SPOIL_ARGUMENT(build_dense_case, p->dt_bias = p->beta, bad, "dt_bias", "");
    SPOIL_ARGUMENT(build_dense_case, p->read_slots = p->cu_seqlens, bad, "read_slots", "");
    SPOIL_ARGUMENT(build_dense_case, p->write_slots = p->cu_seqlens, bad, "write_slots", "");
    SPOIL_ARGUMENT(build_dense_case, p->checkpoints = p->final_state, bad, "checkpoints", "");
    NO_COMPLAINTS(complaints);
}

static void pointers_below_their_alignment(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    const char *const of_layout = "16 bytes, the alignment of its layout";
#define SHIFT(field, bytes) field = (void *)((uintptr_t)(field) + (bytes))
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->q, 4), bad, "q", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->k, 8), bad, "k", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->v, 1), bad, "v", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->o, 4), bad, "o", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->gate, 4), bad, "gate", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->beta, 4), bad, "beta", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->A_log, 2), bad, "A_log", "its element, 4");
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->dt_bias, 1), bad, "dt_bias", "its element, 4");
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->state, 4), bad, "state", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->cu_seqlens, 4), bad, "cu_seqlens", "its element, 8");
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->read_slots, 4), bad, "read_slots", "its element, 8");
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->write_slots, 1), bad, "write_slots", "its element, 8");
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->checkpoints, 4), bad, "checkpoints", of_layout);
    SPOIL_ARGUMENT(build_pool_case, SHIFT(p->workspace, 16), bad, "workspace", "256");
    SPOIL_ARGUMENT(build_decode_case, SHIFT(d->num_tokens, 2), bad, "num_tokens", "its element, 4");
    SPOIL_ARGUMENT(build_decode_case, SHIFT(d->token_slots, 4), bad, "token_slots", "its element, 8");
    SPOIL_ARGUMENT(build_decode_case, SHIFT(d->v, 4), bad, "v", of_layout);
#undef SHIFT
    NO_COMPLAINTS(complaints);
}

static void outputs_over_other_arguments(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_ARGUMENT(build_dense_case, p->o = (void *)(uintptr_t)p->v, bad, "o", "overlaps v");
    SPOIL_ARGUMENT(build_dense_case, p->o = (void *)((uintptr_t)p->q + 64), bad, "o", "overlaps q");
    SPOIL_ARGUMENT(build_dense_case, p->o = (void *)(uintptr_t)p->gate, bad, "overlaps", "");
    SPOIL_ARGUMENT(build_dense_case, p->o = p->state, bad, "overlaps", "");
    SPOIL_ARGUMENT(build_dense_case, p->final_state = p->o, bad, "overlaps", "");
    SPOIL_ARGUMENT(build_dense_case, p->final_state = (void *)((uintptr_t)p->state + 128), bad, "final_state",
                   "overlaps state");
    SPOIL_ARGUMENT(build_pool_case, p->workspace = p->state, bad, "workspace", "overlaps");
    SPOIL_ARGUMENT(build_pool_case, p->checkpoints = p->state, bad, "overlaps", "");
    SPOIL_ARGUMENT(build_pool_case, p->o = (void *)((uintptr_t)p->cu_seqlens & ~(uintptr_t)15), bad, "overlaps", "");
    SPOIL_ARGUMENT(build_decode_case, d->o = (void *)(uintptr_t)d->v, bad, "o", "overlaps v");
    SPOIL_ARGUMENT(build_decode_case, d->o = d->state, bad, "overlaps", "");
    NO_COMPLAINTS(complaints);
}

static void counts_out_of_range(void **unused)
{
    (void)unused;
    int complaints = 0;
    const gdn_status bad = GDN_ERROR_INVALID_ARGUMENT;
    SPOIL_ARGUMENT(build_pool_case, p->num_seqs = -1, bad, "num_seqs", "-1");
    SPOIL_ARGUMENT(build_pool_case, p->num_seqs = SEQS + 1, bad, "num_seqs", "4");
    SPOIL_ARGUMENT(build_pool_case, p->num_seqs = INT64_MAX, bad, "num_seqs", "9223372036854775807");
    SPOIL_ARGUMENT(build_pool_case, p->total_tokens = -7, bad, "total_tokens", "-7");
    SPOIL_ARGUMENT(build_pool_case, p->total_tokens = TOKENS + 1, bad, "total_tokens", "21");
    SPOIL_ARGUMENT(build_pool_case, p->num_slots = -1, bad, "num_slots", "-1");
    SPOIL_ARGUMENT(build_pool_case, p->num_slots = INT64_MAX, bad, "state", "");
    SPOIL_ARGUMENT(build_pool_case, p->num_checkpoints = -1, bad, "num_checkpoints", "-1");
    SPOIL_ARGUMENT(build_pool_case, p->num_checkpoints = 6, bad, "num_checkpoints", "6");
    SPOIL_ARGUMENT(build_pool_case, p->workspace_size -= 1, GDN_ERROR_WORKSPACE_TOO_SMALL, "workspace_size", "");
    SPOIL_ARGUMENT(build_pool_case, p->workspace_size = 0, GDN_ERROR_WORKSPACE_TOO_SMALL, "workspace_size", "0");
    SPOIL_ARGUMENT(build_decode_case, d->num_rows = -2, bad, "num_rows", "-2");
    SPOIL_ARGUMENT(build_decode_case, d->num_rows = SEQS + 1, bad, "num_rows", "4");
    SPOIL_ARGUMENT(build_decode_case, d->num_slots = -1, bad, "num_slots", "-1");
    SPOIL_ARGUMENT(build_pool_case, p->struct_size = 0, GDN_ERROR_VERSION_MISMATCH, "struct_size", "0");
    SPOIL_ARGUMENT(build_pool_case, p->struct_size += 8, GDN_ERROR_VERSION_MISMATCH, "struct_size", "");
    SPOIL_ARGUMENT(build_decode_case, d->struct_size -= 8, GDN_ERROR_VERSION_MISMATCH, "struct_size", "");
    NO_COMPLAINTS(complaints);
}

static void an_equal_length_batch_that_does_not_divide(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "equal lengths", .seed = 95, .equal_length = true, .length = 10, .num_seqs = 2};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    stage.prefill.total_tokens = 19;
    const expectation odd = {GDN_ERROR_INVALID_ARGUMENT, "total_tokens", "19", false};
    int complaints = judge_refusal(&stage, &odd);
    stage.prefill.total_tokens = 20;
    stage.prefill.cu_seqlens = stage.prefill.gate;
    const expectation extra = {GDN_ERROR_INVALID_ARGUMENT, "cu_seqlens", "", false};
    complaints += judge_refusal(&stage, &extra);
    stage_close(&stage);
    case_free(&c);
    NO_COMPLAINTS(complaints);
}

static void a_plan_of_the_other_operation(void **unused)
{
    (void)unused;
    test_case c, d;
    build_pool_case(&c);
    build_decode_case(&d);
    staged_case prefill, decode;
    REQUIRE_OK(stage_open(&prefill, test_context(), &c));
    REQUIRE_OK(stage_open(&decode, test_context(), &d));
    assert_int_equal(gdn_prefill(decode.plan, &prefill.prefill), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "plan"));
    assert_int_equal(gdn_decode(prefill.plan, &decode.decode), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "plan"));
    assert_int_equal(gdn_prefill(prefill.plan, NULL), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "args"));
    stage_close(&prefill);
    stage_close(&decode);
    case_free(&c);
    case_free(&d);
}

static void a_refused_call_leaves_the_plan_usable(void **unused)
{
    (void)unused;
    test_case c;
    build_pool_case(&c);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    const void *const q = stage.prefill.q;
    stage.prefill.q = NULL;
    assert_int_equal(stage_run(&stage), GDN_ERROR_INVALID_ARGUMENT);
    stage.prefill.q = q;
    REQUIRE_OK(stage_run(&stage));
    int complaints = stage_collect(&stage);
    reference_result ref = reference_of(&c);
    complaints += judge_case(&c, &ref);
    reference_free(&ref);
    stage_close(&stage);
    case_free(&c);
    NO_COMPLAINTS(complaints);
}

static void pointers_below_a_raised_alignment(void **unused)
{
    (void)unused;
    test_case c;
    build_dense_case(&c);
    c.problem.v.alignment = 64;
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    REQUIRE_OK(stage_run(&stage));
    stage.prefill.v = (const char *)stage.prefill.v + 16;
    stage.prefill.total_tokens = TOKENS - 1;
    const expectation want = {GDN_ERROR_INVALID_ARGUMENT, "v", "64 bytes", false};
    NO_COMPLAINTS(judge_refusal(&stage, &want));
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_calls_are_good),
        cmocka_unit_test(null_pointers),
        cmocka_unit_test(pointers_whose_elements_do_not_fit_memory),
        cmocka_unit_test(pointers_the_problem_has_no_use_for),
        cmocka_unit_test(pointers_below_their_alignment),
        cmocka_unit_test(pointers_below_a_raised_alignment),
        cmocka_unit_test(outputs_over_other_arguments),
        cmocka_unit_test(counts_out_of_range),
        cmocka_unit_test(an_equal_length_batch_that_does_not_divide),
        cmocka_unit_test(a_plan_of_the_other_operation),
        cmocka_unit_test(a_refused_call_leaves_the_plan_usable),
    };
    return RUN_SUITE("bad arguments", tests);
}
