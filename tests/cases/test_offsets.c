/* Offsets past 2^31, on sparse mappings: only the touched pages are real. Host memory, so the CPU backend alone; the CUDA
 * tests have their own. */
#define _GNU_SOURCE
#include "suite.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A mapping of `bytes` that takes no memory until it is written; NULL where the system refuses so much. */
static void *sparse(size_t bytes)
{
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void skip_without_sparse_memory(void *memory)
{
    if (memory == NULL) {
        printf("skipped: no sparse mapping of this size here\n");
        skip();
    }
}

static void skip_where_it_cannot_run(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* shadow memory is not sparse */
#endif
    if (!test_backend_is_host() || test_is_small()) {
        skip();
    }
}

/* A run on the caller's own memory. */
static void run_args(const test_case *c, gdn_prefill_args *prefill, gdn_decode_args *decode)
{
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, test_context(), &c->problem));
    const size_t bytes = gdn_plan_workspace_size(plan);
    void *const workspace = aligned_alloc(GDN_WORKSPACE_ALIGNMENT, bytes + GDN_WORKSPACE_ALIGNMENT);
    assert_non_null(workspace);
    prefill->workspace = decode->workspace = workspace;
    prefill->workspace_size = decode->workspace_size = bytes;
    if (c->spec.operation == GDN_OPERATION_DECODE) {
        REQUIRE_OK(gdn_decode(plan, decode));
    } else {
        REQUIRE_OK(gdn_prefill(plan, prefill));
    }
    free(workspace);
    gdn_plan_destroy(&plan);
}

/* Entry 9: slot * Hv * V * K in int32 wraps at slot 4096 (2^31 elements); in bytes at 1024 and 2048. */
static void slot_offsets_do_not_wrap(void **unused)
{
    (void)unused;
    skip_where_it_cannot_run();
    static const int64_t pairs[][2] = {{0, 1}, {1024, 1025}, {2048, 2049}, {4096, 4097}};
    const int64_t slot = (int64_t)32 * 128 * 128;
    float *const pool = sparse((size_t)(4098 * slot) * sizeof(float));
    skip_without_sparse_memory(pool);
    float *const first = malloc(2 * (size_t)slot * sizeof(float));
    assert_non_null(first);
    for (int decode = 0; decode < 2; decode++) {
        unsigned char *outputs = NULL;
        for (size_t i = 0; i < COUNT_OF(pairs); i++) {
            const case_spec spec = {.label = "large slots",
                                    .seed = 1401,
                                    .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                                    .num_k_heads = 16,
                                    .num_v_heads = 32,
                                    .head_k_dim = 128,
                                    .lengths = LENGTHS(5, 3),
                                    .num_seqs = 2,
                                    .state_form = GDN_STATE_POOL,
                                    .in_place = true,
                                    .num_slots = 2,
                                    .read_slots = SLOTS(0, 1)};
            test_case c;
            case_build(&c, &spec);
            int64_t slots[2] = {pairs[i][0], pairs[i][1]};
            gdn_prefill_args prefill = case_prefill_args_before(&c);
            gdn_decode_args decode_args = case_decode_args_before(&c);
            const size_t bytes = (size_t)slot * sizeof(float);
            for (int n = 0; n < 2; n++) {
                memcpy(pool + slots[n] * slot, case_before(&c, CASE_STATE) + (size_t)n * bytes, bytes);
            }
            prefill.state = decode_args.state = pool;
            prefill.num_slots = decode_args.num_slots = 4098;
            prefill.read_slots = prefill.write_slots = decode_args.read_slots = decode_args.write_slots = slots;
            run_args(&c, &prefill, &decode_args);
            const size_t o_bytes = c.buffer[CASE_O].bytes;
            if (i == 0) {
                outputs = malloc(o_bytes);
                assert_non_null(outputs);
                memcpy(outputs, c.buffer[CASE_O].before, o_bytes);
                memcpy(first, pool, 2 * bytes);
            } else {
                assert_memory_equal(outputs, c.buffer[CASE_O].before, o_bytes);
                assert_memory_equal(first, pool + slots[0] * slot, bytes);
                assert_memory_equal(first + slot, pool + slots[1] * slot, bytes);
                assert_memory_equal(first, pool, 2 * bytes); /* the slots used before are unchanged */
            }
            case_free(&c);
        }
        free(outputs);
        madvise(pool, (size_t)(4098 * slot) * sizeof(float), MADV_DONTNEED);
    }
    free(first);
    munmap(pool, (size_t)(4098 * slot) * sizeof(float));
}

