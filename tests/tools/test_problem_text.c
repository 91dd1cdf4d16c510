/* The one-line problem syntax: what it means, what it refuses, and that printing and parsing are each other's inverse. */
#include "check.h"
#include "problem_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void a_line_says_the_whole_problem(void **state)
{
    (void)state;
    problem_text text;
    gdn_problem problem;
    char error[512] = "";
    const char *const line =
        "heads=16/48 dim=128/64 seqs=8x1024,70,0,5 tokens=8300 dtype=bf16 gates=raw gate_dtype=same "
        "beta=logit beta_scale=2 norm=eps_outside norm_eps=0.5 scale=-2 head_map=tiled chunk=32 "
        "segments=2 state=pool:f16 layout=kv slots=i32 cu=i32 workspace=3M checkpoints=every:100";
    if (!problem_text_parse(&text, line, error, sizeof(error))) {
        fail_msg("%s", error);
    }
    assert_int_equal(problem_text_num_seqs(&text), 11);
    assert_int_equal(problem_text_total_tokens(&text), 8300);
    assert_int_equal(problem_text_longest(&text), 1024);
    problem_text_build(&text, &problem);
    assert_int_equal(problem.num_k_heads, 16);
    assert_int_equal(problem.num_v_heads, 48);
    assert_int_equal(problem.head_k_dim, 128);
    assert_int_equal(problem.head_v_dim, 64);
    assert_int_equal(problem.q.dtype, GDN_DTYPE_BF16);
    assert_int_equal(problem.o.dtype, GDN_DTYPE_BF16);
    assert_int_equal(problem.gate.dtype, GDN_DTYPE_BF16);
    assert_int_equal(problem.gate_form, GDN_GATE_RAW);
    assert_int_equal(problem.beta_form, GDN_BETA_LOGIT);
    assert_true(problem.beta_scale == 2.0f && problem.qk_norm_eps == 0.5f && problem.scale == -2.0f);
    assert_int_equal(problem.qk_norm, GDN_QK_NORM_EPS_OUTSIDE);
    assert_int_equal(problem.head_map, GDN_HEAD_MAP_TILED);
    assert_int_equal(problem.chunk_size, 32);
    assert_int_equal(problem.num_segments, 2);
    assert_int_equal(problem.state_form, GDN_STATE_POOL);
    assert_int_equal(problem.state.dtype, GDN_DTYPE_F16);
    assert_int_equal(problem.state.v_stride, 1);
    assert_int_equal(problem.state.k_stride, 64);
    assert_int_equal(problem.slots_dtype, GDN_DTYPE_I32);
    assert_int_equal(problem.cu_seqlens_dtype, GDN_DTYPE_I32);
    assert_int_equal(problem.max_workspace, 3 << 20);
    assert_int_equal(problem.max_checkpoints, 80);
    assert_int_equal(problem.max_seqs, 11);
    assert_int_equal(problem.max_tokens, 8300);
    assert_int_equal(problem.max_seqlen, 1024);
}

static void defaults_are_those_of_the_library(void **state)
{
    (void)state;
    problem_text text;
    gdn_problem built, initial;
    char error[512];
    assert_true(problem_text_parse(&text, "heads=2/4 dim=32 tokens=9", error, sizeof(error)));
    problem_text_build(&text, &built);
    REQUIRE_OK(gdn_problem_init(&initial, 2, 4, 32, 32));
    initial.max_tokens = initial.max_seqlen = 9;
    initial.max_checkpoints = built.max_checkpoints;
    assert_memory_equal(&built, &initial, sizeof(built));
}

