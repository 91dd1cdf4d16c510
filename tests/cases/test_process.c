/* The library inside a process: forks, threads, nested parallelism, floating-point modes, fresh processes. */
#define _GNU_SOURCE
#include "suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

static case_spec model_layer(const char *label, uint64_t seed)
{
    return (case_spec){.label = label,
                       .seed = seed,
                       .num_k_heads = 4,
                       .num_v_heads = 8,
                       .head_k_dim = 32,
                       .gate_form = GDN_GATE_RAW,
                       .beta_form = GDN_BETA_LOGIT,
                       .qk_norm = GDN_QK_NORM_RSQRT,
                       .length = 300};
}

static int run_in_child(gdn_context *context, test_case *c, const test_case *want)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* a hang kills the child */
        const bool good = case_run(context, c, NULL) == GDN_OK && same_results(c, want) == 0;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Entry 77: worker threads do not survive a fork; the child must not wait for them. The context is used in the parent
 * before, in the child, and in the parent again. */
static void a_forked_child_runs_calls(void **unused)
{
    (void)unused;
#if defined(__SANITIZE_THREAD__)
    skip(); /* the thread sanitizer does not follow forks of a threaded process */
#endif
    if (!test_backend_is_host()) {
        skip(); /* a device context does not survive a fork, which is documented */
    }
    gdn_context *context = test_context_with_threads(4);
    const case_spec spec = model_layer("fork", 1501);
    test_case parent, child;
    case_build(&parent, &spec);
    case_build(&child, &spec);
    NO_COMPLAINTS(check_built_case(context, &parent));
    assert_int_equal(run_in_child(context, &child, &parent), 0);
    assert_int_equal(case_run(context, &child, NULL), GDN_OK);
    NO_COMPLAINTS(same_results(&child, &parent));
    case_free(&parent);
    case_free(&child);
    gdn_context_destroy(&context);
}

/* A child that makes its own context, after a parent that used several threads. */
static void a_forked_child_makes_its_own_context(void **unused)
{
    (void)unused;
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
    if (!test_backend_is_host()) {
        skip();
    }
    const case_spec spec = model_layer("fork, own context", 1502);
    test_case c;
    case_build(&c, &spec);
    gdn_context *context = test_context_with_threads(3);
    assert_int_equal(case_run(context, &c, NULL), GDN_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        gdn_context *own = test_context_with_threads(4);
        const int complaints = check_built_case(own, &c);
        gdn_context_destroy(&own);
        _exit(complaints == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gdn_context_destroy(&context);
    case_free(&c);
}

typedef struct caller {
    gdn_context *context;
    uint64_t seed;
    int calls;
    int complaints;
} caller;

static void *call_often(void *user)
{
    caller *const self = user;
    case_spec spec = model_layer("first of a thread", self->seed);
    spec.length = 65 + (int64_t)(self->seed % 7) * 13;
    spec.head_k_dim = 16;
    test_case first, c;
    case_build(&first, &spec);
    case_build(&c, &spec);
    self->complaints += check_built_case(self->context, &first);
    staged_case stage;
    if (stage_open(&stage, self->context, &c) != GDN_OK) {
        self->complaints++;
        return NULL;
    }
    for (int i = 0; i < self->calls && self->complaints == 0; i++) {
        self->complaints += stage_run(&stage) != GDN_OK;
        self->complaints += stage_collect(&stage) + same_results(&first, &c);
    }
    stage_close(&stage);
    case_free(&first);
    case_free(&c);
    return NULL;
}

/* Entry 32: scratch shared between callers. Eight threads, one context, a workspace each. */
static void threads_share_a_context_and_nothing_else(void **unused)
{
    (void)unused;
    enum { THREADS = 8 };
    caller callers[THREADS];
    pthread_t threads[THREADS];
    gdn_context *context = test_context_with_threads(2);
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (caller){context, 1510 + (uint64_t)i, test_is_small() ? 5 : 25, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    int complaints = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        complaints += callers[i].complaints;
    }
    gdn_context_destroy(&context);
    NO_COMPLAINTS(complaints);
}

static void *call_with_own_context(void *user)
{
    caller *const self = user;
    self->context = test_context_with_threads(2);
    call_often(self);
    gdn_context_destroy(&self->context);
    return NULL;
}

static void contexts_are_made_and_used_by_several_threads_at_once(void **unused)
{
    (void)unused;
    enum { THREADS = 4 };
    caller callers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (caller){NULL, 1530 + (uint64_t)i, test_is_small() ? 2 : 10, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, call_with_own_context, &callers[i]), 0);
    }
    int complaints = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        complaints += callers[i].complaints;
    }
    NO_COMPLAINTS(complaints);
}

/* Entry 108: a call from inside the caller's own parallel region must not multiply threads, nor change its bits. */
static void calls_nest_in_parallel_regions(void **unused)
{
    (void)unused;
#if defined(_OPENMP)
    const case_spec spec = model_layer("outside", 1540);
    test_case first, c[3];
    case_build(&first, &spec);
    assert_int_equal(case_run(test_context(), &first, NULL), GDN_OK);
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        case_build(&c[i], &spec);
    }
