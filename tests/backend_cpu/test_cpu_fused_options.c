/* What plans may ask of the fused CPU implementations beside shapes: threads, segments, rounded products, capped scratch. */
#include "fused_contexts.h"

#include <stdlib.h>

/* Judges the case of `spec` on that many threads, and compares its bits with those of `alone`. */
static int check_threads(const test_case *alone, const case_spec *spec, const char *isa, int32_t threads)
{
    test_case c;
    gdn_context *context = context_with(isa, threads);
    case_build(&c, spec);
    int complaints = check_built_case(context, &c);
    complaints += same_results(alone, &c);
    case_free(&c);
    gdn_context_destroy(&context);
    return complaints;
}

/* Thread counts cut the work by heads of a group and by panels of V: no cut may change a bit. */
static void thread_counts_change_no_bit(void **unused)
{
    (void)unused;
    static const int32_t heads[][2] = {{1, 1}, {1, 6}, {3, 3}, {2, 8}};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(isas); i++) {
        for (size_t h = 0; h < COUNT_OF(heads); h++) {
            test_case alone;
            const case_spec spec = {.label = "thread counts",
                                    .seed = h + 1,
                                    .num_k_heads = heads[h][0],
                                    .num_v_heads = heads[h][1],
                                    .head_v_dim = 176,
                                    /* One head, too, has work for more than one thread. */
                                    .lengths = LENGTHS(heads[h][1] == 1 ? 190 : 90, 17),
                                    .num_seqs = 2};
            gdn_context *context = context_for(isas[i], 1);
            if (!context) {
                break;
            }
            case_build(&alone, &spec);
            complaints += check_built_case(context, &alone);
            gdn_context_destroy(&context);
            for (int32_t threads = 2; threads <= 17; threads = threads * 2 - 1) {
                complaints += check_threads(&alone, &spec, isas[i], threads);
            }
            case_free(&alone);
        }
    }
    NO_COMPLAINTS(complaints);
}

/* A case in a context of one thread, judged, and on 2 to 5 threads, with the same bits. */
static int check_alone_and_threads(gdn_context *context, test_case *alone, const case_spec *spec)
{
    int complaints = check_built_case(context, alone);
    for (int32_t threads = 2; threads <= 5; threads++) {
        complaints += check_threads(alone, spec, NULL, threads);
    }
    return complaints;
}

/* Decode shares out whole heads, parts of few, and of many the ends once more. */
static void threads_of_decode_change_no_bit(void **unused)
{
    (void)unused;
    static const int64_t rows[] = {1, 3, 70};
    int complaints = 0;
    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        test_case alone;
        const case_spec spec = {.label = "threads of decode",
                                .seed = i + 1,
                                .operation = GDN_OPERATION_DECODE,
                                .num_k_heads = 1,
                                .num_v_heads = 3,
                                .head_v_dim = 48,
                                .num_seqs = rows[i / 2],
                                .tokens_per_row = 2,
                                .states = i % 2 ? STATES_KV : STATES_VK};
        gdn_context *context = context_with(NULL, 1);
        case_build(&alone, &spec);
        complaints += check_alone_and_threads(context, &alone, &spec);
        gdn_context_destroy(&context);
        case_free(&alone);
    }
    NO_COMPLAINTS(complaints);
}

/* Threads that have run out of sequences take over items, heads or panels of a long one while it runs: with the same bits. The
 * last heads are several items a thread. */
static void work_taken_over_changes_no_bit(void **unused)
{
    (void)unused;
    static const int32_t heads[][3] = {{1, 1, 32}, {1, 3, 32}, {4, 4, 32}, {2, 6, 32}, {3, 9, 256}};
    static const gdn_numerics numerics[] = {GDN_NUMERICS_DEFAULT, GDN_NUMERICS_BF16};
    int complaints = 0;
    for (size_t h = 0; h < COUNT_OF(heads) * COUNT_OF(numerics); h++) {
        test_case alone;
        const case_spec spec = {.label = "taken over",
                                .seed = h + 1,
                                .num_k_heads = heads[h / 2][0],
                                .num_v_heads = heads[h / 2][1],
                                .head_k_dim = heads[h / 2][2],
                                .head_v_dim = 80,
                                .numerics = numerics[h % 2],
                                .lengths = LENGTHS(13, heads[h / 2][2] == 32 ? 1100 : 300, 13, 13, 13),
                                .num_seqs = 5,
                                .checkpoint_form = GDN_CHECKPOINT_EVERY,
                                .checkpoint_interval = 60};
        gdn_context *context = context_with(NULL, 1);
        case_build(&alone, &spec);
        gdn_plan *plan = NULL;
        const gdn_status status = gdn_plan_create(&plan, context, &alone.problem);
        gdn_plan_destroy(&plan);
        if (status == GDN_ERROR_UNSUPPORTED) {
            print_message("rounded products left out: %s\n", gdn_last_error());
            case_free(&alone);
            gdn_context_destroy(&context);
            continue;
        }
        complaints += check_alone_and_threads(context, &alone, &spec);
        gdn_context_destroy(&context);
        case_free(&alone);
    }
    NO_COMPLAINTS(complaints);
}

