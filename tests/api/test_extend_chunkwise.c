/* gdn_extend_chunkwise: the chunkwise extend call with raw gates, a pooled float32 state updated in place, and q and k
 * normalised by x / (norm + 1e-6). The reference is the general recurrence with those options. */
#include "suite.h"

#include "formats.h"

#include <string.h>

static case_spec equivalent(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 101,
                       .num_k_heads = 2,
                       .num_v_heads = 4,
                       .head_k_dim = 32,
                       .head_v_dim = 48,
                       .dtype = GDN_DTYPE_BF16,
                       .gate_dtype = GDN_DTYPE_BF16,
                       .beta_dtype = GDN_DTYPE_BF16,
                       .gate_form = GDN_GATE_RAW,
                       .beta_form = GDN_BETA_LOGIT,
                       .qk_norm = GDN_QK_NORM_EPS_OUTSIDE,
                       .state_form = GDN_STATE_POOL,
                       .in_place = true,
                       .state_size = 1};
}

/* The call's twelve tensors over a staged case. */
typedef struct extend_tensors {
    gdn_tensor q, k, v, o, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens;
} extend_tensors;

static void *memory_of(const staged_case *stage, case_operand operand)
{
    const case_view view = stage->c->view[operand];
    return view.buffer < 0 ? NULL : stage->base[view.buffer] + view.offset;
}

static gdn_tensor rows(const staged_case *stage, case_operand operand, const gdn_layout *layout, int64_t heads,
                       int64_t dim)
{
    return (gdn_tensor){.data = memory_of(stage, operand),
                        .dtype = layout->dtype,
                        .rank = dim > 0 ? 3 : 2,
                        .size = {stage->c->total_tokens, heads, dim},
                        .stride = {layout->token_stride, layout->head_stride, 1}};
}

static gdn_tensor vector(const staged_case *stage, case_operand operand, gdn_dtype dtype, int64_t count)
{
    return gdn_tensor_dense(memory_of(stage, operand), dtype, 1, &count);
}

static extend_tensors tensors_of(const staged_case *stage)
{
    const test_case *const c = stage->c;
    const gdn_problem *const p = &c->problem;
    extend_tensors t;
    t.q = rows(stage, CASE_Q, &p->q, p->num_k_heads, p->head_k_dim);
    t.k = rows(stage, CASE_K, &p->k, p->num_k_heads, p->head_k_dim);
    t.v = rows(stage, CASE_V, &p->v, p->num_v_heads, p->head_v_dim);
    t.o = rows(stage, CASE_O, &p->o, p->num_v_heads, p->head_v_dim);
    t.a = rows(stage, CASE_GATE, &p->gate, p->num_v_heads, 0);
    t.b = rows(stage, CASE_BETA, &p->beta, p->num_v_heads, 0);
    t.A_log = vector(stage, CASE_A_LOG, GDN_DTYPE_F32, p->num_v_heads);
    t.dt_bias = vector(stage, CASE_DT_BIAS, GDN_DTYPE_F32, p->num_v_heads);
    t.cache_indices = vector(stage, CASE_READ_SLOTS, GDN_DTYPE_I64, c->spec.num_seqs);
    t.cu_seqlens = vector(stage, CASE_CU_SEQLENS, GDN_DTYPE_I64, c->spec.num_seqs + 1);
    t.state_pool = (gdn_tensor){.data = memory_of(stage, CASE_STATE),
                                .dtype = GDN_DTYPE_F32,
                                .rank = 4,
                                .size = {c->spec.num_slots, p->num_v_heads, p->head_v_dim, p->head_k_dim},
                                .stride = {p->state.slot_stride, p->state.head_stride, p->state.v_stride, 1}};
    return t;
}

static gdn_status workspace_of(const extend_tensors *t, int32_t chunk_size, size_t *bytes)
{
    return gdn_extend_chunkwise_workspace(test_context(), &t->q, &t->k, &t->v, &t->a, &t->b, &t->state_pool,
                                          &t->cache_indices, chunk_size, bytes);
}

static gdn_status extend(const extend_tensors *t, int32_t chunk_size, void *workspace, size_t bytes)
{
    return gdn_extend_chunkwise(test_context(), &t->q, &t->k, &t->v, &t->a, &t->b, &t->A_log, &t->dt_bias,
                                &t->state_pool, &t->cache_indices, &t->cu_seqlens, chunk_size, &t->o, workspace, bytes,
                                NULL);
}

