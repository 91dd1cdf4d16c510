/* Checkpoints, and waves under a cap on the workspace: neither changes a bit of the answer. */
#include "slices.h"
#include "suite.h"

#include <string.h>

static case_spec base_spec(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 41,
                       .num_k_heads = 1,
                       .num_v_heads = 2,
                       .head_k_dim = 32,
                       .head_v_dim = 48,
                       .num_segments = 1,
                       .gates = GATES_SMALL,
                       .state_size = 1};
}

/* Every checkpoint of sequence n, wherever it is, against a run of its prefix alone. */
static int compare_with_prefix(const test_case *whole, int64_t n, int64_t position, int64_t entry)
{
    case_spec spec = whole->spec;
    char label[64];
    snprintf(label, sizeof(label), "prefix of %lld", (long long)position);
    spec.label = label;
    spec.checkpoint_form = GDN_CHECKPOINT_NONE;
    spec.lengths = &position;
    spec.num_seqs = 1;
    test_case prefix;
    case_build(&prefix, &spec);
    copy_tokens(&prefix, 0, whole, case_first_token(whole, n), position);
    copy_initial_state(&prefix, 0, whole, n);
    int complaints = 1;
    if (case_run(test_context(), &prefix, NULL) == GDN_OK) {
        complaints = same_state(whole, CASE_CHECKPOINTS, entry, &prefix, CASE_FINAL_STATE, 0);
    }
    case_free(&prefix);
    return complaints;
}

static void checkpoints_every_n_tokens(void **unused)
{
    (void)unused;
    static const int32_t intervals[] = {1, 7, 64, 100, 128, 1000};
    static const int64_t lengths[] = {130, 0, 64, 201};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(intervals); i++) {
        char label[64];
        snprintf(label, sizeof(label), "checkpoints every %d", intervals[i]);
        case_spec spec = base_spec(label);
        spec.lengths = lengths;
        spec.num_seqs = 4;
        test_case plain, c;
        case_build(&plain, &spec);
        spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
        spec.checkpoint_interval = intervals[i];
        spec.spare_checkpoints = 2;
        case_build(&c, &spec);
        complaints += check_built_case(test_context(), &c) + check_built_case(test_context(), &plain);
        complaints += same_results(&plain, &c);
        int64_t entry = 0;
        for (int64_t n = 0; n < 4; n++) {
            for (int64_t position = intervals[i]; position <= lengths[n]; position += intervals[i], entry++) {
                if (intervals[i] != 1 || position % 41 == 0) {
                    complaints += compare_with_prefix(&c, n, position, entry);
                }
            }
        }
        case_free(&plain);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

static void checkpoints_at_given_positions(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {130, 0, 64, 201};
    static const int64_t positions[] = {1, 2, 63, 64, 65, 130, 64, 5, 200, 201};
    static const int64_t offsets[] = {0, 6, 6, 7, 10};
    int complaints = 0;
    for (int wide = 0; wide < 2; wide++) {
        for (gdn_dtype dtype = GDN_DTYPE_F32; dtype <= GDN_DTYPE_F16; dtype++) {
            case_spec spec = base_spec(wide ? "checkpoints at, i64" : "checkpoints at, i32");
            spec.lengths = lengths;
            spec.num_seqs = 4;
            spec.checkpoint_form = GDN_CHECKPOINT_AT;
            spec.checkpoint_dtype = wide ? GDN_DTYPE_I64 : GDN_DTYPE_I32;
            spec.checkpoint_positions = positions;
            spec.checkpoint_offsets = offsets;
            spec.final_dtype = dtype;
            spec.finals = wide ? STATES_KV : STATES_PADDED;
            spec.spare_checkpoints = 1;
            test_case c;
            case_build(&c, &spec);
            complaints += check_built_case(test_context(), &c);
            for (int64_t n = 0; n < 4; n++) {
                for (int64_t i = offsets[n]; i < offsets[n + 1]; i++) {
                    complaints += compare_with_prefix(&c, n, positions[i], i);
                }
            }
            case_free(&c);
        }
    }
    NO_COMPLAINTS(complaints);
}

static void a_skipped_sequence_leaves_its_checkpoints_alone(void **unused)
{
    (void)unused;
    case_spec spec = base_spec("checkpoints round a skipped sequence");
    spec.lengths = LENGTHS(70, 70, 70);
    spec.num_seqs = 3;
    spec.state_form = GDN_STATE_POOL;
    spec.read_slots = SLOTS(0, -1, 2);
    spec.in_place = true;
    spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
    spec.checkpoint_interval = 32;
    NO_COMPLAINTS(check_case(&spec));
}

/* Lowers the cap until the plan refuses; every accepted plan keeps within it and gives the same bits. A 16-bit state shows a
 * carry between waves that is not float32. */
static int lower_the_cap(gdn_dtype state)
{
    case_spec spec = base_spec("no cap");
    spec.lengths = LENGTHS(test_is_small() ? 300 : 700, 65, 0, 130);
    spec.num_seqs = 4;
    spec.num_v_heads = 4;
    spec.num_k_heads = 2;
    spec.state_dtype = state;
    spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
    spec.checkpoint_interval = 100;
    test_case free_case;
    case_build(&free_case, &spec);
    int complaints = check_built_case(test_context(), &free_case);
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, test_context(), &free_case.problem));
    char name[64];
    plan_implementation(plan, name);
    size_t cap = gdn_plan_workspace_size(plan);
    gdn_plan_destroy(&plan);

    for (int steps = 0; cap > 0 && steps < 40; steps++, cap -= cap / 4 + 1) {
        char label[64];
        snprintf(label, sizeof(label), "at most %zu bytes", cap);
        spec.label = label;
        spec.max_workspace = cap;
        test_case capped;
        case_build(&capped, &spec);
        const gdn_status status = gdn_plan_create(&plan, test_context(), &capped.problem);
        if (status != GDN_OK) {
            assert_int_equal(status, GDN_ERROR_UNSUPPORTED);
            assert_non_null(strstr(gdn_last_error(), "workspace"));
            case_free(&capped);
            break;
        }
        assert_true(gdn_plan_workspace_size(plan) <= cap);
        char capped_name[64];
        plan_implementation(plan, capped_name);
        gdn_plan_destroy(&plan);
        complaints += check_built_case(test_context(), &capped);
        if (strcmp(name, capped_name) == 0) {
            complaints += same_results(&free_case, &capped);
        }
        case_free(&capped);
    }
    case_free(&free_case);
    return complaints;
}

static void a_capped_workspace_gives_the_same_bits(void **unused)
{
    (void)unused;
    NO_COMPLAINTS(lower_the_cap(GDN_DTYPE_F32) + lower_the_cap(GDN_DTYPE_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_every_n_tokens),
        cmocka_unit_test(checkpoints_at_given_positions),
        cmocka_unit_test(a_skipped_sequence_leaves_its_checkpoints_alone),
        cmocka_unit_test(a_capped_workspace_gives_the_same_bits),
    };
    return RUN_SUITE("prefill checkpoints and waves", tests);
}
