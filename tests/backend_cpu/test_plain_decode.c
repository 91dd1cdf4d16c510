/* Plain decode, driven as a plan would: waves of any size and any thread count give the same, right bits; the workspace
 * is capped to the byte. */
#include "suite.h"

#include "context.h"
#include "plain_decode.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

static void copy_in(const staged_case *stage)
{
    for (int i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            memcpy(stage->base[i], stage->c->buffer[i].before, stage->c->buffer[i].bytes);
        }
    }
}

static gdn_choice book(const staged_case *stage, size_t cap)
{
    gdn_choice choice;
    memset(&choice, 0, sizeof(choice));
    REQUIRE_OK(gdn_cpu_plain_decode.book(stage->context->device, &stage->plan->problem, cap, &choice));
    assert_false(choice.ledger.overflow);
    assert_true(cap == 0 || choice.ledger.total <= cap);
    return choice;
}

static int run_with(const gdn_choice *choice, staged_case *stage)
{
    unsigned char *const memory = aligned_alloc(GDN_WORKSPACE_ALIGNMENT, choice->ledger.total);
    REQUIRE(memory != NULL);
    memset(memory, 0xff, choice->ledger.total); /* NaN */
    const gdn_decode_run run = {
        .problem = &stage->plan->problem, .args = &stage->decode, .choice = choice, .workspace = memory};
    copy_in(stage);
    REQUIRE_OK(gdn_cpu_plain_decode.decode(stage->context->device, &run));
    free(memory);
    return stage_collect(stage);
}

static const int32_t num_tokens[] = {3, 0, 1, 2, 3, 3, 2};

static case_spec base_spec(void)
{
    return (case_spec){.label = "plain decode",
                       .seed = 95,
                       .operation = GDN_OPERATION_DECODE,
                       .num_k_heads = 2,
                       .num_v_heads = 6,
                       .head_k_dim = 40,
                       .head_v_dim = 75,
                       .num_seqs = COUNT_OF(num_tokens),
                       .tokens_per_row = 3,
                       .num_tokens = num_tokens,
                       .qk_norm = GDN_QK_NORM_EPS_OUTSIDE,
                       .gate_form = GDN_GATE_RAW,
                       .beta_form = GDN_BETA_LOGIT,
                       .state_size = 1};
}

/* What `book` needs at least, from its message. */
static size_t least_of(const staged_case *stage)
{
    gdn_choice choice;
    memset(&choice, 0, sizeof(choice));
    assert_int_equal(gdn_cpu_plain_decode.book(stage->context->device, &stage->plan->problem, 1, &choice),
                     GDN_ERROR_UNSUPPORTED);
    assert_int_equal(choice.ledger.count, 0);
    const char *const words = strstr(gdn_last_error(), "at least ");
    assert_non_null(words);
    return strtoull(words + strlen("at least "), NULL, 10);
}

static void waves_and_threads_change_no_bit(void **unused)
{
    (void)unused;
    static const state_style styles[] = {STATES_VK, STATES_KV, STATES_PADDED};
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    static const int32_t threads[] = {1, 2, 3, 7, 17};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(styles) * COUNT_OF(dtypes); i++) {
        case_spec spec = base_spec();
        spec.states = styles[i % COUNT_OF(styles)];
        spec.dtype = spec.state_dtype = spec.final_dtype = dtypes[i / COUNT_OF(styles)];
        test_case c;
        case_build(&c, &spec);
        unsigned char *first[CASE_NUM_OPERANDS] = {NULL};
        for (size_t t = 0; t < COUNT_OF(threads); t++) {
            gdn_context *context = test_context_with_threads(threads[t]);
            staged_case stage;
            REQUIRE_OK(stage_open(&stage, context, &c));
            const size_t least = least_of(&stage);
            const size_t caps[] = {0, least, 2 * least, 3 * least};
            for (size_t cap = 0; cap < COUNT_OF(caps); cap++) {
                const gdn_choice choice = book(&stage, caps[cap]);
                complaints += run_with(&choice, &stage);
                for (int b = 0; b < CASE_NUM_OPERANDS; b++) {
                    if (c.buffer[b].bytes > 0 && first[b] == NULL) {
                        first[b] = malloc(c.buffer[b].bytes);
                        REQUIRE(first[b] != NULL);
                        memcpy(first[b], c.buffer[b].after, c.buffer[b].bytes);
                    }
                    if (c.buffer[b].bytes > 0) {
                        assert_memory_equal(first[b], c.buffer[b].after, c.buffer[b].bytes);
                    }
                }
            }
            stage_close(&stage);
            gdn_context_destroy(&context);
        }
        reference_result ref = reference_of(&c);
        complaints += judge_case(&c, &ref);
        reference_free(&ref);
        for (int b = 0; b < CASE_NUM_OPERANDS; b++) {
            free(first[b]);
        }
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

/* A tile holds fewer columns of them. */
static void long_vectors_are_right(void **unused)
{
    (void)unused;
    static const int32_t dims[] = {512, 513, 700, 1024};
    int complaints = 0;
    for (size_t i = 0; i < 2 * COUNT_OF(dims); i++) {
        case_spec spec = base_spec();
        spec.head_k_dim = dims[i / 2];
        spec.head_v_dim = 37;
        spec.states = i % 2 == 0 ? STATES_VK : STATES_KV;
        test_case c;
        case_build(&c, &spec);
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, test_context(), &c));
        const gdn_choice choice = book(&stage, 0);
        complaints += run_with(&choice, &stage);
        reference_result ref = reference_of(&c);
        complaints += judge_case(&c, &ref);
        reference_free(&ref);
        stage_close(&stage);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

static void scratch_does_not_grow_with_the_rows(void **unused)
{
    (void)unused;
    case_spec spec = base_spec();
    spec.num_tokens = NULL;
    spec.num_seqs = 1;
    test_case c;
    staged_case stage;
    case_build(&c, &spec);
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    stage.plan->problem.max_seqs = 1 << 20;
    assert_true(book(&stage, 0).ledger.total <= (size_t)4 << 20);
    stage_close(&stage);
    case_free(&c);
}

static void other_numerics_are_refused_by_name(void **unused)
{
    (void)unused;
    gdn_problem problem;
    gdn_reason reason;
    REQUIRE_OK(gdn_problem_init(&problem, 1, 1, 8, 8));
    problem.operation = GDN_OPERATION_DECODE;
    assert_true(gdn_cpu_plain_decode.supports(test_context()->device, &problem, &reason));
    problem.numerics = GDN_NUMERICS_BF16;
    assert_false(gdn_cpu_plain_decode.supports(test_context()->device, &problem, &reason));
    assert_non_null(strstr(reason.text, "numerics BF16"));
    problem.numerics = GDN_NUMERICS_TF32;
    assert_false(gdn_cpu_plain_decode.supports(test_context()->device, &problem, &reason));
    assert_non_null(strstr(reason.text, "numerics TF32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waves_and_threads_change_no_bit),
        cmocka_unit_test(long_vectors_are_right),
        cmocka_unit_test(scratch_does_not_grow_with_the_rows),
        cmocka_unit_test(other_numerics_are_refused_by_name),
    };
    return RUN_SUITE("plain_decode", tests);
}
