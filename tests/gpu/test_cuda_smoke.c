/* A few small calls of every kind, for the device's checkers: compute-sanitizer runs this program under each of its tools
 * (scripts/gpu_check.sh), and each kernel of the backend is in it. */
#include "gpu_tools.h"

/* On a context of the implementations named, all of them where that is "". */
static int check_on(const char *implementations, const case_spec *spec)
{
    gdn_context_options options;
    gdn_context *context = NULL;
    test_case c;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    options.implementations = implementations;
    REQUIRE_OK(gdn_context_create(&context, &options));
    case_build(&c, spec);
    const int complaints = check_built_case(context, &c);
    case_free(&c);
    gdn_context_destroy(&context);
    return complaints;
}

/* What is left to each prefill where those before it are taken away. */
static const char *const implementations[] = {"", "-cuda.sm90", "generic"};

static void prefill(void **state)
{
    (void)state;
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    const int32_t dims[][2] = {{64, 64}, {128, 128}, {256, 64}, {20, 12}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        for (size_t j = 0; j < COUNT_OF(dims); j++) {
            const case_spec packed = {.label = "smoke, packed",
                                      .seed = 10 * i + j,
                                      .num_k_heads = 1,
                                      .num_v_heads = 2,
                                      .head_k_dim = dims[j][0],
                                      .head_v_dim = dims[j][1],
                                      .dtype = types[i],
                                      .lengths = LENGTHS(0, 5, 130),
                                      .num_seqs = 3,
                                      .qk_norm = GDN_QK_NORM_RSQRT,
                                      .gate_form = GDN_GATE_RAW,
                                      .beta_form = GDN_BETA_LOGIT,
                                      .state_form = GDN_STATE_POOL};
            const case_spec equal = {.label = "smoke, equal lengths",
                                     .seed = 100 + 10 * i + j,
                                     .num_v_heads = 2,
                                     .num_k_heads = 2,
                                     .head_k_dim = dims[j][0],
                                     .head_v_dim = dims[j][1],
                                     .dtype = types[i],
                                     .length = 70,
                                     .num_seqs = 2,
                                     .equal_length = true,
                                     .checkpoint_form = GDN_CHECKPOINT_EVERY,
                                     .checkpoint_interval = 32};
            for (size_t which = 0; which < COUNT_OF(implementations); which++) {
                const bool fused = types[i] != GDN_DTYPE_F32 && dims[j][0] >= 64;
                if (which == 0 || (which == 1 && fused && dims[j][0] <= 128) || (which == 2 && fused && j == 0)) {
                    complaints += check_on(implementations[which], &packed) + check_on(implementations[which], &equal);
                }
            }
        }
    }
    NO_COMPLAINTS(complaints);
}

/* As many short sequences as fill a Hopper device, which takes them in one kernel: equal ones, and others that it sorts. */
static void prefill_of_a_full_device(void **state)
{
    (void)state;
    enum { EQUAL = 66, PACKED = 132 };
    int64_t lengths[PACKED];
    for (int64_t n = 0; n < PACKED; n++) {
        lengths[n] = n == 7 ? 0 : 20 + n * 29 % 80;
    }
    const case_spec equal = {.label = "smoke, full device",
                             .seed = 150,
                             .num_k_heads = 1,
                             .num_v_heads = 2,
                             .head_k_dim = 128,
                             .dtype = GDN_DTYPE_F16,
                             .length = 70,
                             .num_seqs = EQUAL,
                             .max_seqlen = 70,
                             .equal_length = true,
                             .checkpoint_form = GDN_CHECKPOINT_EVERY,
                             .checkpoint_interval = 64};
    const case_spec packed = {.label = "smoke, full device, packed",
                              .seed = 151,
                              .num_k_heads = 1,
                              .num_v_heads = 2,
                              .head_k_dim = 128,
                              .dtype = GDN_DTYPE_BF16,
                              .lengths = lengths,
                              .num_seqs = PACKED,
                              .max_seqlen = 99,
                              .qk_norm = GDN_QK_NORM_RSQRT,
                              .gate_form = GDN_GATE_RAW,
                              .beta_form = GDN_BETA_LOGIT,
                              .state_form = GDN_STATE_POOL,
                              .in_place = true};
    NO_COMPLAINTS(check_on("", &equal) + check_on("", &packed));
}

static void decode(void **state)
{
    (void)state;
    const gdn_dtype types[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    const int32_t dims[] = {64, 128, 256, 20};
    const int32_t num_tokens[] = {3, 0, 1};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        for (size_t j = 0; j < COUNT_OF(dims); j++) {
            const case_spec spec = {.label = "smoke, decode",
                                    .seed = 200 + 10 * i + j,
                                    .operation = GDN_OPERATION_DECODE,
                                    .num_k_heads = 1,
                                    .num_v_heads = 2,
                                    .head_k_dim = dims[j],
                                    .head_v_dim = 36,
                                    .dtype = types[i],
                                    .state_dtype = types[(i + j) % 3],
                                    .num_seqs = 3,
                                    .tokens_per_row = 3,
                                    .num_tokens = num_tokens,
                                    .qk_norm = GDN_QK_NORM_RSQRT,
                                    .state_form = GDN_STATE_POOL};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill),
        cmocka_unit_test(prefill_of_a_full_device),
        cmocka_unit_test(decode),
    };
    return cmocka_run_group_tests_name("cuda smoke", tests, NULL, NULL);
}
