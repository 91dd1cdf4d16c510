/* Calls drawn at random from all options at once: what no list of single options meets. The same cases each time;
 * GDN_TEST_SEED=<number> draws others, GDN_TEST_CASES=<count> more of them. A failing case prints its number, which
 * GDN_TEST_FIRST=<number> runs first. */
#include "suite.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 6, MAX_CHECKPOINTS = 64 };

/* Arrays a spec points to. */
typedef struct drawn {
    case_spec spec;
    int64_t lengths[MAX_ROWS], read[MAX_ROWS], write[MAX_ROWS], token_slots[MAX_ROWS * GDN_MAX_DECODE_TOKENS];
    int64_t positions[MAX_CHECKPOINTS], offsets[MAX_ROWS + 1];
    int32_t num_tokens[MAX_ROWS];
    uint8_t flags[MAX_ROWS];
    char label[64];
} drawn;

static int64_t setting(const char *name, int64_t other)
{
    const char *const text = getenv(name);
    return text != NULL && text[0] != '\0' ? atoll(text) : other;
}

static bool one_in(test_random *r, int64_t n)
{
    return random_index(r, n) == 0;
}

static gdn_dtype draw_dtype(test_random *r)
{
    return (gdn_dtype)(GDN_DTYPE_F32 + random_index(r, 3));
}

static void draw_shape(drawn *d, test_random *r)
{
    case_spec *const s = &d->spec;
    static const int32_t dims[] = {16, 32, 48, 64, 128, 1, 5, 24, 33, 100};
    s->operation = one_in(r, 3) ? GDN_OPERATION_DECODE : GDN_OPERATION_PREFILL;
    s->num_k_heads = 1 + (int32_t)random_index(r, 3);
    s->num_v_heads = s->num_k_heads * (1 + (int32_t)random_index(r, 4));
    s->head_k_dim = dims[random_index(r, one_in(r, 3) ? 10 : 5)];
    s->head_v_dim = dims[random_index(r, one_in(r, 3) ? 10 : 5)];
    s->head_map = (gdn_head_map)random_index(r, 2);
    s->num_seqs = 1 + random_index(r, MAX_ROWS);
    s->tokens_per_row = 1 + (int32_t)random_index(r, GDN_MAX_DECODE_TOKENS);
    s->equal_length = s->operation == GDN_OPERATION_PREFILL && one_in(r, 4);
    s->length = random_index(r, 100);
    for (int n = 0; n < MAX_ROWS; n++) {
        d->lengths[n] = one_in(r, 4) ? random_index(r, 3) : random_index(r, 150);
        d->num_tokens[n] = (int32_t)random_index(r, s->tokens_per_row + 1);
        d->flags[n] = (uint8_t)(one_in(r, 3) ? 0 : 1 + random_index(r, 255));
    }
    if (s->operation == GDN_OPERATION_PREFILL && !s->equal_length) {
        s->lengths = d->lengths;
        s->extra_tokens = random_index(r, 5);
    }
    if (s->operation == GDN_OPERATION_DECODE && one_in(r, 2)) {
        s->num_tokens = d->num_tokens;
    }
    s->spare_seqs = random_index(r, 3);
    s->spare_tokens = random_index(r, 200);
}

/* Tokens of the rows, none of them being skipped. */
static int64_t count_tokens(const drawn *d)
{
    const case_spec *const s = &d->spec;
    int64_t tokens = 0;
    for (int64_t n = 0; n < s->num_seqs; n++) {
        if (s->operation == GDN_OPERATION_DECODE) {
            tokens += s->num_tokens != NULL ? s->num_tokens[n] : s->tokens_per_row;
        } else {
            tokens += s->lengths != NULL ? s->lengths[n] : s->length;
        }
    }
    return tokens;
}

static void draw_values(drawn *d, test_random *r)
{
    case_spec *const s = &d->spec;
    s->seed = random_bits(r);
    s->dtype = draw_dtype(r);
    s->gate_dtype = one_in(r, 2) ? s->dtype : GDN_DTYPE_F32;
    s->beta_dtype = one_in(r, 2) ? s->dtype : GDN_DTYPE_F32;
    s->gate_form = (gdn_gate_form)random_index(r, 3);
    s->no_dt_bias = one_in(r, 4);
    s->beta_form = (gdn_beta_form)random_index(r, 2);
    s->beta_scale = s->beta_form == GDN_BETA_LOGIT && one_in(r, 3) ? 2.0f : 1.0f;
    s->qk_norm = (gdn_qk_norm)random_index(r, 3);
    s->has_scale = one_in(r, 3);
    s->scale = (float)random_between(r, -1, 1);
    s->gates = (gate_regime)random_index(r, NUM_GATE_REGIMES);
    s->gate = -0.02;
    s->keys = one_in(r, 4) ? KEYS_POSITIVE : KEYS_NORMAL;
    if (count_tokens(d) < 32) {
        s->keys = KEYS_POSITIVE; /* the only token's q.k may else be its own rounding, by which all is measured */
    }
    s->adversarial = true;
    s->state_size = one_in(r, 2) ? 1 : 0.2;
    s->chunk_size = one_in(r, 2) ? 0 : 1 + (int32_t)random_index(r, 130);
    s->num_segments = one_in(r, 4) ? (int32_t)random_index(r, 4) : 0;
}

