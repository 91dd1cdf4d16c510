/* Every wrong field of a problem, of the context options and of the calls round them: a status and one line that names
 * the field and its value. */
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bad_field {
    void (*set)(gdn_problem *p);
    const char *name; /* what the message must say: the field, */
    const char *value; /* and its value */
} bad_field;

#define FIELD(id, statement)             \
    static void set_##id(gdn_problem *p) \
    {                                    \
        statement;                       \
    }

FIELD(operation, p->operation = (gdn_operation)7)
FIELD(operation_negative, p->operation = (gdn_operation)-1)
FIELD(k_heads_none, p->num_k_heads = 0)
FIELD(k_heads_negative, p->num_k_heads = -3)
FIELD(v_heads_none, p->num_v_heads = 0)
FIELD(v_heads_fewer, p->num_v_heads = 1)
FIELD(v_heads_no_multiple, p->num_v_heads = 5)
FIELD(k_dim_none, p->head_k_dim = 0)
FIELD(k_dim_large, p->head_k_dim = 1025)
FIELD(v_dim_negative, p->head_v_dim = -1)
FIELD(v_dim_large, p->head_v_dim = 1025)
FIELD(head_map, p->head_map = (gdn_head_map)2)
FIELD(scale_nan, p->scale = NAN)
FIELD(scale_infinite, p->scale = INFINITY)
FIELD(gate_form, p->gate_form = (gdn_gate_form)3)
FIELD(beta_form, p->beta_form = (gdn_beta_form)-2)
FIELD(beta_scale, (p->beta_form = GDN_BETA_LOGIT, p->beta_scale = 3.0f))
FIELD(beta_scale_nan, p->beta_scale = NAN)
FIELD(beta_scale_with_value, p->beta_scale = 2.0f)
FIELD(qk_norm, p->qk_norm = (gdn_qk_norm)3)
FIELD(eps_negative, p->qk_norm_eps = -1.0f)
FIELD(eps_infinite, p->qk_norm_eps = INFINITY)
FIELD(numerics, p->numerics = (gdn_numerics)9)
FIELD(chunk_size, p->chunk_size = -1)
FIELD(num_segments, p->num_segments = -2)
FIELD(check, p->check = 2)
FIELD(q_dtype, p->q.dtype = GDN_DTYPE_I32)
FIELD(q_dtype_unknown, p->q.dtype = (gdn_dtype)99)
FIELD(k_dtype, p->k.dtype = GDN_DTYPE_BF16)
FIELD(v_dtype, p->v.dtype = GDN_DTYPE_BF16)
FIELD(o_dtype, p->o.dtype = GDN_DTYPE_F16)
FIELD(gate_dtype, p->gate.dtype = GDN_DTYPE_F16)
FIELD(beta_dtype, p->beta.dtype = GDN_DTYPE_BF16)
FIELD(q_alignment_none, p->q.alignment = 0)
FIELD(k_alignment_odd, p->k.alignment = 3)
FIELD(v_alignment_below_element, p->v.alignment = 2)
FIELD(o_alignment_large, p->o.alignment = 1u << 20)
FIELD(state_alignment, p->state.alignment = 6)
FIELD(q_stride, p->q.token_stride = -1)
FIELD(k_head_stride, p->k.head_stride = -32)
FIELD(v_row_stride, p->v.row_stride = -5)
FIELD(gate_stride_large, p->gate.token_stride = INT64_MAX)
FIELD(v_stride_large, p->v.token_stride = INT64_MAX / 2)
FIELD(o_token_stride, p->o.token_stride = 0)
FIELD(o_head_stride, p->o.head_stride = 1)
FIELD(o_overlapping, p->o.token_stride = 17)
FIELD(state_dtype, p->state.dtype = GDN_DTYPE_I64)
FIELD(state_inner, p->state.k_stride = 2)
FIELD(state_both_unit, p->state.v_stride = 1)
FIELD(state_v_stride_short, p->state.v_stride = p->head_k_dim - 1)
FIELD(state_slot_stride_short, p->state.slot_stride = p->state.slot_stride - 1)
FIELD(state_head_stride_short, p->state.head_stride = p->state.head_stride - 1)
FIELD(state_negative, p->state.head_stride = -64)
FIELD(state_large, p->state.slot_stride = INT64_MAX)
FIELD(final_state_inner, p->final_state.v_stride = 3)
FIELD(state_form, p->state_form = (gdn_state_form)2)
FIELD(slots_dtype, (p->state_form = GDN_STATE_POOL, p->slots_dtype = GDN_DTYPE_F32))
FIELD(cu_dtype, p->cu_seqlens_dtype = GDN_DTYPE_U8)
FIELD(checkpoint_form, p->checkpoint_form = (gdn_checkpoint_form)3)
FIELD(checkpoint_interval,
      (p->checkpoint_form = GDN_CHECKPOINT_EVERY, p->max_checkpoints = 1, p->checkpoint_interval = 0))
