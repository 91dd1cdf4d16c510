/* The Hopper prefill for head dims other than 128 x 128, and checkpoints inside a chunk, which take the same kernels. */
#include "sm90_tools.h"

typedef struct head_dims {
    const char *label;
    int32_t k, v;
} head_dims;

static void every_pair_of_head_dims_is_right(void **state)
{
    (void)state;
    static const head_dims dims[] = {{"64 x 64", 64, 64},     {"64 x 128", 64, 128},   {"64 x 192", 64, 192},
                                     {"128 x 64", 128, 64},   {"128 x 256", 128, 256}, {"256 x 64", 256, 64},
                                     {"256 x 128", 256, 128}, {"256 x 256", 256, 256}};
    static const int64_t lengths[] = {130, 0, 1, 63, 201, 64};
    int complaints = 0;
    for (size_t i = 0; i < 2 * COUNT_OF(dims); i++) {
        test_case c;
        case_spec spec = sm90_spec(dims[i / 2].label, dims[i / 2].k, dims[i / 2].v);
        spec.num_k_heads = 1;
        spec.num_v_heads = 3;
        spec.lengths = lengths;
        spec.num_seqs = COUNT_OF(lengths);
        spec.dtype = i % 2 == 0 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16;
        spec.qk_norm = i % 3 == 0 ? GDN_QK_NORM_NONE : GDN_QK_NORM_RSQRT;
        spec.states = i % 4 < 2 ? STATES_VK : STATES_KV;
        spec.finals = i % 4 < 2 ? STATES_KV : STATES_VK;
        case_build(&c, &spec);
        sm90_run(&c);
        complaints += check_built_case(sm90_context(), &c);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

/* Sequences of K = 256 have two tiles of V a block among others, one alone. */
static void a_sequence_has_its_bits_in_any_batch(void **state)
{
    (void)state;
    static const head_dims dims[] = {{"64 x 192", 64, 192}, {"128 x 256", 128, 256}, {"256 x 256", 256, 256}};
    static const int64_t lengths[] = {375, 70, 0, 374, 1, 130, 64, 400, 377};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        case_spec spec = sm90_spec(dims[i].label, dims[i].k, dims[i].v);
        spec.max_seqlen = 400;
        complaints += sm90_compare_with_alone(spec, lengths, COUNT_OF(lengths));
    }
    NO_COMPLAINTS(complaints);
}

/* Cut with E where K is V, in two otherwise. */
static void segments_are_right(void **state)
{
    (void)state;
    static const head_dims dims[] = {{"64 x 64", 64, 64}, {"256 x 256", 256, 256}, {"64 x 128", 64, 128}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        test_case c;
        case_spec spec = sm90_spec(dims[i].label, dims[i].k, dims[i].v);
        spec.num_k_heads = spec.num_v_heads = 1;
        spec.length = 70 * 64 + 5;
        case_build(&c, &spec);
        sm90_run(&c);
        complaints += check_built_case(sm90_context(), &c);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

/* Checkpoint `entry` of sequence n against a run of its first tokens alone. */
static int compare_with_prefix(const case_spec *plain, const test_case *c, int64_t n, const int64_t *position,
                               int64_t entry)
{
    test_case prefix;
    case_spec spec = *plain;
    spec.lengths = position;
    spec.num_seqs = 1;
    case_build(&prefix, &spec);
    copy_head_parameters(&prefix, c);
    copy_tokens(&prefix, 0, c, case_first_token(c, n), *position);
    copy_initial_state(&prefix, 0, c, n);
    sm90_run(&prefix);
    const int complaints = same_state(c, CASE_CHECKPOINTS, entry, &prefix, CASE_FINAL_STATE, 0);
    case_free(&prefix);
    return complaints;
}

/* A checkpoint has the bits of a run that ends there, wherever it lies, and asking for it changes no others. */
static void checkpoints_have_the_bits_of_a_prefix(void **state)
{
    (void)state;
    static const head_dims dims[] = {{"128 x 128", 128, 128}, {"64 x 64", 64, 64}, {"256 x 128", 256, 128}};
    static const int64_t lengths[] = {130, 0, 64, 201}, offsets[] = {0, 6, 6, 7, 10};
    static const int64_t positions[] = {1, 2, 63, 64, 65, 130, 64, 5, 200, 201};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        test_case plain, c;
        case_spec spec = sm90_spec(dims[i].label, dims[i].k, dims[i].v);
        spec.num_k_heads = 1;
        spec.num_v_heads = 3;
        spec.lengths = lengths;
        spec.num_seqs = COUNT_OF(lengths);
        case_build(&plain, &spec);
        case_spec wanted = spec;
        wanted.checkpoint_form = GDN_CHECKPOINT_AT;
        wanted.checkpoint_offsets = offsets;
        wanted.checkpoint_positions = positions;
        case_build(&c, &wanted);
        sm90_run(&plain);
        sm90_run(&c);
        complaints += same_results(&plain, &c);
        for (int64_t n = 0; n < spec.num_seqs; n++) {
            for (int64_t entry = offsets[n]; entry < offsets[n + 1]; entry++) {
                complaints += compare_with_prefix(&spec, &c, n, &positions[entry], entry);
            }
        }
        complaints += check_built_case(sm90_context(), &c);
        case_free(&plain);
        case_free(&c);
    }
    NO_COMPLAINTS(complaints);
}

/* The entries of a long sequence in waves of few chunks, at an interval. */
static void checkpoints_in_waves_are_right(void **state)
{
    (void)state;
    case_spec spec = sm90_spec("checkpoints in waves", 128, 64);
    spec.num_k_heads = spec.num_v_heads = 2;
    spec.lengths = LENGTHS(700, 0, 30, 90);
    spec.num_seqs = 4;
    spec.checkpoint_form = GDN_CHECKPOINT_EVERY;
    spec.checkpoint_interval = 25;
    spec.max_workspace = 400000;
    test_case c;
    case_build(&c, &spec);
    sm90_run(&c);
    NO_COMPLAINTS(check_built_case(sm90_context(), &c));
    case_free(&c);
}

int main(void)
{
    if (!sm90_open()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_head_dims_is_right),
        cmocka_unit_test(a_sequence_has_its_bits_in_any_batch),
        cmocka_unit_test(segments_are_right),
        cmocka_unit_test(checkpoints_have_the_bits_of_a_prefix),
        cmocka_unit_test(checkpoints_in_waves_are_right),
    };
    return cmocka_run_group_tests_name("cuda sm90 dims", tests, NULL, sm90_close);
}