/* Opens the case and puts its inputs into backend memory. */
static void open_filled(staged_case *stage, test_case *c)
{
    REQUIRE_OK(stage_open(stage, test_context(), c));
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            REQUIRE_OK(gdn_memory_copy(test_context(), stage->base[i], c->buffer[i].before, c->buffer[i].bytes,
                                       GDN_COPY_TO_BACKEND, NULL));
        }
    }
}

/* A workspace of exactly `bytes`, on its boundary, full of NaN. */
static void *open_workspace(void **allocation, size_t bytes)
{
    REQUIRE_OK(gdn_memory_alloc(test_context(), allocation, bytes + 2 * GDN_WORKSPACE_ALIGNMENT));
    const uintptr_t at = ((uintptr_t)*allocation + GDN_WORKSPACE_ALIGNMENT - 1) / GDN_WORKSPACE_ALIGNMENT;
    void *const workspace = (void *)(at * GDN_WORKSPACE_ALIGNMENT);
    REQUIRE_OK(gdn_memory_fill(test_context(), workspace, 0xFF, bytes, NULL));
    return workspace;
}

static int check_extend(const case_spec *spec, int32_t chunk_size)
{
    test_case c;
    case_build(&c, spec);
    staged_case stage;
    open_filled(&stage, &c);
    const extend_tensors t = tensors_of(&stage);
    size_t bytes = 0;
    void *allocation = NULL;
    int complaints = 0;
    gdn_status status = workspace_of(&t, chunk_size, &bytes);
    void *const workspace = open_workspace(&allocation, bytes);
    if (status == GDN_OK) {
        status = extend(&t, chunk_size, workspace, bytes);
    }
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s: %s\n", spec->label, gdn_status_string(status), gdn_last_error());
        complaints++;
    } else {
        REQUIRE_OK(gdn_synchronize(test_context(), NULL));
        complaints += stage_collect(&stage);
        reference_result ref = reference_of(&c);
        complaints += judge_case(&c, &ref);
        reference_free(&ref);
    }
    REQUIRE_OK(gdn_memory_free(test_context(), &allocation));
    stage_close(&stage);
    case_free(&c);
    return complaints;
}

