/* Sizes past what 16, 31 and 32 bits count. */
#include "gpu_tools.h"

#include <stdlib.h>
#include <string.h>

static gdn_context *context;

static int set_up(void **state)
{
    (void)state;
    context = gpu_context(0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

/* 2050 sequences x 32 heads are 65600 blocks, more than a grid has in its second dimension. The same batch as two
 * halves has the same bits. */
static void more_than_65535_sequences_and_heads(void **state)
{
    (void)state;
    enum { SEQS = 2050, HALF = SEQS / 2, LENGTH = 16 };
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        /* The fused path takes dims from 64 on. */
        const case_spec spec = {.label = "65600 blocks",
                                .seed = 1,
                                .num_k_heads = 16,
                                .num_v_heads = 32,
                                .head_k_dim = types[i] == GDN_DTYPE_F32 ? 8 : 64,
                                .no_initial_state = true,
                                .no_final_state = types[i] != GDN_DTYPE_F32,
                                .dtype = types[i],
                                .length = LENGTH,
                                .num_seqs = SEQS};
        test_case c;
        case_build(&c, &spec);
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, context, &c));
        REQUIRE_OK(stage_run(&stage));
        REQUIRE(stage_collect(&stage) == 0);
        const case_buffer *const o = &c.buffer[c.view[CASE_O].buffer];
        const case_buffer none = {.bytes = 0};
        const int32_t final_buffer = c.view[CASE_FINAL_STATE].buffer;
        const case_buffer *const final = final_buffer >= 0 ? &c.buffer[final_buffer] : &none;
        unsigned char *const whole_o = malloc(o->bytes);
        unsigned char *const whole_final = malloc(final->bytes + 1);
        REQUIRE(whole_o != NULL && whole_final != NULL);
        memcpy(whole_o, o->after, o->bytes);
        if (final->bytes > 0) {
            memcpy(whole_final, final->after, final->bytes);
        }

        /* Halves: the second one's operands begin at its first token; its bounds are those of the first. */
        for (int32_t operand = 0; operand < CASE_NUM_OPERANDS; operand++) {
            if (stage.base[operand] != NULL && c.buffer[operand].written) {
                REQUIRE_OK(gdn_memory_fill(context, stage.base[operand], 0xFF, c.buffer[operand].bytes, NULL));
            }
        }
        const gdn_problem *const p = &c.problem;
        const int64_t tokens = (int64_t)HALF * LENGTH;
        const int64_t size = (int64_t)gdn_dtype_size(types[i]);
        gdn_prefill_args half = stage.prefill;
        half.num_seqs = HALF;
        half.total_tokens = tokens;
        REQUIRE_OK(gdn_prefill(stage.plan, &half));
        half.q = (const char *)half.q + tokens * p->q.token_stride * size;
        half.k = (const char *)half.k + tokens * p->k.token_stride * size;
        half.v = (const char *)half.v + tokens * p->v.token_stride * size;
        half.o = (char *)half.o + tokens * p->o.token_stride * size;
        half.gate = (const char *)half.gate + tokens * p->gate.token_stride * (int64_t)gdn_dtype_size(p->gate.dtype);
        half.beta = (const char *)half.beta + tokens * p->beta.token_stride * (int64_t)gdn_dtype_size(p->beta.dtype);
        if (half.final_state != NULL) {
            half.final_state = (char *)half.final_state + HALF * p->final_state.slot_stride * 4;
        }
        REQUIRE_OK(gdn_prefill(stage.plan, &half));
        REQUIRE_OK(gdn_plan_check(stage.plan, stage.workspace, NULL));
        REQUIRE(stage_collect(&stage) == 0);
        REQUIRE(memcmp(whole_o, o->after, o->bytes) == 0);
        REQUIRE(final->bytes == 0 || memcmp(whole_final, final->after, final->bytes) == 0);
        free(whole_o);
        free(whole_final);
        stage_close(&stage);
        case_free(&c);
    }
}

/* The same count of decode rows and heads, against the reference. */
static void more_than_65535_rows_and_heads(void **state)
{
    (void)state;
    const case_spec spec = {.label = "65600 decode blocks",
                            .seed = 3,
                            .operation = GDN_OPERATION_DECODE,
                            .num_k_heads = 16,
                            .num_v_heads = 32,
                            .head_k_dim = 16,
                            .num_seqs = 2050};
    NO_COMPLAINTS(check_case(&spec));
}