/* Segments joined by (E, F) maps: judged as everything else, on lengths that divide nothing, with checkpoints on both sides
 * of a cut, with resets, and with the same bits on any number of threads. */
static void segments_asked_for(void **unused)
{
    (void)unused;
    static const int32_t segments[] = {2, 3, 8, 64};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(isas); i++) {
        for (int n = 0; n < 12; n += test_is_small() ? 5 : 1) {
            char label[64];
            snprintf(label, sizeof(label), "%s, %d segments, case %d", isas[i], (int)segments[n % 4], n);
            const case_spec spec = {.label = label,
                                    .seed = (uint64_t)n + 40,
                                    .num_k_heads = 1 + n % 2,
                                    .num_v_heads = (1 + n % 2) * (1 + n % 3),
                                    .head_k_dim = n % 3 == 0 ? 48 : 80,
                                    .head_v_dim = n % 3 == 1 ? 32 : 112,
                                    .head_map = (gdn_head_map)(n % 2),
                                    .lengths = LENGTHS(1 + 29 * n, 130, 0, 17),
                                    .num_seqs = 4,
                                    .chunk_size = n % 4 == 3 ? 32 : 0,
                                    .num_segments = segments[n % 4],
                                    .gates = (gate_regime)(n % NUM_GATE_REGIMES),
                                    .gate = -0.3,
                                    .dtype = n % 5 == 4 ? GDN_DTYPE_BF16 : GDN_DTYPE_F32,
                                    .checkpoint_form = n % 2 ? GDN_CHECKPOINT_EVERY : GDN_CHECKPOINT_NONE,
                                    .checkpoint_interval = n % 2 ? 11 : 0,
                                    .adversarial = true};
            test_case alone, team;
            gdn_context *context = context_for(isas[i], 1);
            if (!context) {
                break;
            }
            case_build(&alone, &spec);
            complaints += check_built_case(context, &alone);
            gdn_context_destroy(&context);
            context = context_with(isas[i], 3);
            case_build(&team, &spec);
            char name[64];
            case_implementation(context, &team, name);
            REQUIRE(strncmp(name, "cpu.", 4) == 0);
            complaints += check_built_case(context, &team) + same_results(&alone, &team);
            gdn_context_destroy(&context);
            case_free(&alone);
            case_free(&team);
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Operands rounded to bfloat16, only where numerics asks for it: each implementation that this machine has. */
static void bf16_products_where_asked_for(void **unused)
{
    (void)unused;
    static const char *const names[] = {"cpu.avx512_bf16", "cpu.amx_bf16"};
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        gdn_context_options options;
        REQUIRE_OK(gdn_context_options_init(&options));
        options.backend = "cpu";
        options.ignore_environment = 1;
        options.num_threads = 3;
        options.implementations = names[i];
        gdn_context *context = NULL;
        REQUIRE_OK(gdn_context_create(&context, &options));
        for (int32_t n = 0; n < 24; n++) {
            static const int32_t dims[][2] = {{32, 16}, {64, 80}, {96, 144}, {128, 128}, {256, 64}, {160, 48}};
            char label[64];
            snprintf(label, sizeof(label), "%s %d", names[i], (int)n);
            test_case c;
            case_build(&c, &(case_spec){.label = label,
                                        .seed = (uint64_t)n,
                                        .num_k_heads = 1 + n % 2,
                                        .num_v_heads = (1 + n % 2) * (1 + n % 3),
                                        .head_k_dim = dims[n % 6][0],
                                        .head_v_dim = dims[n % 6][1],
                                        .lengths = LENGTHS(1 + 7 * n, 33, 64 - n),
                                        .num_seqs = 3,
                                        .chunk_size = n % 3 * 32,
                                        .dtype = n % 4 == 3 ? GDN_DTYPE_BF16 : GDN_DTYPE_F32,
                                        .gates = n % 2 ? GATES_SMALL : GATES_STANDARD,
                                        .gate_form = n % 2 ? GDN_GATE_LOG_DECAY : GDN_GATE_RAW,
                                        .checkpoint_form = n % 5 == 4 ? GDN_CHECKPOINT_EVERY : GDN_CHECKPOINT_NONE,
                                        .checkpoint_interval = n % 5 == 4 ? 13 : 0,
                                        .numerics = GDN_NUMERICS_BF16});
            gdn_plan *plan = NULL;
            if (gdn_plan_create(&plan, context, &c.problem) == GDN_ERROR_UNSUPPORTED) {
                print_message("%s left out: %s\n", names[i], gdn_last_error());
                case_free(&c);
                break;
            }
            gdn_plan_destroy(&plan);
            complaints += check_built_case(context, &c);
            case_free(&c);
        }
        gdn_context_destroy(&context);
    }
    NO_COMPLAINTS(complaints);
}

/* Decode and segments are float32 only, and say so. */
static void rounded_products_are_refused_where_there_are_none(void **unused)
{
    (void)unused;
    const case_spec specs[] = {
        {.label = "decode", .operation = GDN_OPERATION_DECODE, .num_seqs = 2, .numerics = GDN_NUMERICS_BF16},
        {.label = "segments", .length = 100, .num_segments = 3, .numerics = GDN_NUMERICS_BF16},
    };
    gdn_context *context = context_with(NULL, 1);
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        test_case c;
        case_build(&c, &specs[i]);
        gdn_plan *plan = NULL;
        REQUIRE(gdn_plan_create(&plan, context, &c.problem) == GDN_ERROR_UNSUPPORTED);
        REQUIRE(strstr(gdn_last_error(), "float32 products only") || strstr(gdn_last_error(), "products are float32"));
        case_free(&c);
    }
    gdn_context_destroy(&context);
}