#pragma omp parallel for num_threads(3) reduction(+ : failed)
    for (int i = 0; i < 3; i++) {
        failed += case_run(test_context(), &c[i], NULL) != GDN_OK;
    }
    assert_int_equal(failed, 0);
    int complaints = 0;
    for (int i = 0; i < 3; i++) {
        complaints += same_results(&first, &c[i]);
        case_free(&c[i]);
    }
    case_free(&first);
    NO_COMPLAINTS(complaints);
#else
    skip();
#endif
}

/* FNV-1a of o and the states. */
static uint64_t hash_outputs(const test_case *c)
{
    uint64_t hash = 14695981039346656037u;
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        for (size_t b = 0; b < c->buffer[i].bytes && c->buffer[i].written; b++) {
            hash = (hash ^ c->buffer[i].after[b]) * 1099511628211u;
        }
    }
    return hash;
}

/* Entry 83: subnormal states are right, and the caller's floating-point modes come back as they were, whichever they
 * were, and change no bit. */
static void subnormal_states_leave_the_callers_modes_alone(void **unused)
{
    (void)unused;
    const case_spec spec = {.label = "S0 = 1e-39",
                            .seed = 1550,
                            .num_k_heads = 2,
                            .length = 200,
                            .gates = GATES_CONSTANT,
                            .betas = BETAS_CONSTANT};
    const case_spec decaying = {.label = "a state that decays to nothing",
                                .seed = 1551,
                                .num_k_heads = 2,
                                .length = 300,
                                .gates = GATES_CONSTANT,
                                .gate = -0.5,
                                .betas = BETAS_CONSTANT,
                                .state_size = 1};
    test_case c;
    case_build(&c, &spec);
    for (int32_t head = 0; head < 2; head++) {
        for (int32_t v = 0; v < 32; v++) {
            for (int32_t k = 0; k < 32; k++) {
                case_put_state(&c, CASE_STATE, 0, head, v, k, 1e-39);
            }
        }
    }
#if defined(__x86_64__)
    /* Default, flush to zero, round to zero, down, up, traps of invalid operations and divisions by zero. */
    const unsigned modes[] = {0x1f80, 0x9fc0, 0x7f80, 0x1f80 | 0x2000, 0x1f80 | 0x4000, 0x1f80 & ~0x280u};
    uint64_t bits = 0;
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        _mm_setcsr(modes[i]);
        if (_mm_getcsr() != modes[i]) {
            continue; /* valgrind knows rounding modes alone */
        }
        const gdn_status status = case_run(test_context(), &c, NULL);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(0x1f80);
        assert_int_equal(status, GDN_OK);
        assert_int_equal(after & ~0x3fu, modes[i]); /* but for the sticky flags */
        const uint64_t now = hash_outputs(&c);
        assert_true(i == 0 || now == bits);
        bits = now;
    }
#endif
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    NO_COMPLAINTS(check_case(&decaying));
    case_free(&c);
}

static const char *own_name; /* argv[0] */

/* Entry 69: fresh processes must agree. This program runs itself with an argument that prints the hash, by the emulator that it
 * runs under itself. */
static void fresh_processes_agree(void **unused)
{
    (void)unused;
    char command[4200];
    const char *const emulator = getenv("GDN_TEST_EMULATOR");
    snprintf(command, sizeof(command), "%s '%s' hash", emulator != NULL ? emulator : "", own_name);
    char first[64] = "";
    for (int i = 0; i < (test_is_small() ? 2 : 8); i++) {
        FILE *const pipe = popen(command, "r");
        assert_non_null(pipe);
        char line[64] = "";
        assert_non_null(fgets(line, sizeof(line), pipe));
        assert_int_equal(pclose(pipe), 0);
        if (i == 0) {
            memcpy(first, line, sizeof(first));
        }
        assert_string_equal(line, first);
    }
}

static int print_hash(void)
{
    uint64_t hash = 0;
    const case_spec spec = model_layer("fresh process", 1560);
    for (int i = 0; i < 5; i++) {
        test_case c;
        case_build(&c, &spec);
        if (case_run(test_context(), &c, NULL) != GDN_OK || (i > 0 && hash != hash_outputs(&c))) {
            return 1;
        }
        hash = hash_outputs(&c);
        case_free(&c);
    }
    printf("%016llx\n", (unsigned long long)hash);
    return 0;
}

int main(int argc, char **argv)
{
    own_name = argv[0];
    if (argc > 1 && strcmp(argv[1], "hash") == 0) {
        return print_hash();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_runs_calls),
        cmocka_unit_test(a_forked_child_makes_its_own_context),
        cmocka_unit_test(threads_share_a_context_and_nothing_else),
        cmocka_unit_test(contexts_are_made_and_used_by_several_threads_at_once),
        cmocka_unit_test(calls_nest_in_parallel_regions),
        cmocka_unit_test(subnormal_states_leave_the_callers_modes_alone),
        cmocka_unit_test(fresh_processes_agree),
    };
    return RUN_SUITE("process", tests);
}
