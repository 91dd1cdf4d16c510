/* Inputs of a trained model's size, long sequences, and the grids of other test suites. */
#include "slices.h"
#include "suite.h"

#include <string.h>

/* Entry 103: v ~ N(0, 3^2), |S0| ~ 10, 8192 tokens. The bound is relative and lives in tolerances.h. */
static void realistic_sizes_over_8192_tokens(void **unused)
{
    (void)unused;
    static const gate_regime regimes[] = {GATES_STANDARD, GATES_WEAK, GATES_STRONG, GATES_MIXED_ZEROS};
    for (size_t i = 0; i < COUNT_OF(regimes); i++) {
        const case_spec spec = {.label = "8192 tokens",
                                .seed = 1601,
                                .num_k_heads = 1,
                                .num_v_heads = 2,
                                .head_k_dim = 64,
                                .length = test_is_small() ? 300 : 8192,
                                .qk_norm = GDN_QK_NORM_RSQRT,
                                .gates = regimes[i],
                                .value_size = 3,
                                .state_size = 10.0 / 8};
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 31: chunks that alternate -0.01 and -8 make a stale prefix sum loud. 50 repeats, bit by bit. */
static void alternating_decays_show_stale_gates(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "alternating decays",
                            .seed = 1602,
                            .num_k_heads = 4,
                            .num_v_heads = 8,
                            .head_k_dim = 32,
                            .length = test_is_small() ? 300 : 2048,
                            .gates = GATES_ALTERNATE,
                            .state_size = 1};
    test_case first, c;
    case_build(&first, &spec);
    case_build(&c, &spec);
    NO_COMPLAINTS(check_built_case(test_context(), &first));
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &c));
    int complaints = 0;
    for (int i = 0; i < (test_is_small() ? 5 : 50); i++) {
        REQUIRE_OK(stage_run(&stage));
        complaints += stage_collect(&stage) + same_results(&first, &c);
    }
    stage_close(&stage);
    case_free(&first);
    case_free(&c);
    NO_COMPLAINTS(complaints);
}

/* Entry 58: in place with V split over workers, 1000 decode steps twice, and out of place. */
static void in_place_decode_has_no_race(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "in place",
                      .seed = 1603,
                      .operation = GDN_OPERATION_DECODE,
                      .num_k_heads = 8,
                      .head_k_dim = 64,
                      .head_v_dim = 128,
                      .num_seqs = 2,
                      .gates = GATES_SMALL,
                      .in_place = true};
    const int steps = test_is_small() ? 20 : 500;
    test_case runs[2], apart;
    for (int r = 0; r < 2; r++) {
        case_build(&runs[r], &spec);
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, test_context(), &runs[r]));
        REQUIRE_OK(stage_run(&stage));
        for (int i = 1; i < steps; i++) {
            REQUIRE_OK(stage_run_again(&stage));
        }
        assert_int_equal(stage_collect(&stage), 0);
        stage_close(&stage);
    }
    spec.label = "out of place";
    spec.in_place = false;
    case_build(&apart, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, test_context(), &apart));
    REQUIRE_OK(stage_run(&stage));
    for (int i = 1; i < steps; i++) {
        void *const initial = stage.decode.final_state;
        stage.decode.final_state = (void *)(uintptr_t)stage.decode.state;
        stage.decode.state = initial;
        REQUIRE_OK(stage_run_again(&stage));
    }
    assert_int_equal(stage_collect(&stage), 0);
    const int complaints = same_results(&runs[0], &runs[1]) + same_outputs(&runs[0], 0, &apart, 0, 2);
    stage_close(&stage);
    case_free(&runs[0]);
    case_free(&runs[1]);
    case_free(&apart);
    NO_COMPLAINTS(complaints);
}

