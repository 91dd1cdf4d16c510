/* The generic path on CUDA against the same path on the CPU: float32 inputs and outputs agree to the order of sums. */
#include "gpu_tools.h"

#include "harness/compare.h"
#include "harness/tolerances.h"

#include <math.h>
#include <stdlib.h>

static gdn_context *cuda;
static gdn_context *cpu;

static int set_up(void **state)
{
    (void)state;
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.implementations = "generic";
    options.backend = "cpu";
    REQUIRE_OK(gdn_context_create(&cpu, &options));
    options.backend = "cuda";
    REQUIRE_OK(gdn_context_create(&cuda, &options));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&cuda);
    gdn_context_destroy(&cpu);
    return 0;
}

/* ||a - b|| / ||b|| over an operand's floats that either run wrote. */
static double distance(const test_case *a, const test_case *b, case_operand operand)
{
    if (a->view[operand].buffer < 0) {
        return 0.0;
    }
    const case_buffer *const buffer = &a->buffer[a->view[operand].buffer];
    const float *const x = (const float *)(const void *)buffer->after;
    const float *const y = (const float *)(const void *)b->buffer[b->view[operand].buffer].after;
    double apart = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < buffer->bytes / sizeof(float); i++) {
        if (isnan(x[i]) && isnan(y[i])) {
            continue; /* poison that neither run owed anything */
        }
        apart += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    return size > 0.0 ? sqrt(apart / size) : sqrt(apart);
}

static int compare_case(const case_spec *spec)
{
    test_case on_cuda;
    test_case on_cpu;
    case_build(&on_cuda, spec);
    case_build(&on_cpu, spec);
    REQUIRE_OK(case_run(cuda, &on_cuda, NULL));
    REQUIRE_OK(case_run(cpu, &on_cpu, NULL));
    int complaints = 0;
    const struct {
        case_operand operand;
        const char *name;
    } outputs[] = {
        {CASE_O, "o"}, {CASE_STATE, "state"}, {CASE_FINAL_STATE, "final_state"}, {CASE_CHECKPOINTS, "checkpoints"}};
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        const double error = distance(&on_cuda, &on_cpu, outputs[i].operand);
        if (!(error <= TOLERANCE_GPU_FROBENIUS)) {
            fprintf(stderr, "%s: %s: relative distance %.2e from the CPU, at most %.1e is allowed\n", spec->label,
                    outputs[i].name, error, TOLERANCE_GPU_FROBENIUS);
            complaints++;
        }
    }
    case_free(&on_cuda);
    case_free(&on_cpu);
    return complaints;
}