static void draw_states(drawn *d, test_random *r)
{
    case_spec *const s = &d->spec;
    s->operands = (operand_style)random_index(r, OPERANDS_PACKED_WITH_OUTPUT + 1);
    s->states = (state_style)random_index(r, 4);
    s->finals = (state_style)random_index(r, 4);
    s->state_dtype = draw_dtype(r);
    s->final_dtype = draw_dtype(r);
    s->cu_dtype = one_in(r, 2) ? GDN_DTYPE_I32 : GDN_DTYPE_I64;
    s->slots_dtype = one_in(r, 2) ? GDN_DTYPE_I32 : GDN_DTYPE_I64;
    s->has_initial_state = one_in(r, 2) ? d->flags : NULL;
    s->in_place = one_in(r, 3);
    if (one_in(r, 2)) {
        s->no_initial_state = !s->in_place && one_in(r, 4);
        s->has_initial_state = s->no_initial_state ? NULL : s->has_initial_state;
        s->no_final_state = one_in(r, 4);
        return;
    }
    /* Slots of a row: 20 n and on, in an order that no two share. */
    s->state_form = GDN_STATE_POOL;
    s->num_slots = 20 * MAX_ROWS;
    for (int64_t n = 0; n < MAX_ROWS; n++) {
        d->read[n] = one_in(r, 6) ? -1 - random_index(r, 3) : 20 * n + 19;
        d->write[n] = one_in(r, 6) ? -1 : 20 * n + 17 + random_index(r, 3);
        for (int64_t t = 0; t < s->tokens_per_row; t++) {
            d->token_slots[n * s->tokens_per_row + t] = one_in(r, 3) ? -1 : 20 * n + t;
        }
    }
    s->read_slots = d->read;
    s->write_slots = d->write;
    s->no_write_slots = !s->in_place && one_in(r, 4);
    if (s->operation == GDN_OPERATION_DECODE && one_in(r, 2)) {
        s->token_slots = d->token_slots;
    }
}

static void draw_checkpoints(drawn *d, test_random *r)
{
    case_spec *const s = &d->spec;
    if (s->operation == GDN_OPERATION_DECODE || one_in(r, 2)) {
        return;
    }
    s->checkpoint_form = one_in(r, 2) ? GDN_CHECKPOINT_EVERY : GDN_CHECKPOINT_AT;
    s->checkpoint_interval = 1 + (int32_t)random_index(r, 90);
    s->checkpoint_dtype = one_in(r, 2) ? GDN_DTYPE_I32 : GDN_DTYPE_I64;
    s->spare_checkpoints = random_index(r, 3);
    int64_t count = 0;
    for (int64_t n = 0; n < s->num_seqs; n++) {
        const int64_t length = s->lengths != NULL ? s->lengths[n] : s->length;
        d->offsets[n] = count;
        for (int64_t at = 1 + random_index(r, 40); at <= length && count < MAX_CHECKPOINTS;
             at += 1 + random_index(r, 60)) {
            d->positions[count++] = at;
        }
    }
    d->offsets[s->num_seqs] = count;
    s->checkpoint_positions = d->positions;
    s->checkpoint_offsets = d->offsets;
}

/* Prints what makes a failing case different from the plain one. */
static void print_case(const case_spec *s)
{
    fprintf(
        stderr,
        "  op %d heads %d/%d dims %dx%d rows %d tokens %d equal %d dtype %s gates %s/%d/%d beta %d norm %d chunk %d "
        "segments %d operands %d states %d/%d %s/%s form %d in place %d checkpoints %d\n",
        (int)s->operation, s->num_k_heads, s->num_v_heads, s->head_k_dim, s->head_v_dim, (int)s->num_seqs,
        s->tokens_per_row, s->equal_length, gdn_dtype_name(s->dtype), gdn_dtype_name(s->gate_dtype), (int)s->gate_form,
        (int)s->gates, (int)s->beta_form, (int)s->qk_norm, s->chunk_size, s->num_segments, (int)s->operands,
        (int)s->states, (int)s->finals, gdn_dtype_name(s->state_dtype), gdn_dtype_name(s->final_dtype),
        (int)s->state_form, s->in_place, (int)s->checkpoint_form);
}

static void calls_of_any_options_are_right(void **unused)
{
    (void)unused;
    const int64_t first = setting("GDN_TEST_FIRST", 0);
    const int64_t count = setting("GDN_TEST_CASES", test_is_small() ? 40 : 400);
    const uint64_t seed = (uint64_t)setting("GDN_TEST_SEED", 1801);
    int complaints = 0;
    for (int64_t i = first; i < first + count; i++) {
        test_random random = random_stream(seed, (uint64_t)i);
        drawn d = {.spec = {0}};
        draw_shape(&d, &random);
        draw_values(&d, &random);
        draw_states(&d, &random);
        draw_checkpoints(&d, &random);
        snprintf(d.label, sizeof(d.label), "random case %lld", (long long)i);
        d.spec.label = d.label;
        const int found = check_case(&d.spec);
        if (found != 0) {
            print_case(&d.spec);
            complaints += found;
        }
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_any_options_are_right),
    };
    return RUN_SUITE("random cases", tests);
}
