/* Good calls to spoil, one argument at a time, and the judgement of a refusal: the status, the argument and its value in one
 * line, and nothing written. */
#ifndef GDN_TESTS_API_SPOIL_H
#define GDN_TESTS_API_SPOIL_H

#include "suite.h"

#include <string.h>

enum { TOKENS = 20, SEQS = 3 };

/* The good call that each test spoils: pool in place, raw gates, checkpoints at positions. */
static inline void build_pool_case(test_case *c)
{
    /* The case keeps pointers to these after the return. */
    static const int64_t lengths[] = {5, 5, 10}, read_slots[] = {0, 1, 2}, write_slots[] = {3, 4, 5};
    static const int64_t positions[] = {2, 5, 1, 9, 10}, offsets[] = {0, 2, 3, 5};
    static const uint8_t has_initial_state[] = {1, 1, 1};
    const case_spec spec = {.label = "spoiled prefill",
                            .seed = 91,
                            .num_k_heads = 2,
                            .num_v_heads = 4,
                            .lengths = lengths,
                            .num_seqs = SEQS,
                            .gate_form = GDN_GATE_RAW,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 6,
                            .read_slots = read_slots,
                            .write_slots = write_slots,
                            .has_initial_state = has_initial_state,
                            .checkpoint_form = GDN_CHECKPOINT_AT,
                            .checkpoint_positions = positions,
                            .checkpoint_offsets = offsets};
    case_build(c, &spec);
}

static inline void build_dense_case(test_case *c)
{
    const case_spec spec = {
        .label = "spoiled dense prefill", .seed = 92, .num_k_heads = 2, .num_v_heads = 4, .length = TOKENS};
    case_build(c, &spec);
}

static inline void build_decode_case(test_case *c)
{
    static const int64_t read_slots[] = {0, 1, 2}, write_slots[] = {3, 4, 5};
    static const int32_t num_tokens[] = {2, 1, 0};
    static const int64_t token_slots[] = {6, 7, 8, -1, -1, -1};
    const case_spec spec = {.label = "spoiled decode",
                            .seed = 93,
                            .operation = GDN_OPERATION_DECODE,
                            .num_k_heads = 2,
                            .num_v_heads = 4,
                            .tokens_per_row = 2,
                            .num_tokens = num_tokens,
                            .num_seqs = SEQS,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 9,
                            .read_slots = read_slots,
                            .write_slots = write_slots,
                            .token_slots = token_slots};
    case_build(c, &spec);
}

/* What the call must do. `metadata`: a device finds it, not the host. */
typedef struct expectation {
    gdn_status status;
    const char *name;
    const char *value; /* "" where there is none to name */
    bool metadata;
} expectation;

static inline int judge_refusal(staged_case *stage, const expectation *want)
{
    const gdn_status status = stage_run(stage);
    char message[512];
    snprintf(message, sizeof(message), "%s", gdn_last_error());
    int complaints = 0;
    if (status != want->status || strstr(message, want->name) == NULL || strstr(message, want->value) == NULL ||
        strchr(message, '\n') != NULL) {
        fprintf(stderr, "%s: bad %s (%s): %s: \"%s\"\n", stage->c->spec.label, want->name, want->value,
                gdn_status_string(status), status != GDN_OK ? message : "");
        complaints++;
    }
    complaints += stage_collect(stage);
    if (test_backend_is_host() || !want->metadata) {
        complaints += judge_nothing_written(stage->c);
    }
    return complaints;
}

/* Spoils the staged arguments by `statement` (on `stage`), judges, and starts afresh. */
#define SPOIL_ARGUMENT(build, statement, status, name, value)  \
    do {                                                       \
        test_case c;                                           \
        build(&c);                                             \
        staged_case stage;                                     \
        REQUIRE_OK(stage_open(&stage, test_context(), &c));    \
        gdn_prefill_args *const p = &stage.prefill;            \
        gdn_decode_args *const d = &stage.decode;              \
        (void)p, (void)d;                                      \
        statement;                                             \
        const expectation want = {status, name, value, false}; \
        complaints += judge_refusal(&stage, &want);            \
        stage_close(&stage);                                   \
        case_free(&c);                                         \
    } while (0)

/* Spoils the contents of buffers by `statement` (on the case `c`) before they are copied. */
#define SPOIL_CONTENTS(build, statement, status, name, value)  \
    do {                                                       \
        test_case c;                                           \
        build(&c);                                             \
        statement;                                             \
        /* A device looks for conflicts only when asked to. */ \
        c.problem.check = (status) == GDN_ERROR_SLOT_CONFLICT; \
        staged_case stage;                                     \
        REQUIRE_OK(stage_open(&stage, test_context(), &c));    \
        const expectation want = {status, name, value, true};  \
        complaints += judge_refusal(&stage, &want);            \
        stage_close(&stage);                                   \
        case_free(&c);                                         \
    } while (0)

#endif