/* Entry 10: token offsets in int32. A token stride of 2^25 elements puts token 64 at 2^31. */
static void token_offsets_do_not_wrap(void **unused)
{
    (void)unused;
    skip_where_it_cannot_run();
    enum { TOKENS = 130 };
    const int64_t stride = (int64_t)1 << 25;
    const size_t bytes = (size_t)(TOKENS * stride) * sizeof(float);
    const case_spec spec = {.label = "dense", .seed = 1402, .num_k_heads = 1, .num_v_heads = 2, .length = TOKENS};
    test_case c;
    case_build(&c, &spec);
    gdn_prefill_args args = case_prefill_args_before(&c);
    gdn_decode_args none = {0};
    run_args(&c, &args, &none);

    const case_operand operands[] = {CASE_Q, CASE_K, CASE_V, CASE_O};
    gdn_layout *const layouts[] = {&c.problem.q, &c.problem.k, &c.problem.v, &c.problem.o};
    float *wide[4];
    for (int i = 0; i < 4; i++) {
        wide[i] = sparse(bytes);
        skip_without_sparse_memory(wide[i]);
        const int64_t row = layouts[i]->token_stride;
        for (int64_t t = 0; t < TOKENS; t++) {
            if (operands[i] != CASE_O) {
                memcpy(wide[i] + t * stride, (float *)case_before(&c, operands[i]) + t * row,
                       (size_t)row * sizeof(float));
            }
        }
    }
    const size_t state_bytes = c.buffer[CASE_FINAL_STATE].bytes;
    void *const state = malloc(state_bytes);
    assert_non_null(state);
    memcpy(state, case_before(&c, CASE_FINAL_STATE), state_bytes);
    memset(case_before(&c, CASE_FINAL_STATE), 0xFF, state_bytes);
    const int64_t o_row = c.problem.o.token_stride;
    for (int i = 0; i < 4; i++) {
        layouts[i]->token_stride = stride;
    }
    args.q = wide[0];
    args.k = wide[1];
    args.v = wide[2];
    args.o = wide[3];
    run_args(&c, &args, &none);
    for (int64_t t = 0; t < TOKENS; t++) {
        assert_memory_equal(wide[3] + t * stride, (float *)case_before(&c, CASE_O) + t * o_row,
                            (size_t)o_row * sizeof(float));
    }
    assert_memory_equal(state, case_before(&c, CASE_FINAL_STATE), state_bytes);
    free(state);
    for (int i = 0; i < 4; i++) {
        munmap(wide[i], bytes);
    }
    case_free(&c);
}

/* Rows of a decode call as far apart. */
static void row_offsets_do_not_wrap(void **unused)
{
    (void)unused;
    skip_where_it_cannot_run();
    enum { ROWS = 70 };
    const int64_t stride = (int64_t)1 << 25;
    const size_t bytes = (size_t)(ROWS * stride) * sizeof(float);
    const case_spec spec = {
        .label = "rows", .seed = 1403, .operation = GDN_OPERATION_DECODE, .num_k_heads = 2, .num_seqs = ROWS};
    test_case c;
    case_build(&c, &spec);
    gdn_prefill_args none = {0};
    gdn_decode_args args = case_decode_args_before(&c);
    run_args(&c, &none, &args);
    float *const wide = sparse(bytes);
    skip_without_sparse_memory(wide);
    c.problem.o.row_stride = stride;
    args.o = wide;
    run_args(&c, &none, &args);
    for (int64_t n = 0; n < ROWS; n++) {
        assert_memory_equal(wide + n * stride, (float *)case_before(&c, CASE_O) + n * 64, 64 * sizeof(float));
    }
    munmap(wide, bytes);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_offsets_do_not_wrap),
        cmocka_unit_test(token_offsets_do_not_wrap),
        cmocka_unit_test(row_offsets_do_not_wrap),
    };
    return RUN_SUITE("offsets", tests);
}
