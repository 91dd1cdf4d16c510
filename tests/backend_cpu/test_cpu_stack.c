/* The stack that a call takes, which gdn.h promises to small machines: on a thread whose stack was painted before. */
#include "suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PROMISED = 32 * 1024, ROOM = 1 << 20, PAINT = 0xa5 };

typedef struct job {
    const gdn_context_options *options; /* of the context to make, or NULL */
    gdn_context *context;
    staged_case *stage; /* whose plan to make anew, describe and run */
    gdn_status status;
    unsigned char *begin; /* of the job's part of the stack */
} job;

static void work(job *self)
{
    if (self->options != NULL) {
        self->status = gdn_context_create(&self->context, self->options);
        return;
    }
    char text[64];
    gdn_plan *plan = NULL;
    self->status = gdn_plan_create(&plan, self->context, &self->stage->c->problem);
    if (self->status == GDN_OK) {
        self->status = gdn_plan_describe(plan, text, sizeof(text), NULL);
        gdn_plan_destroy(&plan);
    }
    if (self->status == GDN_OK) {
        self->status = stage_run(self->stage);
    }
}

static void *begin_work(void *user)
{
    job *const self = user;
    unsigned char here = 0;
    self->begin = &here;
    work(self);
    return NULL;
}

/* Bytes of stack that the job takes. */
static size_t stack_of(job *self)
{
    unsigned char *const stack = aligned_alloc(4096, ROOM);
    REQUIRE(stack != NULL);
    memset(stack, PAINT, ROOM);
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack, ROOM) == 0);
    REQUIRE(pthread_create(&thread, &attributes, begin_work, self) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
    size_t left = 0;
    while (left < ROOM && stack[left] == PAINT) {
        left++;
    }
    const size_t used = (size_t)(self->begin - stack) - left;
    free(stack);
    return used;
}

static int judge(const char *what, const char *how, size_t used)
{
    printf("%6zu bytes of stack: %s, %s\n", used, what, how);
    return used > PROMISED;
}

static int check_calls(gdn_context *context, const char *how)
{
    case_spec specs[8];
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        const bool decode = i % 2 != 0;
        specs[i] = (case_spec){.label = decode ? "decode" : "prefill",
                               .seed = 1700 + i,
                               .operation = decode ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL,
                               .num_k_heads = 1,
                               .num_v_heads = 2,
                               .head_k_dim = i < 6 ? 64 : 1024,
                               .head_v_dim = i < 6 ? 128 : 48,
                               .dtype = i % 4 < 2 ? GDN_DTYPE_F32 : GDN_DTYPE_BF16,
                               .states = i % 4 < 2 ? STATES_VK : STATES_KV,
                               .gate_form = GDN_GATE_RAW,
                               .beta_form = GDN_BETA_LOGIT,
                               .qk_norm = GDN_QK_NORM_RSQRT,
                               .length = 70,
                               .num_seqs = decode ? 2 : 1,
                               .tokens_per_row = i < 4 ? 1 : GDN_MAX_DECODE_TOKENS};
    }
    specs[4].numerics = GDN_NUMERICS_BF16;
    specs[4].label = "prefill with bfloat16 products";
    specs[6].checkpoint_form = GDN_CHECKPOINT_EVERY;
    specs[6].checkpoint_interval = 20;
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        test_case c;
        case_build(&c, &specs[i]);
        staged_case stage;
        const gdn_status status = stage_open(&stage, context, &c);
        if (status == GDN_OK) {
            job call = {.context = context, .stage = &stage};
            complaints += judge(specs[i].label, how, stack_of(&call));
            REQUIRE_OK(call.status);
            complaints += stage_collect(&stage);
            stage_close(&stage);
        } else {
            assert_int_equal(status, GDN_ERROR_UNSUPPORTED);
            assert_int_equal(specs[i].numerics, GDN_NUMERICS_BF16);
        }
        case_free(&c);
    }
    return complaints;
}

static void every_call_keeps_within_what_is_promised(void **unused)
{
    (void)unused;
    if (test_is_small()) {
        skip(); /* valgrind lets no one read below a stack's end */
    }
    static const struct {
        const char *isa, *implementations;
    } ways[] = {{"scalar", NULL}, {"avx2", NULL}, {"avx512", NULL}, {"neon", NULL}, {NULL, "generic,cpu.plain_decode"}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        gdn_context_options options;
        REQUIRE_OK(gdn_context_options_init(&options));
        options.backend = "cpu";
        options.ignore_environment = 1;
        options.num_threads = 1;
        options.blas = GDN_BLAS_OFF; /* what OpenBLAS takes is its own */
        options.cpu_isa = ways[i].isa;
        options.implementations = ways[i].implementations;
        const char *const how = ways[i].isa != NULL ? ways[i].isa : ways[i].implementations;
        job creation = {.options = &options};
        complaints += judge("a context", how, stack_of(&creation));
        REQUIRE_OK(creation.status);
        complaints += check_calls(creation.context, how);
        gdn_context_destroy(&creation.context);
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_keeps_within_what_is_promised)};
    return RUN_SUITE("cpu_stack", tests);
}