FIELD(checkpoint_dtype,
      (p->checkpoint_form = GDN_CHECKPOINT_AT, p->max_checkpoints = 1, p->checkpoint_index_dtype = GDN_DTYPE_U8))
FIELD(max_checkpoints, (p->checkpoint_form = GDN_CHECKPOINT_EVERY, p->checkpoint_interval = 1, p->max_checkpoints = 0))
FIELD(checkpoint_layout, (p->checkpoint_form = GDN_CHECKPOINT_EVERY, p->checkpoint_interval = 1, p->max_checkpoints = 4,
                          p->checkpoints.slot_stride = 5))
FIELD(max_seqs, p->max_seqs = 0)
FIELD(max_seqs_large, p->max_seqs = INT64_MAX)
FIELD(max_tokens, p->max_tokens = 0)
FIELD(max_tokens_negative, p->max_tokens = -5)
FIELD(max_tokens_large, p->max_tokens = INT64_MAX)
FIELD(max_seqlen, p->max_seqlen = -1)
FIELD(max_seqlen_large, p->max_seqlen = 71)
FIELD(tokens_per_row_none, (p->operation = GDN_OPERATION_DECODE, p->tokens_per_row = 0))
FIELD(tokens_per_row_many, (p->operation = GDN_OPERATION_DECODE, p->tokens_per_row = 17))
FIELD(decode_with_checkpoints, (p->operation = GDN_OPERATION_DECODE, p->checkpoint_form = GDN_CHECKPOINT_EVERY,
                                p->checkpoint_interval = 1, p->max_checkpoints = 1))

static const bad_field bad_fields[] = {
    {set_operation, "operation", "7"},
    {set_operation_negative, "operation", "-1"},
    {set_k_heads_none, "num_k_heads", "0"},
    {set_k_heads_negative, "num_k_heads", "-3"},
    {set_v_heads_none, "num_v_heads", "0"},
    {set_v_heads_fewer, "num_v_heads", "1"},
    {set_v_heads_no_multiple, "num_v_heads", "5"},
    {set_k_dim_none, "head_k_dim", "0"},
    {set_k_dim_large, "head_k_dim", "1025"},
    {set_v_dim_negative, "head_v_dim", "-1"},
    {set_v_dim_large, "head_v_dim", "1025"},
    {set_head_map, "head_map", "2"},
    {set_scale_nan, "scale", "nan"},
    {set_scale_infinite, "scale", "inf"},
    {set_gate_form, "gate_form", "3"},
    {set_beta_form, "beta_form", "-2"},
    {set_beta_scale, "beta_scale", "3"},
    {set_beta_scale_nan, "beta_scale", "nan"},
    {set_beta_scale_with_value, "beta_scale", "2"},
    {set_qk_norm, "qk_norm", "3"},
    {set_eps_negative, "qk_norm_eps", "-1"},
    {set_eps_infinite, "qk_norm_eps", "inf"},
    {set_numerics, "numerics", "9"},
    {set_chunk_size, "chunk_size", "-1"},
    {set_num_segments, "num_segments", "-2"},
    {set_check, "check", "2"},
    {set_q_dtype, "q.dtype", "i32"},
    {set_q_dtype_unknown, "q.dtype", "99"},
    {set_k_dtype, "k.dtype", "bf16"},
    {set_v_dtype, "v.dtype", "bf16"},
    {set_o_dtype, "o.dtype", "f16"},
    {set_gate_dtype, "gate.dtype", "f16"},
    {set_beta_dtype, "beta.dtype", "bf16"},
    {set_q_alignment_none, "q.alignment", "0"},
    {set_k_alignment_odd, "k.alignment", "3"},
    {set_v_alignment_below_element, "v.alignment", "2"},
    {set_o_alignment_large, "o.alignment", "1048576"},
    {set_state_alignment, "state.alignment", "6"},
    {set_q_stride, "q", "-1"},
    {set_k_head_stride, "k", "-32"},
    {set_v_row_stride, "v", "-5"},
    {set_gate_stride_large, "gate", "9223372036854775807"},
    {set_v_stride_large, "v", "4611686018427387903"},
    {set_o_token_stride, "o", "token 0"},
    {set_o_head_stride, "o", "head 1"},
    {set_o_overlapping, "o", "17"},
    {set_state_dtype, "state.dtype", "i64"},
    {set_state_inner, "state", "k_stride 2"},
    {set_state_both_unit, "state", "v_stride 1"},
    {set_state_v_stride_short, "state", "v_stride 31"},
    {set_state_slot_stride_short, "state", "4095"},
    {set_state_head_stride_short, "state", "1023"},
    {set_state_negative, "state", "-64"},
    {set_state_large, "state", "9223372036854775807"},
    {set_final_state_inner, "final_state", "v_stride 3"},
    {set_state_form, "state_form", "2"},
    {set_slots_dtype, "slots_dtype", "f32"},
    {set_cu_dtype, "cu_seqlens_dtype", "u8"},
    {set_checkpoint_form, "checkpoint_form", "3"},
    {set_checkpoint_interval, "checkpoint_interval", "0"},
    {set_checkpoint_dtype, "checkpoint_index_dtype", "u8"},
    {set_max_checkpoints, "max_checkpoints", "0"},
    {set_checkpoint_layout, "checkpoints", "5"},
    {set_max_seqs, "max_seqs", "0"},
    {set_max_seqs_large, "max_seqs", "9223372036854775807"},
    {set_max_tokens, "max_tokens", "0"},
    {set_max_tokens_negative, "max_tokens", "-5"},
    {set_max_tokens_large, "max_tokens", "9223372036854775807"},
    {set_max_seqlen, "max_seqlen", "-1"},
    {set_max_seqlen_large, "max_seqlen", "71"},
    {set_tokens_per_row_none, "tokens_per_row", "0"},
    {set_tokens_per_row_many, "tokens_per_row", "17"},
    {set_decode_with_checkpoints, "checkpoint_form", "1"},
};