static void every_gate_regime_agrees(void **state)
{
    (void)state;
    int complaints = 0;
    for (int regime = 0; regime < NUM_GATE_REGIMES; regime++) {
        const case_spec spec = {.label = "regime",
                                .seed = 100 + (uint64_t)regime,
                                .num_k_heads = 2,
                                .num_v_heads = 4,
                                .head_k_dim = 128,
                                .length = 200,
                                .gates = (gate_regime)regime,
                                .gate = -0.05,
                                .gate_form = regime % 2 ? GDN_GATE_RAW : GDN_GATE_LOG_DECAY,
                                .qk_norm = GDN_QK_NORM_RSQRT};
        complaints += compare_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

static void shapes_that_divide_nothing_agree(void **state)
{
    (void)state;
    const struct {
        int32_t h, hv, k, v, chunk;
        int64_t length;
    } shapes[] = {{1, 1, 1, 1, 0, 3},       {1, 3, 33, 65, 0, 131},   {2, 2, 100, 36, 17, 150},
                  {1, 2, 256, 128, 0, 70},  {3, 3, 160, 200, 32, 90}, {1, 1, 512, 48, 128, 300},
                  {2, 6, 64, 64, 256, 600}, {1, 1, 128, 1, 1, 9}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const case_spec spec = {.label = "shape",
                                .seed = 200 + i,
                                .num_k_heads = shapes[i].h,
                                .num_v_heads = shapes[i].hv,
                                .head_k_dim = shapes[i].k,
                                .head_v_dim = shapes[i].v,
                                .chunk_size = shapes[i].chunk,
                                .length = shapes[i].length,
                                .head_map = i % 2 ? GDN_HEAD_MAP_TILED : GDN_HEAD_MAP_GROUPED};
        complaints += compare_case(&spec);
    }
    NO_COMPLAINTS(complaints);
}

static void packed_sequences_and_pools_agree(void **state)
{
    (void)state;
    int complaints = 0;
    const case_spec batch = {.label = "pool",
                             .seed = 300,
                             .num_k_heads = 2,
                             .num_v_heads = 4,
                             .head_k_dim = 64,
                             .lengths = LENGTHS(0, 5, 70, 0, 129, 1, 64),
                             .num_seqs = 7,
                             .state_form = GDN_STATE_POOL,
                             .states = STATES_PADDED,
                             .num_slots = 16,
                             .read_slots = SLOTS(1, 2, -1, 5, 7, 0, 9),
                             .write_slots = SLOTS(1, 3, 4, 6, 7, 8, -2),
                             .has_initial_state = FLAGS(1, 0, 1, 1, 1, 0, 1),
                             .in_place = false};
    complaints += compare_case(&batch);
    const case_spec checkpoints = {.label = "checkpoints",
                                   .seed = 301,
                                   .num_k_heads = 1,
                                   .num_v_heads = 2,
                                   .head_k_dim = 64,
                                   .lengths = LENGTHS(130, 0, 70, 200),
                                   .num_seqs = 4,
                                   .checkpoint_form = GDN_CHECKPOINT_EVERY,
                                   .checkpoint_interval = 48};
    complaints += compare_case(&checkpoints);
    NO_COMPLAINTS(complaints);
}

/* A wave of few chunks has the bits of one of many, on the device as on the host. */
static void waves_do_not_change_bits(void **state)
{
    (void)state;
    case_spec spec = {.label = "waves",
                      .seed = 400,
                      .num_k_heads = 2,
                      .num_v_heads = 2,
                      .head_k_dim = 64,
                      .lengths = LENGTHS(300, 20, 500),
                      .num_seqs = 3};
    test_case whole;
    test_case cut;
    case_build(&whole, &spec);
    spec.max_workspace = (size_t)1 << 20;
    case_build(&cut, &spec);
    REQUIRE_OK(case_run(cuda, &whole, NULL));
    REQUIRE_OK(case_run(cuda, &cut, NULL));
    NO_COMPLAINTS(same_results(&whole, &cut));
    case_free(&whole);
    case_free(&cut);
}

/* numerics TF32: about 2^-11 an operand, far from float32 and far from wrong. */
static void tf32_is_taken_only_when_asked_for(void **state)
{
    (void)state;
    case_spec spec = {.label = "tf32", .seed = 500, .num_k_heads = 2, .head_k_dim = 128, .length = 300};
    test_case exact;
    test_case rounded;
    case_build(&exact, &spec);
    spec.numerics = GDN_NUMERICS_TF32;
    case_build(&rounded, &spec);
    REQUIRE_OK(case_run(cuda, &exact, NULL));
    REQUIRE_OK(case_run(cuda, &rounded, NULL));
    const double error = distance(&rounded, &exact, CASE_O);
    printf("TF32 products: o is %.2e from float32 products\n", error);
    REQUIRE(error > 1e-5 && error < 3e-3);
    case_free(&exact);
    case_free(&rounded);
}

int main(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gate_regime_agrees),          cmocka_unit_test(shapes_that_divide_nothing_agree),
        cmocka_unit_test(packed_sequences_and_pools_agree),  cmocka_unit_test(waves_do_not_change_bits),
        cmocka_unit_test(tf32_is_taken_only_when_asked_for),
    };
    return cmocka_run_group_tests_name("cuda parity", tests, set_up, tear_down);
}