static void wrong_lines_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } wrong[] = {
        {"", "say tokens=N or seqs=LIST"},
        {"hello", "'hello' is not key=value"},
        {"head=4 tokens=1", "'head' is not a key; allowed: op heads"},
        {"=4", "'' is not a key"},
        {"tokens=1 tokens=1", "tokens: given twice"},
        {"tokens=", "tokens: '' is not an integer in 0.."},
        {"tokens=1e3", "tokens: '1e3' is not an integer"},
        {"tokens=-1", "tokens: '-1' is not an integer"},
        {"tokens=99999999999999999999", "is not an integer"},
        {"tokens=1 heads=4/6", "6 v heads are not a multiple of 4"},
        {"tokens=1 heads=0", "heads: '0' is not N or N/M"},
        {"tokens=1 heads=4/", "heads: '4/' is not N or N/M"},
        {"tokens=1 dim=2000", "each in 1..1024"},
        {"tokens=1 dtype=f64", "dtype: 'f64' is not one of: f32 bf16 f16"},
        {"tokens=1 dtype=f", "dtype: 'f' is not one of"},
        {"tokens=1 scale=nan", "scale: 'nan' is not a number"},
        {"tokens=1 norm_eps=auto", "norm_eps: 'auto' is not a number"},
        {"tokens=1 state=pool:f64", "state: 'pool:f64' is not dense or pool"},
        {"tokens=1 workspace=3X", "is not a count of bytes"},
        {"tokens=1 workspace=9999999999G", "is not a count of bytes"},
        {"seqs=", "seqs: '' is not a list"},
        {"seqs=1,", "seqs: '1,' is not a list"},
        {"seqs=0x5", "is not a list"},
        {"seqs=1048576x67108864", "more than"},
        {"seqs=5,5 tokens=9", "fewer than the 10 of seqs"},
        {"seqs=5,6 cu=none", "one length"},
        {"tokens=1 checkpoints=every:0", "every:N with N >= 1"},
        {"tokens=1 rows=2", "rows: only for op=decode"},
        {"op=decode tokens=1", "tokens: only for op=prefill"},
        {"op=decode tokens_per_row=17", "not an integer in 1..16"},
        {"tokens=1 update=none", "update: only for state=pool"},
        {"tokens=1 state=pool final=f32", "final: only for state=dense"},
        {"tokens=1 beta_scale=2", "beta_scale: 2, must be 1 unless"},
        {"tokens=1 \x1b[31m=3", "'?[31m' is not a key"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        problem_text text;
        char error[1024] = "";
        const bool taken = problem_text_parse(&text, wrong[i].line, error, sizeof(error));
        if (taken || strstr(error, wrong[i].message) == NULL || strchr(error, '\n') != NULL) {
            fail_msg("'%s': %s '%s', expected '%s'", wrong[i].line, taken ? "taken" : "refused with", error,
                     wrong[i].message);
        }
    }
}

/* An error buffer of any size is enough. */
static void messages_are_cut_to_their_buffer(void **state)
{
    (void)state;
    problem_text text;
    for (size_t size = 1; size < 200; size++) {
        char *const error = malloc(size);
        assert_non_null(error);
        assert_false(problem_text_parse(&text, "nonsense=1", error, size));
        assert_true(strlen(error) < size);
        free(error);
    }
}

static void printing_and_parsing_are_inverse(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "tokens=5",
        "heads=1/3 dim=20/7 seqs=3x5,0,1 norm=rsqrt scale=0.1 norm_eps=1e-06 strides=padded seed=7",
        "op=decode heads=8 rows=0 tokens_per_row=16 num_tokens=random state=pool:bf16 token_slots=all skip=some",
        "seqs=4x65 cu=none checkpoints=at decay=reset keys=repeated initial=mixed final=none",
        "tokens=70 state=dense:f16 workspace=1G scale=0.3333333333333333",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        problem_text first, second;
        char error[512] = "", once[2048], twice[2048];
        assert_true(problem_text_parse(&first, lines[i], error, sizeof(error)));
        assert_true(problem_text_format(&first, once, sizeof(once)));
        if (!problem_text_parse(&second, once, error, sizeof(error))) {
            fail_msg("'%s' became '%s': %s", lines[i], once, error);
        }
        assert_true(problem_text_format(&second, twice, sizeof(twice)));
        assert_string_equal(once, twice);
        gdn_problem a, b;
        problem_text_build(&first, &a);
        problem_text_build(&second, &b);
        assert_memory_equal(&a, &b, sizeof(a));
        assert_false(problem_text_format(&first, once, 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_the_whole_problem),    cmocka_unit_test(defaults_are_those_of_the_library),
        cmocka_unit_test(wrong_lines_name_what_is_wrong),   cmocka_unit_test(messages_are_cut_to_their_buffer),
        cmocka_unit_test(printing_and_parsing_are_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