/* ggml's grid of its gated delta net op: tiled heads, g ~ U(-20, -1e-4), sequences of equal length. */
static void the_grid_of_ggml(void **unused)
{
    (void)unused;
    static const int32_t grid[][5] = {/* heads, size, tokens, sequences, repeat */
                                      {32, 128, 1, 1, 1}, {32, 16, 1, 1, 1}, {16, 64, 1, 2, 1},  {4, 64, 4, 1, 1},
                                      {4, 64, 4, 2, 1},   {8, 32, 4, 2, 2},  {4, 64, 64, 1, 1},  {4, 64, 127, 1, 1},
                                      {4, 64, 256, 1, 1}, {4, 64, 65, 1, 1}, {4, 64, 100, 1, 1}, {4, 64, 200, 1, 1},
                                      {4, 64, 127, 2, 1}, {4, 16, 2, 1, 1},  {4, 32, 8, 1, 1},   {4, 64, 16, 2, 1},
                                      {8, 128, 4, 1, 1}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(grid); i++) {
        for (int strided = 0; strided < 2; strided++) {
            char label[96];
            snprintf(label, sizeof(label), "ggml row %zu%s", i + 1, strided ? ", permuted" : "");
            const case_spec spec = {.label = label,
                                    .seed = 1610 + i,
                                    .num_k_heads = grid[i][0],
                                    .num_v_heads = grid[i][0] * grid[i][4],
                                    .head_k_dim = grid[i][1],
                                    .length = grid[i][2],
                                    .num_seqs = grid[i][3],
                                    .equal_length = true,
                                    .head_map = GDN_HEAD_MAP_TILED,
                                    .gates = GATES_WIDE,
                                    .operands = strided ? OPERANDS_INTERLEAVED : OPERANDS_DENSE,
                                    .state_size = 0.58};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Rows of fla's and FlashInfer's grids: odd dims, strong and absent decay, two value heads and more to a key head. */
static void the_grids_of_fla_and_flashinfer(void **unused)
{
    (void)unused;
    const struct {
        int32_t k_heads, v_heads, dim;
        const int64_t *lengths;
        int64_t num_seqs;
        float scale;
        double gate;
        bool norm;
    } grid[] = {{1, 1, 64, LENGTHS(63), 1, 1, -0.7, true},
                {4, 4, 60, LENGTHS(75, 75), 2, 1, -70, false},
                {3, 3, 60, LENGTHS(100, 100), 2, 1, -0.7, false},
                {2, 8, 128, LENGTHS(256), 1, 0.1f, -7, true},
                {4, 4, 100, LENGTHS(15, 85, 200), 3, 0.1f, 0, false},
                {1, 1, 128, LENGTHS(31), 1, 1, -0.01, false},
                {1, 2, 128, LENGTHS(31, 63, 93, 123, 150), 5, 1, -0.005, false},
                {2, 4, 64, LENGTHS(64, 111, 192), 3, 1, -0.005, false},
                {3, 3, 64, LENGTHS(251, 0, 5), 3, 1, -0.3, false}};
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(grid); i++) {
        for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
            if (test_is_small() && io != i % 3) {
                continue; /* each row in one type, each type in three rows */
            }
            char label[96];
            snprintf(label, sizeof(label), "peer row %zu, io %s", i + 1, gdn_dtype_name(dtypes[io]));
            const case_spec spec = {.label = label,
                                    .seed = 1630 + i,
                                    .num_k_heads = grid[i].k_heads,
                                    .num_v_heads = grid[i].v_heads,
                                    .head_k_dim = grid[i].dim,
                                    .lengths = grid[i].lengths,
                                    .num_seqs = grid[i].num_seqs,
                                    .dtype = dtypes[io],
                                    .has_scale = true,
                                    .scale = grid[i].scale,
                                    .adversarial = true,
                                    .keys = KEYS_POSITIVE,
                                    .gates = GATES_CONSTANT,
                                    .gate = grid[i].gate,
                                    .qk_norm = grid[i].norm ? GDN_QK_NORM_RSQRT : GDN_QK_NORM_NONE,
                                    .state_size = 1};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(realistic_sizes_over_8192_tokens), cmocka_unit_test(alternating_decays_show_stale_gates),
        cmocka_unit_test(in_place_decode_has_no_race),      cmocka_unit_test(the_grid_of_ggml),
        cmocka_unit_test(the_grids_of_fla_and_flashinfer),
    };
    return RUN_SUITE("realistic", tests);
}
