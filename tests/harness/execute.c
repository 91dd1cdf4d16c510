#include "execute.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes) __asan_poison_memory_region(address, bytes)
#define UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define POISON(address, bytes) ((void)(address), (void)(bytes))
#define UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

/*  allocation   ... | guard | shift | the buffer | guard |
 *                           ^ a 256-byte boundary                                                    */
enum { GUARD_BYTES = 4096, INPUT_GUARD = 0xFF, OUTPUT_GUARD = 0xA5 };

static const char *const operand_names[CASE_NUM_OPERANDS] = {"q",
                                                             "k",
                                                             "v",
                                                             "o",
                                                             "gate",
                                                             "beta",
                                                             "A_log",
                                                             "dt_bias",
                                                             "cu_seqlens",
                                                             "state",
                                                             "final_state",
                                                             "read_slots",
                                                             "write_slots",
                                                             "token_slots",
                                                             "has_initial_state",
                                                             "num_tokens",
                                                             "checkpoints",
                                                             "checkpoint_positions",
                                                             "checkpoint_offsets"};

const char *test_backend(void)
{
    const char *const name = getenv("GDN_TEST_BACKEND");
    return name != NULL && name[0] != '\0' ? name : "cpu";
}

bool test_backend_is_host(void)
{
    return strcmp(test_backend(), "cpu") == 0;
}

static gdn_status create(gdn_context **context, int32_t num_threads)
{
    gdn_context_options options;
    const gdn_status status = gdn_context_options_init(&options);
    if (status != GDN_OK) {
        return status;
    }
    options.backend = test_backend();
    options.num_threads = num_threads;
    return gdn_context_create(context, &options);
}

static void destroy_shared(void);
static gdn_context *shared;

gdn_context *test_context(void)
{
    if (shared != NULL) {
        return shared;
    }
    const gdn_status status = create(&shared, 0);
    if (status == GDN_ERROR_BACKEND_UNAVAILABLE) {
        printf("skipped: %s\n", gdn_last_error());
        fflush(stdout);
        _Exit(TEST_SKIPPED);
    }
    if (status != GDN_OK) {
        fprintf(stderr, "no context on %s: %s\n", test_backend(), gdn_last_error());
        exit(1);
    }
    atexit(destroy_shared);
    return shared;
}

static void destroy_shared(void)
{
    gdn_context_destroy(&shared);
}

gdn_context *test_context_with_threads(int32_t num_threads)
{
    gdn_context *context = NULL;
    REQUIRE_OK(create(&context, num_threads));
    return context;
}

/* Backend memory for `bytes` at `shift` past a 256-byte boundary, guarded on both sides. */
static unsigned char *guarded_alloc(gdn_context *context, void **allocation, size_t bytes, size_t shift, int guard)
{
    const size_t whole = 256 + GUARD_BYTES + shift + bytes + GUARD_BYTES;
    REQUIRE_OK(gdn_memory_alloc(context, allocation, whole));
    REQUIRE_OK(gdn_memory_fill(context, *allocation, guard, whole, NULL));
    const uintptr_t first = (uintptr_t)*allocation + GUARD_BYTES;
    return (unsigned char *)((first + 255) / 256 * 256 + shift);
}

static int guard_of(const case_buffer *buffer)
{
    return buffer->written ? OUTPUT_GUARD : INPUT_GUARD;
}

static void hide_guards(const staged_case *stage, unsigned char *base, size_t bytes, bool hidden)
{
    if (strcmp(gdn_context_backend(stage->context), "cpu") != 0) {
        return;
    }
    if (hidden) {
        POISON(base - GUARD_BYTES, GUARD_BYTES);
        POISON(base + bytes, GUARD_BYTES);
    } else {
        UNPOISON(base - GUARD_BYTES, GUARD_BYTES);
        UNPOISON(base + bytes, GUARD_BYTES);
    }
}

static void hide_all_guards(const staged_case *stage, bool hidden)
{
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            hide_guards(stage, stage->base[i], stage->c->buffer[i].bytes, hidden);
        }
    }
    if (stage->workspace != NULL) {
        hide_guards(stage, stage->workspace, stage->workspace_size, hidden);
    }
}

