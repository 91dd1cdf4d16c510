/* The generic path itself: what it refuses, what its waves promise, and that the two-inverse ablation computes the same
 * function, so that the bench compares like with like. */
#include "suite.h"

#include "backend.h"
#include "context.h"
#include "generic_ops.h"
#include "generic_prefill_internal.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* Inputs and poisoned outputs, afresh. */
static void copy_in(const staged_case *stage)
{
    for (int i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            const case_buffer *const buffer = &stage->c->buffer[i];
            REQUIRE_OK(gdn_memory_copy(stage->context, stage->base[i], buffer->before, buffer->bytes,
                                       GDN_COPY_TO_BACKEND, NULL));
        }
    }
}

/* What a plan books. */
static gdn_choice book(const gdn_implementation *implementation, const staged_case *stage)
{
    gdn_choice choice;
    memset(&choice, 0, sizeof(choice));
    if (!test_backend_is_host()) {
        gdn_ledger_book(&choice.ledger, "metadata fault", GDN_FAULT_BYTES);
    }
    REQUIRE_OK(implementation->book(stage->context->device, &stage->plan->problem, 0, &choice));
    return choice;
}

/* Runs an implementation, as a plan would, on a staged case's buffers. */
static void run_with(const gdn_implementation *implementation, const gdn_choice *choice, const staged_case *stage)
{
    void *memory;
    REQUIRE_OK(gdn_memory_alloc(stage->context, &memory, choice->ledger.total));
    REQUIRE_OK(gdn_memory_fill(stage->context, memory, 0xff, choice->ledger.total, NULL)); /* NaN */
    const gdn_prefill_run run = {
        .problem = &stage->plan->problem, .args = &stage->prefill, .choice = choice, .workspace = memory};
    copy_in(stage);
    REQUIRE_OK(implementation->prefill(stage->context->device, &run));
    REQUIRE_OK(gdn_synchronize(stage->context, NULL));
    REQUIRE_OK(gdn_memory_free(stage->context, &memory));
}

static const int64_t lengths[] = {70, 0, 200, 1, 64};

static case_spec base_spec(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 91,
                       .num_k_heads = 2,
                       .num_v_heads = 4,
                       .head_k_dim = 40,
                       .head_v_dim = 24,
                       .lengths = lengths,
                       .num_seqs = COUNT_OF(lengths),
                       .qk_norm = GDN_QK_NORM_RSQRT,
                       .gates = GATES_WEAK,
                       .state_size = 1};
}

static int check_implementation(const gdn_implementation *implementation, const case_spec *spec)
{
    test_case c;
    staged_case stage;
    case_build(&c, spec);
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    const gdn_choice choice = book(implementation, &stage);
    run_with(implementation, &choice, &stage);
    int complaints = stage_collect(&stage);
    reference_result ref = reference_of(&c);
    complaints += judge_case(&c, &ref);
    reference_free(&ref);
    stage_close(&stage);
    case_free(&c);
    return complaints;
}

static void one_and_two_inverses_compute_the_same_function(void **unused)
{
    (void)unused;
    static const gate_regime regimes[] = {GATES_WEAK, GATES_STANDARD, GATES_SMALL, GATES_RESET};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(regimes); i++) {
        for (int map = 0; map < 2; map++) {
            case_spec spec = base_spec("one inverse");
            spec.gates = regimes[i];
            spec.head_map = map ? GDN_HEAD_MAP_TILED : GDN_HEAD_MAP_GROUPED;
            complaints += check_implementation(&gdn_generic_prefill, &spec);
            spec.label = "two inverses";
            complaints += check_implementation(&gdn_generic_prefill_two_inverses, &spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void no_plan_can_choose_the_ablation(void **unused)
{
    (void)unused;
    const gdn_backend *const backend = test_context()->backend;
    for (const gdn_implementation *const *entry = backend->implementations; *entry != NULL; entry++) {
        assert_ptr_not_equal(*entry, &gdn_generic_prefill_two_inverses);
    }
}

static void low_precision_products_are_refused_with_a_reason(void **unused)
{
    (void)unused;
    gdn_problem problem;
    gdn_reason reason;
    const gdn_device *const device = test_context()->device;
    REQUIRE_OK(gdn_problem_init(&problem, 1, 1, 32, 32));
    assert_true(gdn_generic_prefill.supports(device, &problem, &reason));
    problem.numerics = GDN_NUMERICS_FP32;
    assert_true(gdn_generic_prefill.supports(device, &problem, &reason));
    problem.numerics = GDN_NUMERICS_BF16;
    assert_false(gdn_generic_prefill.supports(device, &problem, &reason));
    assert_non_null(strstr(reason.text, "BF16"));
    problem.numerics = GDN_NUMERICS_TF32;
    assert_int_equal(gdn_generic_prefill.supports(device, &problem, &reason), !test_backend_is_host());
    if (test_backend_is_host()) {
        assert_non_null(strstr(reason.text, "TF32"));
    }
}

/* A wave may cut anywhere between chunks: the bits are those of one wave. */
static void waves_of_any_size_give_the_same_bits(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("one wave");
    spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
    spec.checkpoint_interval = 30;
    test_case c;
    staged_case stage;
    case_build(&c, &spec);
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    gdn_choice choice = book(&gdn_generic_prefill, &stage);
    const int64_t whole = choice.wave_chunks;
    assert_true(whole >= 9); /* 2 + 1 + 4 + 1 + 1 chunks */
    unsigned char *first[CASE_NUM_OPERANDS] = {NULL};
    int complaints = 0;
    for (int64_t wave = whole; wave >= 1; wave = wave > 9 ? 9 : wave - 1) {
        choice.wave_chunks = wave;
        run_with(&gdn_generic_prefill, &choice, &stage);
        complaints += stage_collect(&stage);
        for (int i = 0; i < CASE_NUM_OPERANDS; i++) {
            if (c.buffer[i].bytes == 0) {
                continue;
            }
            if (wave == whole) {
                first[i] = malloc(c.buffer[i].bytes);
                REQUIRE(first[i] != NULL);
                memcpy(first[i], c.buffer[i].after, c.buffer[i].bytes);
            }
            assert_memory_equal(first[i], c.buffer[i].after, c.buffer[i].bytes);
        }
        if (wave == whole) {
            reference_result ref = reference_of(&c);
            complaints += judge_case(&c, &ref);
            reference_free(&ref);
        }
    }
    NO_COMPLAINTS(complaints);
    for (int i = 0; i < CASE_NUM_OPERANDS; i++) {
        free(first[i]);
    }
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_and_two_inverses_compute_the_same_function),
        cmocka_unit_test(no_plan_can_choose_the_ablation),
        cmocka_unit_test(low_precision_products_are_refused_with_a_reason),
        cmocka_unit_test(waves_of_any_size_give_the_same_bits),
    };
    return RUN_SUITE("generic_prefill", tests);
}