static gdn_problem good_problem(void)
{
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 2, 4, 32, 32));
    p.max_tokens = 70;
    return p;
}

static void each_bad_field_is_refused_by_name_and_value(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(bad_fields); i++) {
        gdn_problem p = good_problem();
        bad_fields[i].set(&p);
        gdn_plan *plan = (gdn_plan *)&p; /* anything but NULL */
        const gdn_status status = gdn_plan_create(&plan, test_context(), &p);
        const char *const message = gdn_last_error();
        const size_t length = strlen(bad_fields[i].name);
        if (status != GDN_ERROR_INVALID_ARGUMENT || plan != NULL || strncmp(message, bad_fields[i].name, length) != 0 ||
            strstr(message + length, bad_fields[i].value) == NULL || strchr(message, '\n') != NULL) {
            fprintf(stderr, "bad %s (%s): %s: \"%s\"\n", bad_fields[i].name, bad_fields[i].value,
                    gdn_status_string(status), status != GDN_OK ? message : "");
            complaints++;
        }
        if (status == GDN_OK) {
            gdn_plan_destroy(&plan);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void the_good_problem_is_good(void **unused)
{
    (void)unused;
    const gdn_problem p = good_problem();
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, test_context(), &p));
    gdn_plan_destroy(&plan);
    assert_null(plan);
    gdn_plan_destroy(&plan);
    gdn_plan_destroy(NULL);
}

static void a_workspace_cap_too_small_says_the_least(void **unused)
{
    (void)unused;
    gdn_problem p = good_problem();
    p.max_workspace = 1;
    gdn_plan *plan = NULL;
    assert_int_equal(gdn_plan_create(&plan, test_context(), &p), GDN_ERROR_UNSUPPORTED);
    assert_null(plan);
    static const char words[] = "max_workspace: 1, must be 0 (no cap) or at least ";
    const char *const said = strstr(gdn_last_error(), words);
    assert_non_null(said);
    p.max_workspace = strtoull(said + strlen(words), NULL, 10);
    REQUIRE_OK(gdn_plan_create(&plan, test_context(), &p));
    assert_true(gdn_plan_workspace_size(plan) <= p.max_workspace);
    gdn_plan_destroy(&plan);
    p.max_workspace--;
    assert_int_equal(gdn_plan_create(&plan, test_context(), &p), GDN_ERROR_UNSUPPORTED);
    assert_null(plan);
}

/* What a plan asks for without a cap is enough as one: of the smallest problems, too, where padding is most of it. */
static void a_plan_fits_the_workspace_that_it_asks_for(void **unused)
{
    (void)unused;
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    const int64_t tokens[] = {1, 70, 5000};
    for (size_t i = 0; i < COUNT_OF(types) * COUNT_OF(tokens); i++) {
        gdn_problem p;
        gdn_plan *plan = NULL;
        REQUIRE_OK(gdn_problem_init(&p, 1, 3, 128, 128));
        p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = types[i % COUNT_OF(types)];
        p.max_tokens = tokens[i / COUNT_OF(types)];
        p.qk_norm = GDN_QK_NORM_RSQRT;
        REQUIRE_OK(gdn_plan_create(&plan, test_context(), &p));
        p.max_workspace = gdn_plan_workspace_size(plan);
        gdn_plan_destroy(&plan);
        REQUIRE_OK(gdn_plan_create(&plan, test_context(), &p));
        assert_true(gdn_plan_workspace_size(plan) <= p.max_workspace);
        gdn_plan_destroy(&plan);
    }
}