/* What the fused path does not take it says, and something else takes. */
static void other_dims_are_refused_with_the_reason(void **unused)
{
    (void)unused;
    gdn_context *context = context_with(NULL, 1);
    test_case c;
    case_build(&c, &(case_spec){.label = "odd dims", .seed = 3, .head_k_dim = 40, .head_v_dim = 48, .length = 30});
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &c.problem));
    char text[8192];
    REQUIRE_OK(gdn_plan_describe(plan, text, sizeof(text), NULL));
    REQUIRE(strstr(text, "head_k_dim 40 is not a multiple of 16") != NULL);
    gdn_plan_destroy(&plan);
    const int complaints = check_built_case(context, &c);
    case_free(&c);
    gdn_context_destroy(&context);
    NO_COMPLAINTS(complaints);
}

static size_t workspace_of(int32_t threads, const gdn_problem *problem)
{
    gdn_context *context = context_with(NULL, threads);
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, problem));
    const size_t size = gdn_plan_workspace_size(plan);
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
    return size;
}

/* Scratch is for what can run at once: as many threads as the context has and the work is worth, each with its share of the
 * states. */
static void scratch_follows_the_threads_and_the_work(void **unused)
{
    (void)unused;
    const size_t state = 1024 * 1024 * sizeof(float), thread = 512 << 10;
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 1024, 1024));
    p.max_tokens = 1;
    REQUIRE(workspace_of(1, &p) <= state + thread);
    REQUIRE(workspace_of(2, &p) <= state + 2 * thread);
    REQUIRE(workspace_of(64, &p) <= state + 32 * thread); /* 32 panels of columns */
    p.max_tokens = 1000;
    REQUIRE(workspace_of(64, &p) <= 2 * state + 64 * thread); /* in halves, each with the room of a whole one, */
    REQUIRE(workspace_of(1000, &p) <= 2 * state + 70 * thread); /* and chunks prepared ahead, by two threads */
    p.max_seqs = 1000;
    REQUIRE(workspace_of(1, &p) <= state + thread);
    REQUIRE(workspace_of(8, &p) <= 8 * (state + thread));

    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 128, 128));
    p.max_tokens = 30;
    REQUIRE(workspace_of(64, &p) == workspace_of(1, &p));

    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 1024, 1024));

    p.operation = GDN_OPERATION_DECODE;
    p.tokens_per_row = 1;
    p.max_seqs = 1;
    const size_t one = workspace_of(1, &p);
    REQUIRE(one <= thread);
    p.max_seqs = 1000;
    REQUIRE(workspace_of(1, &p) == one);
    REQUIRE(workspace_of(8, &p) <= 8 * one);
}