gdn_status stage_open(staged_case *stage, gdn_context *context, test_case *c)
{
    *stage = (staged_case){.context = context, .c = c};
    const gdn_status status = gdn_plan_create(&stage->plan, context, &c->problem);
    if (status != GDN_OK) {
        return status;
    }
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        const case_buffer *const buffer = &c->buffer[i];
        if (buffer->bytes > 0) {
            stage->base[i] =
                guarded_alloc(context, &stage->allocation[i], buffer->bytes, buffer->shift, guard_of(buffer));
        }
    }
    stage->prefill = case_prefill_args(c, stage->base);
    stage->decode = case_decode_args(c, stage->base);
    const size_t bytes = gdn_plan_workspace_size(stage->plan);
    if (bytes > 0) {
        stage->workspace = guarded_alloc(context, &stage->workspace_allocation, bytes, 0, OUTPUT_GUARD);
        stage->workspace_size = bytes;
        stage->prefill.workspace = stage->decode.workspace = stage->workspace;
        stage->prefill.workspace_size = stage->decode.workspace_size = bytes;
    }
    return GDN_OK;
}

gdn_status stage_run_again(staged_case *stage)
{
    if (stage->workspace != NULL) {
        REQUIRE_OK(gdn_memory_fill(stage->context, stage->workspace, 0xFF, stage->workspace_size, NULL));
    }
    hide_all_guards(stage, true);
    gdn_status status = stage->c->spec.operation == GDN_OPERATION_DECODE ? gdn_decode(stage->plan, &stage->decode)
                                                                         : gdn_prefill(stage->plan, &stage->prefill);
    if (status == GDN_OK) {
        status = gdn_synchronize(stage->context, NULL);
    }
    if (status == GDN_OK) {
        status = gdn_plan_check(stage->plan, stage->workspace, NULL);
    }
    hide_all_guards(stage, false);
    return status;
}

gdn_status stage_run(staged_case *stage)
{
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            REQUIRE_OK(gdn_memory_copy(stage->context, stage->base[i], stage->c->buffer[i].before,
                                       stage->c->buffer[i].bytes, GDN_COPY_TO_BACKEND, NULL));
        }
    }
    return stage_run_again(stage);
}

/* 1 where a byte of a guard is not `guard` any more. */
static int check_guard(const staged_case *stage, const unsigned char *from, int guard, const char *name,
                       const char *side)
{
    unsigned char bytes[GUARD_BYTES];
    REQUIRE_OK(gdn_memory_copy(stage->context, bytes, from, GUARD_BYTES, GDN_COPY_FROM_BACKEND, NULL));
    REQUIRE_OK(gdn_synchronize(stage->context, NULL));
    for (int32_t i = 0; i < GUARD_BYTES; i++) {
        if (bytes[i] != guard) {
            fprintf(stderr, "%s: written outside %s: byte %d of the guard %s it\n", stage->c->spec.label, name, i,
                    side);
            return 1;
        }
    }
    return 0;
}

static int check_guards(const staged_case *stage, const unsigned char *base, size_t bytes, int guard, const char *name)
{
    return check_guard(stage, base - GUARD_BYTES, guard, name, "before") +
           check_guard(stage, base + bytes, guard, name, "after");
}

int stage_collect(staged_case *stage)
{
    int damaged = 0;
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        case_buffer *const buffer = &stage->c->buffer[i];
        if (stage->base[i] == NULL) {
            continue;
        }
        REQUIRE_OK(
            gdn_memory_copy(stage->context, buffer->after, stage->base[i], buffer->bytes, GDN_COPY_FROM_BACKEND, NULL));
        damaged += check_guards(stage, stage->base[i], buffer->bytes, guard_of(buffer), operand_names[i]);
    }
    if (stage->workspace != NULL) {
        damaged += check_guards(stage, stage->workspace, stage->workspace_size, OUTPUT_GUARD, "workspace");
    }
    return damaged;
}

void stage_close(staged_case *stage)
{
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        REQUIRE_OK(gdn_memory_free(stage->context, &stage->allocation[i]));
    }
    REQUIRE_OK(gdn_memory_free(stage->context, &stage->workspace_allocation));
    gdn_plan_destroy(&stage->plan);
}

gdn_status case_run(gdn_context *context, test_case *c, int *damaged)
{
    staged_case stage;
    gdn_status status = stage_open(&stage, context, c);
    if (status == GDN_OK) {
        status = stage_run(&stage);
        const int guards = status == GDN_OK ? stage_collect(&stage) : 0;
        if (damaged != NULL) {
            *damaged = guards;
        } else {
            REQUIRE(guards == 0);
        }
    }
    if (status != GDN_OK) {
        fprintf(stderr, "%s: %s: %s\n", c->spec.label, gdn_status_string(status), gdn_last_error());
    }
    if (stage.plan != NULL) {
        stage_close(&stage);
    }
    return status;
}
