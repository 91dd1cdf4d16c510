/* What goes wrong on a device, and what the library says of it. */
#include "gpu_tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static gdn_context *context;

static int set_up(void **state)
{
    (void)state;
    context = gpu_context(0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

static const int64_t three_lengths[] = {70, 30, 17};

static case_spec pool_spec(void)
{
    const case_spec spec = {.label = "faults",
                            .seed = 1,
                            .num_k_heads = 1,
                            .num_v_heads = 2,
                            .lengths = three_lengths,
                            .num_seqs = 3,
                            .state_form = GDN_STATE_POOL,
                            .num_slots = 8};
    return spec;
}

static void require_message(const char *word)
{
    if (strstr(gdn_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not name %s", gdn_last_error(), word);
    }
}

/* Puts one bad number into the metadata: the run says which row, writes nothing for it, and does the rows that are
 * right. Rows with `good` false must be as they were. */
static void bad_metadata(case_operand operand, int64_t index, int64_t value, gdn_status expected, const char *word,
                         const bool good[3])
{
    const case_spec spec = pool_spec();
    test_case plain;
    test_case c;
    case_build(&plain, &spec);
    case_build(&c, &spec);
    REQUIRE_OK(case_run(context, &plain, NULL));
    ((int64_t *)(void *)case_before(&c, operand))[index] = value;
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    REQUIRE(stage_run(&stage) == expected);
    require_message(word);
    REQUIRE(stage_collect(&stage) == 0);
    stage_close(&stage);
    int complaints = 0;
    for (int64_t n = 0; n < 3; n++) {
        const int64_t first = case_first_token(&plain, n);
        const int64_t count = three_lengths[n];
        const size_t bytes = sizeof(float) * (size_t)c.problem.head_v_dim * (size_t)c.problem.num_v_heads;
        const size_t at = (size_t)first * bytes;
        const unsigned char *const o = case_after(&c, CASE_O) + at;
        const unsigned char *const other = good[n] ? case_after(&plain, CASE_O) + at : case_before(&c, CASE_O) + at;
        complaints += memcmp(o, other, (size_t)count * bytes) != 0;
    }
    NO_COMPLAINTS(complaints);
    case_free(&plain);
    case_free(&c);
}

static void bad_metadata_is_found_by_its_row(void **state)
{
    (void)state;
    const bool not_first[] = {false, true, true};
    const bool only_first[] = {true, false, false};
    const bool not_last[] = {true, true, false};
    const bool not_middle[] = {true, false, true};
    /* Bounds 0, 70, 100, 117. */
    bad_metadata(CASE_CU_SEQLENS, 0, 1, GDN_ERROR_INVALID_ARGUMENT, "sequence 0", not_first);
    bad_metadata(CASE_CU_SEQLENS, 3, 118, GDN_ERROR_INVALID_ARGUMENT, "sequence 2", not_last);
    bad_metadata(CASE_CU_SEQLENS, 3, -1, GDN_ERROR_INVALID_ARGUMENT, "sequence 2", not_last);
    bad_metadata(CASE_CU_SEQLENS, 2, INT64_MAX, GDN_ERROR_INVALID_ARGUMENT, "sequence 1", only_first);
    bad_metadata(CASE_CU_SEQLENS, 2, 69, GDN_ERROR_INVALID_ARGUMENT, "sequence 1", only_first);
    bad_metadata(CASE_READ_SLOTS, 1, 8, GDN_ERROR_INVALID_ARGUMENT, "read_slots[1]", not_middle);
    bad_metadata(CASE_WRITE_SLOTS, 0, INT64_MAX, GDN_ERROR_INVALID_ARGUMENT, "write_slots[0]", not_first);
}

/* So many rows that several blocks build the chunk table: all of them leave out the same one. */
static void one_bad_row_among_many_is_left_out_alone(void **state)
{
    (void)state;
    enum { ROWS = 20000, BAD = 12345 };
    const case_spec spec = {
        .label = "many rows", .seed = 8, .head_k_dim = 8, .length = 1, .num_seqs = ROWS, .state_form = GDN_STATE_POOL};
    test_case plain;
    test_case c;
    case_build(&plain, &spec);
    case_build(&c, &spec);
    REQUIRE_OK(case_run(context, &plain, NULL));
    c.problem.check = 1;
    ((int64_t *)(void *)case_before(&c, CASE_READ_SLOTS))[BAD] = INT64_MAX;
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    REQUIRE(stage_run(&stage) == GDN_ERROR_INVALID_ARGUMENT);
    require_message("read_slots[12345]");
    REQUIRE(stage_collect(&stage) == 0);
    const size_t row = 8 * sizeof(float);
    const unsigned char *const o = case_after(&c, CASE_O);
    const unsigned char *const other = case_after(&plain, CASE_O);
    REQUIRE(memcmp(o, other, BAD * row) == 0);
    REQUIRE(memcmp(o + BAD * row, case_before(&c, CASE_O) + BAD * row, row) == 0);
    REQUIRE(memcmp(o + (BAD + 1) * row, other + (BAD + 1) * row, (ROWS - BAD - 1) * row) == 0);
    stage_close(&stage);
    case_free(&plain);
    case_free(&c);
}

/* With check = 1 slot conflicts and gate ranges are looked at, too, and nothing at all is written. */
static void conflicts_and_gates_are_found_when_asked_for(void **state)
{
    (void)state;
    const int64_t reads[] = {0, 2, 4};
    const int64_t conflicting[] = {1, 4, 5};
    for (int which = 0; which < 3; which++) {
        case_spec spec = pool_spec();
        spec.read_slots = reads;
        spec.write_slots = which == 0 ? conflicting : NULL;
        spec.gate_form = which == 2 ? GDN_GATE_DECAY : GDN_GATE_LOG_DECAY;
        test_case c;
        case_build(&c, &spec);
        c.problem.check = 1;
        if (which > 0) {
            case_put(&c, CASE_GATE, 75, 1, 0, which == 2 ? 1.5 : 0.25);
        }
        staged_case stage;
        REQUIRE_OK(stage_open(&stage, context, &c));
        REQUIRE(stage_run(&stage) == (which == 0 ? GDN_ERROR_SLOT_CONFLICT : GDN_ERROR_INVALID_ARGUMENT));
        require_message(which == 0 ? "slot 4" : "token 75");
        REQUIRE(stage_collect(&stage) == 0);
        NO_COMPLAINTS(judge_nothing_written(&c));
        stage_close(&stage);
        case_free(&c);
    }
}

static void host_pointers_are_refused_by_name(void **state)
{
    (void)state;
    const case_spec spec = {.label = "host pointer", .seed = 2, .length = 20};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    gdn_prefill_args args = stage.prefill;
    args.k = case_before(&c, CASE_K);
    REQUIRE(gdn_prefill(stage.plan, &args) == GDN_ERROR_INVALID_ARGUMENT);
    require_message("k: ");
    require_message("host memory");

    void *pinned = NULL;
    REQUIRE_CUDA(cudaMallocHost(&pinned, c.buffer[c.view[CASE_O].buffer].bytes));
    args = stage.prefill;
    args.o = pinned;
    REQUIRE(gdn_prefill(stage.plan, &args) == GDN_ERROR_INVALID_ARGUMENT);
    require_message("o: ");
    REQUIRE_CUDA(cudaFreeHost(pinned));

    args = stage.prefill;
    args.workspace = aligned_alloc(GDN_WORKSPACE_ALIGNMENT, (args.workspace_size + 255) / 256 * 256);
    REQUIRE(args.workspace != NULL);
    REQUIRE(gdn_prefill(stage.plan, &args) == GDN_ERROR_INVALID_ARGUMENT);
    require_message("workspace: ");
    free(args.workspace);

    REQUIRE_OK(stage_run(&stage)); /* none of that has left a mark */
    stage_close(&stage);
    case_free(&c);
}

/* The reverse, where a CUDA context has been made in the process: the CPU would crash on it. */
static void device_pointers_are_refused_by_the_cpu(void **state)
{
    (void)state;
    gdn_context_options options;
    gdn_context *cpu = NULL;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    REQUIRE_OK(gdn_context_create(&cpu, &options));
    const case_spec spec = {.label = "device pointer", .seed = 7, .length = 20};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, cpu, &c));
    void *device = NULL;
    REQUIRE_OK(gdn_memory_alloc(context, &device, c.buffer[c.view[CASE_V].buffer].bytes));
    gdn_prefill_args args = stage.prefill;
    args.v = device;
    REQUIRE(gdn_prefill(stage.plan, &args) == GDN_ERROR_INVALID_ARGUMENT);
    require_message("v: ");
    require_message("cuda device");
    REQUIRE_OK(gdn_memory_free(context, &device));
    REQUIRE_OK(stage_run(&stage));
    stage_close(&stage);
    case_free(&c);
    gdn_context_destroy(&cpu);
}

static void running_out_of_memory_is_said_and_over(void **state)
{
    (void)state;
    void *ptr = &ptr;
    REQUIRE(gdn_memory_alloc(context, &ptr, (size_t)1 << 50) == GDN_ERROR_OUT_OF_MEMORY);
    require_message("1125899906842624 bytes");
    REQUIRE(ptr == NULL);
    REQUIRE_OK(gdn_memory_alloc(context, &ptr, 1024));
    REQUIRE_OK(gdn_memory_free(context, &ptr));
    const case_spec spec = {.label = "after running out of memory", .seed = 3, .length = 20};
    NO_COMPLAINTS(check_case(&spec));
}

/* A stream of a destroyed handle cannot be launched on: the call fails by name, and the next one works. */
static void a_failed_launch_leaves_nothing_behind(void **state)
{
    (void)state;
    const case_spec spec = {.label = "launch", .seed = 4, .length = 20};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    REQUIRE_OK(stage_run(&stage));

    /* Another stream's capture forbids work on the legacy default stream while it lasts. */
    cudaStream_t capturing;
    cudaGraph_t graph = NULL;
    REQUIRE_CUDA(cudaStreamCreate(&capturing));
    REQUIRE_CUDA(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal));
    gdn_prefill_args args = stage.prefill;
    args.stream = NULL;
    const gdn_status status = gdn_prefill(stage.plan, &args);
    REQUIRE(status == GDN_ERROR_DEVICE);
    require_message("cudaError");
    (void)cudaStreamEndCapture(capturing, &graph);
    (void)cudaGetLastError();
    if (graph != NULL) {
        REQUIRE_CUDA(cudaGraphDestroy(graph));
    }
    REQUIRE_CUDA(cudaStreamDestroy(capturing));

    REQUIRE_OK(stage_run(&stage));
    stage_close(&stage);
    case_free(&c);
}