static void dtypes_and_strides(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    static const operand_style styles[] = {OPERANDS_DENSE, OPERANDS_PACKED, OPERANDS_PADDED_ROWS, OPERANDS_SHIFTED};
    int complaints = 0;
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        for (size_t s = 0; s < COUNT_OF(styles); s++) {
            for (int wide_gates = 0; wide_gates < 2; wide_gates++) {
                char label[96];
                snprintf(label, sizeof(label), "extend: io %s, style %d, gates %s", gdn_dtype_name(dtypes[io]),
                         (int)styles[s], wide_gates ? "f32" : "as io");
                case_spec spec = equivalent(label);
                spec.dtype = dtypes[io];
                spec.gate_dtype = spec.beta_dtype = wide_gates ? GDN_DTYPE_F32 : dtypes[io];
                spec.operands = styles[s];
                spec.states = s % 2 == 0 ? STATES_VK : STATES_PADDED;
                spec.lengths = LENGTHS(70, 1, 0, 130);
                spec.num_seqs = 4;
                complaints += check_extend(&spec, 64);
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

static void any_chunk_size_is_a_hint(void **unused)
{
    (void)unused;
    static const int32_t hints[] = {1, 7, 32, 64, 100, 128, 100000};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(hints); i++) {
        char label[96];
        snprintf(label, sizeof(label), "extend: chunk size %d", hints[i]);
        case_spec spec = equivalent(label);
        spec.lengths = LENGTHS(150, 20);
        spec.num_seqs = 2;
        complaints += check_extend(&spec, hints[i]);
    }
    NO_COMPLAINTS(complaints);
}

static void negative_indices_skip_their_sequence(void **unused)
{
    (void)unused;
    case_spec spec = equivalent("extend: padded rows");
    spec.lengths = LENGTHS(20, 33, 70, 5);
    spec.num_seqs = 4;
    spec.num_slots = 5;
    spec.read_slots = SLOTS(4, -1, 0, -7);
    NO_COMPLAINTS(check_extend(&spec, 64));
}

static void large_head_dims(void **unused)
{
    (void)unused;
    case_spec spec = equivalent("extend: 128 x 128");
    spec.head_k_dim = spec.head_v_dim = 128;
    spec.num_k_heads = 1;
    spec.num_v_heads = 2;
    spec.lengths = LENGTHS(70, 3);
    spec.num_seqs = 2;
    NO_COMPLAINTS(check_extend(&spec, 64));
}

/* With eps inside the root a key of norm 1e-6 would come out 0.7 long; outside it is 0.5. */
static void eps_is_outside_the_root(void **unused)
{
    (void)unused;
    case_spec spec = equivalent("extend: tiny keys");
    spec.dtype = spec.gate_dtype = spec.beta_dtype = GDN_DTYPE_F32;
    spec.length = 3;
    test_case c;
    case_build(&c, &spec);
    for (int64_t t = 0; t < 3; t++) {
        for (int32_t head = 0; head < 2; head++) {
            for (int32_t d = 0; d < 32; d++) {
                case_put(&c, CASE_K, t, head, d, d == t ? 1e-6 : 0.0);
                case_put(&c, CASE_Q, t, head, d, d == t ? 1e-6 : 0.0);
            }
        }
    }
    for (int64_t i = 0; i < (int64_t)(c.buffer[CASE_STATE].bytes / 4); i++) {
        format_encode(GDN_DTYPE_F32, c.buffer[CASE_STATE].before, i, 0.0);
    }
    staged_case stage;
    open_filled(&stage, &c);
    const extend_tensors t = tensors_of(&stage);
    size_t bytes = 0;
    void *allocation = NULL;
    REQUIRE_OK(workspace_of(&t, 64, &bytes));
    void *const workspace = open_workspace(&allocation, bytes);
    REQUIRE_OK(extend(&t, 64, workspace, bytes));
    REQUIRE_OK(gdn_synchronize(test_context(), NULL));
    assert_int_equal(stage_collect(&stage), 0);
    /* o_0 = scale * |q| * |k| * beta * v_0, both lengths 0.5. */
    const double beta = reference_beta(case_get(&c, CASE_BETA, 0, 1, 0), 1);
    const double want = 0.25 / 5.656854249492381 * beta * case_get(&c, CASE_V, 0, 1, 7);
    assert_true(case_output(&c, 0, 1, 7) / want > 0.999999 && case_output(&c, 0, 1, 7) / want < 1.000001);
    REQUIRE_OK(gdn_memory_free(test_context(), &allocation));
    stage_close(&stage);
    case_free(&c);
}

static void wrong_tensors_are_refused_by_name(void **unused)
{
    (void)unused;
    case_spec spec = equivalent("extend: spoiled");
    spec.lengths = LENGTHS(20, 10);
    spec.num_seqs = 2;
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    open_filled(&stage, &c);
    const extend_tensors good = tensors_of(&stage);
    size_t bytes = 0;
    void *allocation = NULL;
    REQUIRE_OK(workspace_of(&good, 64, &bytes));
    void *const workspace = open_workspace(&allocation, bytes);
    int complaints = 0;

#define REFUSED(statement, name, value)                                                                   \
    do {                                                                                                  \
        extend_tensors t = good;                                                                          \
        statement;                                                                                        \
        const gdn_status status = extend(&t, 64, workspace, bytes);                                       \
        if (status != GDN_ERROR_INVALID_ARGUMENT || strstr(gdn_last_error(), name) == NULL ||             \
            strstr(gdn_last_error(), value) == NULL) {                                                    \
            fprintf(stderr, "%s: %s: \"%s\"\n", #statement, gdn_status_string(status), gdn_last_error()); \
            complaints++;                                                                                 \
        }                                                                                                 \
    } while (0)
    REFUSED(t.q.rank = 2, "q", "2");
    REFUSED(t.q.dtype = GDN_DTYPE_I32, "q", "i32");
    REFUSED(t.q.stride[2] = 2, "q", "2");
    REFUSED(t.q.size[0] = -1, "q", "-1");
    REFUSED(t.q.data = NULL, "q", "NULL");
    REFUSED(t.k.size[1] = 3, "k", "3");
    REFUSED(t.k.size[2] = 31, "k", "31");
    REFUSED(t.k.dtype = GDN_DTYPE_F32, "k", "f32");
    REFUSED(t.v.size[0] = 29, "v", "29");
    REFUSED(t.v.size[1] = 5, "a.size[1]", "5");
    REFUSED(t.v.dtype = GDN_DTYPE_F16, "v", "f16");
    REFUSED(t.a.size[1] = 2, "a", "2");
    REFUSED(t.a.dtype = GDN_DTYPE_F16, "a", "f16");
    REFUSED(t.b.size[0] = 31, "b", "31");
    REFUSED(t.b.data = NULL, "b", "NULL");
    REFUSED(t.A_log.size[0] = 3, "A_log", "3");
    REFUSED(t.A_log.dtype = GDN_DTYPE_BF16, "A_log", "bf16");
    REFUSED(t.dt_bias.size[0] = 5, "dt_bias", "5");
    REFUSED(t.state_pool.rank = 3, "state_pool", "3");
    REFUSED(t.state_pool.dtype = GDN_DTYPE_BF16, "state_pool", "bf16");
    REFUSED(t.state_pool.size[2] = 32, "state_pool", "32");
    REFUSED(t.state_pool.stride[0] = 5, "state_pool", "5");
    REFUSED(t.cache_indices.dtype = GDN_DTYPE_I32, "cache_indices", "i32");
    REFUSED(t.cu_seqlens.size[0] = 2, "cu_seqlens", "2");
    REFUSED(t.cu_seqlens.dtype = GDN_DTYPE_I32, "cu_seqlens", "i32");
    REFUSED(t.o.dtype = GDN_DTYPE_F32, "o", "f32");
    REFUSED(t.o.size[0] = 31, "o", "31");
    REFUSED(t.o.data = t.v.data, "o", "overlaps v");
    REFUSED(t.o.data = t.state_pool.data, "o", "overlaps state_pool");
    /* Sizes that no call allows: the message says what one does. */
    REFUSED(t.q.size[2] = t.k.size[2] = t.state_pool.size[3] = 0, "q.size[2]: 0", "in 1..1024");
    REFUSED(t.v.size[2] = t.o.size[2] = t.state_pool.size[2] = 0, "v.size[2]: 0", "in 1..1024");
    REFUSED(t.q.size[1] = t.k.size[1] = 0, "q.size[1]: 0", "in 1..65536");
    REFUSED(t.q.size[1] = t.k.size[1] = 3, "v.size[1]: 4", "a multiple of q.size[1], 3");
#undef REFUSED
    assert_int_equal(extend(&good, 0, workspace, bytes), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "chunk_size: 0"));
    if (bytes > 0) {
        assert_int_equal(extend(&good, 64, workspace, bytes - 1), GDN_ERROR_WORKSPACE_TOO_SMALL);
    }
    assert_int_equal(gdn_extend_chunkwise(NULL, &good.q, &good.k, &good.v, &good.a, &good.b, &good.A_log, &good.dt_bias,
                                          &good.state_pool, &good.cache_indices, &good.cu_seqlens, 64, &good.o,
                                          workspace, bytes, NULL),
                     GDN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(gdn_extend_chunkwise(test_context(), NULL, &good.k, &good.v, &good.a, &good.b, &good.A_log,
                                          &good.dt_bias, &good.state_pool, &good.cache_indices, &good.cu_seqlens, 64,
                                          &good.o, workspace, bytes, NULL),
                     GDN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(workspace_of(&good, 64, NULL), GDN_ERROR_INVALID_ARGUMENT);
    complaints += stage_collect(&stage) + judge_nothing_written(&c);
    REQUIRE_OK(gdn_memory_free(test_context(), &allocation));
    stage_close(&stage);
    case_free(&c);
    NO_COMPLAINTS(complaints);
}

static void duplicate_indices_are_a_conflict(void **unused)
{
    (void)unused;
    case_spec spec = equivalent("extend: two sequences, one slot");
    spec.lengths = LENGTHS(20, 10);
    spec.num_seqs = 2;
    spec.read_slots = SLOTS(3, 3);
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    open_filled(&stage, &c);
    const extend_tensors t = tensors_of(&stage);
    size_t bytes = 0;
    void *allocation = NULL;
    REQUIRE_OK(workspace_of(&t, 64, &bytes));
    void *const workspace = open_workspace(&allocation, bytes);
    if (test_backend_is_host()) {
        assert_int_equal(extend(&t, 64, workspace, bytes), GDN_ERROR_SLOT_CONFLICT);
        assert_non_null(strstr(gdn_last_error(), "cache_indices: slot 3"));
        assert_int_equal(stage_collect(&stage) + judge_nothing_written(&c), 0);
    }
    REQUIRE_OK(gdn_memory_free(test_context(), &allocation));
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_and_strides),
        cmocka_unit_test(any_chunk_size_is_a_hint),
        cmocka_unit_test(negative_indices_skip_their_sequence),
        cmocka_unit_test(large_head_dims),
        cmocka_unit_test(eps_is_outside_the_root),
        cmocka_unit_test(wrong_tensors_are_refused_by_name),
        cmocka_unit_test(duplicate_indices_are_a_conflict),
    };
    return RUN_SUITE("extend chunkwise", tests);
}