/* Down to the least cap that a plan takes: shorter bundles, fewer threads, then narrower items, with the same bits. */
static void capped_workspaces_change_no_bit(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "cap",
                      .seed = 5,
                      .num_k_heads = 3,
                      .num_v_heads = 9,
                      .head_k_dim = 64,
                      .head_v_dim = 176,
                      .lengths = LENGTHS(test_is_small() ? 120 : 700, 0, 33),
                      .num_seqs = 3};
    int complaints = 0, caps = 0;
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        gdn_context *context = context_with(NULL, threads);
        test_case free_of_it;
        spec.max_workspace = 0;
        case_build(&free_of_it, &spec);
        complaints += check_built_case(context, &free_of_it);
        size_t cap = workspace_of(threads, &free_of_it.problem), least = 1;
        gdn_problem p = free_of_it.problem;
        gdn_plan *plan = NULL;
        p.max_workspace = 1;
        REQUIRE(gdn_plan_create(&plan, context, &p) == GDN_ERROR_UNSUPPORTED);
        least = strtoull(strstr(gdn_last_error(), "at least ") + strlen("at least "), NULL, 10);
        for (bool last = false; !last; caps++) {
            cap = cap * 3 / 4;
            last = cap <= least;
            test_case capped;
            spec.max_workspace = last ? least : cap;
            case_build(&capped, &spec);
            REQUIRE_OK(case_run(context, &capped, NULL));
            complaints += same_results(&free_of_it, &capped);
            case_free(&capped);
        }
        case_free(&free_of_it);
        gdn_context_destroy(&context);
    }
    REQUIRE(caps > 6);
    NO_COMPLAINTS(complaints);
}

/* Segments need more scratch than the generic path does; a cap may not change one for the other, whose bits differ. */
static void a_cap_does_not_choose_the_implementation(void **unused)
{
    (void)unused;
    gdn_context *context = context_with(NULL, 16);
    case_spec spec = {.label = "cap of segments",
                      .seed = 6,
                      .num_k_heads = 4,
                      .num_v_heads = 4,
                      .head_k_dim = 64,
                      .length = 300,
                      .num_segments = 4};
    test_case free_of_it;
    case_build(&free_of_it, &spec);
    REQUIRE_OK(case_run(context, &free_of_it, NULL));
    char name[64], capped_name[64];
    case_implementation(context, &free_of_it, name);
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &free_of_it.problem));
    size_t cap = gdn_plan_workspace_size(plan);
    gdn_plan_destroy(&plan);
    int fitted = 0, complaints = 0;
    for (; cap > 0; cap -= cap / 5 + 1) {
        test_case capped;
        spec.max_workspace = cap;
        case_build(&capped, &spec);
        if (gdn_plan_create(&plan, context, &capped.problem) == GDN_OK) {
            gdn_plan_destroy(&plan);
            fitted++;
            case_implementation(context, &capped, capped_name);
            assert_string_equal(capped_name, name);
            REQUIRE_OK(case_run(context, &capped, NULL));
            complaints += same_results(&free_of_it, &capped);
        } else {
            REQUIRE(strstr(gdn_last_error(), "max_workspace: ") != NULL);
        }
        case_free(&capped);
    }
    /* A context of one thread, as without OpenMP, takes the least from the start. */
    const bool has_room = workspace_of(16, &free_of_it.problem) > workspace_of(1, &free_of_it.problem);
    REQUIRE(fitted > (has_room ? 1 : 0));
    case_free(&free_of_it);
    gdn_context_destroy(&context);
    NO_COMPLAINTS(complaints);
}

int main(void)
{
    if (!test_backend_is_host()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_counts_change_no_bit),
        cmocka_unit_test(threads_of_decode_change_no_bit),
        cmocka_unit_test(work_taken_over_changes_no_bit),
        cmocka_unit_test(segments_asked_for),
        cmocka_unit_test(bf16_products_where_asked_for),
        cmocka_unit_test(rounded_products_are_refused_where_there_are_none),
        cmocka_unit_test(other_dims_are_refused_with_the_reason),
        cmocka_unit_test(scratch_follows_the_threads_and_the_work),
        cmocka_unit_test(capped_workspaces_change_no_bit),
        cmocka_unit_test(a_cap_does_not_choose_the_implementation),
    };
    return RUN_SUITE("cpu_fused_options", tests);
}