static void two_contexts_of_one_device_work_side_by_side(void **state)
{
    (void)state;
    gdn_context *other = gpu_context(0);
    const case_spec spec = {.label = "two contexts", .seed = 5, .num_v_heads = 2, .length = 90};
    test_case a;
    test_case b;
    case_build(&a, &spec);
    case_build(&b, &spec);
    REQUIRE_OK(case_run(other, &a, NULL));
    REQUIRE_OK(case_run(context, &b, NULL));
    gdn_context_destroy(&other);
    NO_COMPLAINTS(same_results(&a, &b));
    REQUIRE_OK(case_run(context, &b, NULL)); /* the device is still there for the other */
    case_free(&a);
    case_free(&b);
}

/* In a process of its own, since the device is lost to it: every CUDA call then names the error, and the CPU goes on. */
static int lose_the_device(void)
{
    context = gpu_context(0);
    const case_spec spec = {.label = "sticky", .seed = 6, .length = 20};
    test_case c;
    case_build(&c, &spec);
    staged_case stage;
    REQUIRE_OK(stage_open(&stage, context, &c));
    REQUIRE_OK(stage_run(&stage));
    gpu_break(NULL);
    (void)cudaDeviceSynchronize();
    for (int i = 0; i < 2; i++) {
        if (gdn_prefill(stage.plan, &stage.prefill) != GDN_ERROR_DEVICE ||
            strstr(gdn_last_error(), "cudaErrorIllegalAddress") == NULL) {
            fprintf(stderr, "prefill after an illegal access: %s\n", gdn_last_error());
            return 1;
        }
        if (gdn_synchronize(context, NULL) != GDN_ERROR_DEVICE ||
            strstr(gdn_last_error(), "cudaErrorIllegalAddress") == NULL) {
            fprintf(stderr, "synchronize after an illegal access: %s\n", gdn_last_error());
            return 1;
        }
    }
    gdn_context_options options;
    gdn_context *cpu = NULL;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    REQUIRE_OK(gdn_context_create(&cpu, &options));
    if (check_built_case(cpu, &c) != 0) {
        fprintf(stderr, "the CPU does not go on after a lost device\n");
        return 1;
    }
    gdn_context_destroy(&cpu);
    return 0;
}

static const char *program;

static void a_lost_device_is_named_and_the_cpu_goes_on(void **state)
{
    (void)state;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        execl(program, program, "lose", (char *)NULL);
        _exit(99);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "lose") == 0) {
        return lose_the_device();
    }
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_metadata_is_found_by_its_row),
        cmocka_unit_test(one_bad_row_among_many_is_left_out_alone),
        cmocka_unit_test(conflicts_and_gates_are_found_when_asked_for),
        cmocka_unit_test(host_pointers_are_refused_by_name),
        cmocka_unit_test(device_pointers_are_refused_by_the_cpu),
        cmocka_unit_test(running_out_of_memory_is_said_and_over),
        cmocka_unit_test(a_failed_launch_leaves_nothing_behind),
        cmocka_unit_test(two_contexts_of_one_device_work_side_by_side),
        cmocka_unit_test(a_lost_device_is_named_and_the_cpu_goes_on),
    };
    return cmocka_run_group_tests_name("cuda faults", tests, set_up, tear_down);
}