/* A pool of 4098 slots of 32 x 128 x 128 floats is 8.6 GB. The slots around 2^31 and 2^32 bytes, 2^31 and 2^32 elements
 * give what slots 0 and 1 give, and no other slot is touched. */
static void slots_past_2_to_the_31_elements(void **state)
{
    (void)state;
    enum { SLOTS_IN_POOL = 4098, HEADS = 32, DIM = 128 };
    const size_t slot_bytes = sizeof(float) * HEADS * DIM * DIM;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    REQUIRE_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (free_bytes < SLOTS_IN_POOL * slot_bytes + ((size_t)1 << 30)) {
        printf("skipped: the device has %zu bytes free, the pool is %zu\n", free_bytes, SLOTS_IN_POOL * slot_bytes);
        skip();
    }
    const case_spec spec = {.label = "far slots",
                            .seed = 2,
                            .num_k_heads = 16,
                            .num_v_heads = HEADS,
                            .head_k_dim = DIM,
                            .lengths = LENGTHS(70, 3),
                            .num_seqs = 2,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 2,
                            .in_place = true,
                            .read_slots = SLOTS(0, 1)};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    REQUIRE_OK(stage_run(&stage));
    REQUIRE(stage_collect(&stage) == 0);
    const case_buffer *const pool_buffer = &c.buffer[c.view[CASE_STATE].buffer];
    REQUIRE(pool_buffer->bytes == 2 * slot_bytes);

    void *pool = NULL;
    REQUIRE_OK(gdn_memory_alloc(context, &pool, SLOTS_IN_POOL * slot_bytes));
    unsigned char *const got = malloc(2 * slot_bytes);
    REQUIRE(got != NULL);
    const int64_t far_slots[] = {1024, 2048, 4096};
    for (size_t i = 0; i < COUNT_OF(far_slots); i++) {
        const int64_t slots[2] = {far_slots[i], far_slots[i] + 1};
        char *const at = (char *)pool + (size_t)far_slots[i] * slot_bytes;
        REQUIRE_OK(gdn_memory_fill(context, pool, 0x5A, SLOTS_IN_POOL * slot_bytes, NULL));
        REQUIRE_OK(gdn_memory_copy(context, at, pool_buffer->before, 2 * slot_bytes, GDN_COPY_TO_BACKEND, NULL));
        gdn_prefill_args args = stage.prefill;
        args.state = pool;
        args.num_slots = SLOTS_IN_POOL;
        REQUIRE_OK(gdn_memory_copy(context, (void *)(uintptr_t)args.read_slots, slots, sizeof(slots),
                                   GDN_COPY_TO_BACKEND, NULL));
        if (args.write_slots != args.read_slots) {
            REQUIRE_OK(gdn_memory_copy(context, (void *)(uintptr_t)args.write_slots, slots, sizeof(slots),
                                       GDN_COPY_TO_BACKEND, NULL));
        }
        REQUIRE_OK(gdn_prefill(stage.plan, &args));
        REQUIRE_OK(gdn_plan_check(stage.plan, stage.workspace, NULL));
        REQUIRE_OK(gdn_memory_copy(context, got, at, 2 * slot_bytes, GDN_COPY_FROM_BACKEND, NULL));
        REQUIRE_OK(gdn_synchronize(context, NULL));
        REQUIRE(memcmp(got, pool_buffer->after, 2 * slot_bytes) == 0);
        /* Where a 32-bit offset would have landed, and the neighbours. */
        const int64_t others[] = {0, 1, far_slots[i] - 1, far_slots[i] + 2 < SLOTS_IN_POOL ? far_slots[i] + 2 : 2};
        for (size_t j = 0; j < COUNT_OF(others); j++) {
            REQUIRE_OK(gdn_memory_copy(context, got, (char *)pool + (size_t)others[j] * slot_bytes, slot_bytes,
                                       GDN_COPY_FROM_BACKEND, NULL));
            REQUIRE_OK(gdn_synchronize(context, NULL));
            for (size_t b = 0; b < slot_bytes; b++) {
                if (got[b] != 0x5A) {
                    fail_msg("slot %lld was written", (long long)others[j]);
                }
            }
        }
    }
    free(got);
    REQUIRE_OK(gdn_memory_free(context, &pool));
    stage_close(&stage);
    case_free(&c);
}

int main(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_65535_sequences_and_heads),
        cmocka_unit_test(more_than_65535_rows_and_heads),
        cmocka_unit_test(slots_past_2_to_the_31_elements),
    };
    return cmocka_run_group_tests_name("cuda limits", tests, set_up, tear_down);
}