static void null_handles_are_refused_by_name(void **unused)
{
    (void)unused;
    gdn_problem p = good_problem();
    gdn_plan *plan = NULL;
    size_t needed = 0;
#define REFUSED(call, name)                                 \
    do {                                                    \
        assert_int_equal(call, GDN_ERROR_INVALID_ARGUMENT); \
        assert_non_null(strstr(gdn_last_error(), name));    \
    } while (0)
    REFUSED(gdn_plan_create(NULL, test_context(), &p), "plan");
    REFUSED(gdn_plan_create(&plan, NULL, &p), "context");
    REFUSED(gdn_plan_create(&plan, test_context(), NULL), "problem");
    REFUSED(gdn_plan_describe(NULL, NULL, 0, &needed), "plan");
    REFUSED(gdn_plan_check(NULL, NULL, NULL), "plan");
    REFUSED(gdn_problem_init(NULL, 1, 1, 1, 1), "problem");
    REFUSED(gdn_prefill_args_init(NULL), "args");
    REFUSED(gdn_decode_args_init(NULL), "args");
    REFUSED(gdn_context_options_init(NULL), "options");
    REFUSED(gdn_context_create(NULL, NULL), "context");
    REFUSED(gdn_backend_info(0, NULL), "report");
    REFUSED(gdn_prefill(NULL, NULL), "plan");
    REFUSED(gdn_decode(NULL, NULL), "plan");
    void *memory = NULL;
    REFUSED(gdn_memory_alloc(NULL, &memory, 8), "context");
    REFUSED(gdn_memory_alloc(test_context(), NULL, 8), "ptr");
    REFUSED(gdn_memory_free(NULL, &memory), "context");
    REFUSED(gdn_memory_copy(NULL, &p, &p, 0, GDN_COPY_TO_BACKEND, NULL), "context");
    REFUSED(gdn_memory_copy(test_context(), NULL, &p, 8, GDN_COPY_TO_BACKEND, NULL), "dst");
    REFUSED(gdn_memory_copy(test_context(), &p, NULL, 8, GDN_COPY_TO_BACKEND, NULL), "src");
    REFUSED(gdn_memory_copy(test_context(), &p, &p, 8, (gdn_copy_direction)5, NULL), "direction");
    REFUSED(gdn_memory_fill(test_context(), NULL, 0, 8, NULL), "dst");
    REFUSED(gdn_synchronize(NULL, NULL), "context");
#undef REFUSED
    assert_int_equal(gdn_plan_workspace_size(NULL), 0);
    gdn_context_destroy(NULL);
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
    assert_string_equal(gdn_context_backend(NULL), "");
}

static void *alloc_alone(void *user, size_t size, size_t alignment)
{
    (void)user;
    (void)size;
    (void)alignment;
    return NULL;
}

static void bad_context_options_are_refused_by_name_and_value(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *value;
    } expected[] = {{"backend", "abacus"},   {"device", "-1"}, {"device", "1000"},  {"num_threads", "-1"},
                    {"num_threads", "1025"}, {"blas", "2"},    {"cpu_isa", "sse9"}, {"allocator", "free"}};
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        gdn_context_options options;
        REQUIRE_OK(gdn_context_options_init(&options));
        options.backend = "cpu";
        switch (i) {
        case 0:
            options.backend = "abacus";
            break;
        case 1:
            options.device = -1;
            break;
        case 2:
            options.device = 1000;
            break;
        case 3:
            options.num_threads = -1;
            break;
        case 4:
            options.num_threads = 1025;
            break;
        case 5:
            options.blas = (gdn_blas)2;
            break;
        case 6:
            options.cpu_isa = "sse9";
            break;
        default:
            options.allocator.alloc = alloc_alone;
            break;
        }
        gdn_context *context = (gdn_context *)&options;
        const gdn_status status = gdn_context_create(&context, &options);
        if (status == GDN_OK || context != NULL || strstr(gdn_last_error(), expected[i].name) == NULL ||
            strstr(gdn_last_error(), expected[i].value) == NULL) {
            fail_msg("bad %s: %s: \"%s\"", expected[i].name, gdn_status_string(status), gdn_last_error());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_problem_is_good),
        cmocka_unit_test(each_bad_field_is_refused_by_name_and_value),
        cmocka_unit_test(a_workspace_cap_too_small_says_the_least),
        cmocka_unit_test(a_plan_fits_the_workspace_that_it_asks_for),
        cmocka_unit_test(null_handles_are_refused_by_name),
        cmocka_unit_test(bad_context_options_are_refused_by_name_and_value),
    };
    return RUN_SUITE("bad problems and options", tests);
}
