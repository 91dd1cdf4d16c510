/* Calls with fewer panels of state than threads: panels are cut in halves, and threads without one prepare chunks for the others.
 * Who prepares a chunk changes no bit, and a chunk stays as long as anyone may read it. */
#include "fused_contexts.h"

#include "fused_ahead.h"
#include "fused_sequence.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------- Whole calls */

/* Each is worth a team, as 250 tokens of a head of 64 x 80 are, and has long sequences. */
static const case_spec specs[] = {
    {.label = "one head", .num_k_heads = 1, .num_v_heads = 1, .lengths = LENGTHS(417), .num_seqs = 1},
    {.label = "one half panel", .head_v_dim = 16, .lengths = LENGTHS(1301), .num_seqs = 1},
    {.label = "a group", .num_k_heads = 1, .num_v_heads = 3, .lengths = LENGTHS(430, 0, 33), .num_seqs = 3},
    {.label = "two key heads",
     .num_k_heads = 2,
     .num_v_heads = 4,
     .head_map = GDN_HEAD_MAP_TILED,
     .lengths = LENGTHS(203),
     .num_seqs = 1,
     .checkpoint_form = GDN_CHECKPOINT_EVERY,
     .checkpoint_interval = 23},
    {.label = "skipped sequences",
     .num_k_heads = 1,
     .num_v_heads = 2,
     .lengths = LENGTHS(164, 250, 90),
     .num_seqs = 3,
     .state_form = GDN_STATE_POOL,
     .read_slots = SLOTS(1, 2, 3),
     .write_slots = SLOTS(-1, 5, 6)},
    {.label = "more sequences planned", .lengths = LENGTHS(330), .num_seqs = 1, .spare_seqs = 3, .spare_tokens = 900},
    {.label = "16 bits", .num_v_heads = 1, .lengths = LENGTHS(310), .num_seqs = 1, .dtype = GDN_DTYPE_BF16},
    {.label = "long chunks", .num_v_heads = 1, .lengths = LENGTHS(333), .num_seqs = 1, .chunk_size = 64},
};

static const int32_t thread_counts[] = {2, 4, 5, 8, 24};

/* The case on one thread, judged, and on more, with the same bits. */
static int check_spec(const char *isa, case_spec spec)
{
    test_case alone;
    spec.head_k_dim = 64;
    spec.head_v_dim = spec.head_v_dim ? spec.head_v_dim : 80;
    gdn_context *context = context_with(isa, 1);
    case_build(&alone, &spec);
    int complaints = check_built_case(context, &alone);
    gdn_context_destroy(&context);
    for (size_t i = 0; i < COUNT_OF(thread_counts); i += test_is_small() ? 2 : 1) {
        test_case c;
        context = context_with(isa, thread_counts[i]);
        case_build(&c, &spec);
        for (int run = 0; run < 2; run++) {
            REQUIRE_OK(case_run(context, &c, NULL));
            complaints += same_results(&alone, &c);
        }
        case_free(&c);
        gdn_context_destroy(&context);
    }
    case_free(&alone);
    return complaints;
}

static void threads_without_a_panel_change_no_bit(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(isas); i++) {
        gdn_context *context = context_for(isas[i], 1);
        if (!context) {
            continue;
        }
        gdn_context_destroy(&context);
        for (size_t n = 0; n < COUNT_OF(specs); n++) {
            complaints += check_spec(isas[i], specs[n]);
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Each kind of bfloat16 products that this machine has. */
static void with_rounded_products_too(void **unused)
{
    (void)unused;
    static const char *const names[] = {"cpu.avx512_bf16", "cpu.amx_bf16"};
    int complaints = 0;
    for (size_t n = 0; n < COUNT_OF(names) * COUNT_OF(specs); n++) {
        case_spec spec = specs[n / COUNT_OF(names)];
        spec.head_k_dim = 64;
        spec.head_v_dim = spec.head_v_dim ? spec.head_v_dim : 80;
        spec.numerics = GDN_NUMERICS_BF16;
        test_case alone;
        case_build(&alone, &spec);
        for (size_t i = 0; i <= COUNT_OF(thread_counts); i++) {
            gdn_context_options options;
            REQUIRE_OK(gdn_context_options_init(&options));
            options.backend = "cpu";
            options.ignore_environment = 1;
            options.num_threads = i == 0 ? 1 : thread_counts[i - 1];
            options.implementations = names[n % COUNT_OF(names)];
            gdn_context *context = NULL;
            REQUIRE_OK(gdn_context_create(&context, &options));
            gdn_plan *plan = NULL;
            const bool has = gdn_plan_create(&plan, context, &alone.problem) == GDN_OK;
            gdn_plan_destroy(&plan);
            if (has && i == 0) {
                complaints += check_built_case(context, &alone);
            } else if (has) {
                test_case c;
                case_build(&c, &spec);
                REQUIRE_OK(case_run(context, &c, NULL));
                complaints += same_results(&alone, &c);
                case_free(&c);
            }
            gdn_context_destroy(&context);
        }
        case_free(&alone);
    }
    NO_COMPLAINTS(complaints);
}

static bool books_chunks(const gdn_plan *plan)
{
    static char text[16384];
    REQUIRE_OK(gdn_plan_describe(plan, text, sizeof(text), NULL));
    return strstr(text, "chunks prepared ahead") != NULL;
}

static size_t workspace_of(gdn_context *context, const gdn_problem *problem, bool *booked)
{
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, problem));
    const size_t size = gdn_plan_workspace_size(plan);
    *booked = books_chunks(plan);
    gdn_plan_destroy(&plan);
    return size;
}

/* Less scratch: no prepared chunks, then fewer threads. */
static void caps_change_no_bit(void **unused)
{
    (void)unused;
    case_spec spec = {.label = "cap", .seed = 8, .head_k_dim = 64, .head_v_dim = 80, .length = 300};
    gdn_context *one = context_with(NULL, 1), *context = context_with(NULL, 16);
    test_case free_of_it;
    case_build(&free_of_it, &spec);
    int complaints = check_built_case(context, &free_of_it);
    bool booked;
    const size_t least = workspace_of(one, &free_of_it.problem, &booked);
    assert_false(booked);
    const size_t whole = workspace_of(context, &free_of_it.problem, &booked);
    assert_int_equal(booked, whole > least); /* they are equal without OpenMP */
    gdn_context_destroy(&one);
    for (size_t cap = whole; cap > 0; cap -= cap / 8 + 1) {
        test_case capped;
        spec.max_workspace = cap;
        case_build(&capped, &spec);
        gdn_plan *plan = NULL;
        if (gdn_plan_create(&plan, context, &capped.problem) == GDN_OK) {
            REQUIRE(gdn_plan_workspace_size(plan) <= cap);
            booked = books_chunks(plan);
            gdn_plan_destroy(&plan);
            REQUIRE_OK(case_run(context, &capped, NULL));
            complaints += same_results(&free_of_it, &capped);
        }
        case_free(&capped);
    }
    assert_false(booked);
    case_free(&free_of_it);
    gdn_context_destroy(&context);
    NO_COMPLAINTS(complaints);
}

/* -------------------------------------------------------------------------------------- The ring */

enum { CHUNK = 16, CHUNKS = 30, ITEMS = 2, THREADS = 2 };

static const gdn_cpu_kernels *const kernels = &gdn_cpu_kernels_scalar;

typedef struct ring {
    test_case c;
    gdn_prefill_args args;
    gdn_choice choice;
    gdn_prefill_run run;
    gdn_ahead ahead;
    gdn_sequence_run s;
    unsigned char *base;
    const gdn_cpu_kernels *helping; /* those of threads that help */
} ring;

/* One head in so many items. */
static void open_ring(ring *r, int items)
{
    case_build(&r->c, &(case_spec){.label = "ring", .seed = 4, .head_k_dim = 32, .length = CHUNKS * CHUNK});
    r->args = case_prefill_args_before(&r->c);
    r->choice = (gdn_choice){.chunk_size = CHUNK};
    r->run = (gdn_prefill_run){.problem = &r->c.problem, .args = &r->args, .choice = &r->choice};
    REQUIRE(gdn_fused_find_sequence(&r->run, 0, &r->s));
    const size_t bytes = gdn_ahead_bytes(kernels, &r->c.problem, CHUNK);
    r->base = aligned_alloc(GDN_WORKSPACE_ALIGNMENT,
                            (bytes + GDN_WORKSPACE_ALIGNMENT - 1) / GDN_WORKSPACE_ALIGNMENT * GDN_WORKSPACE_ALIGNMENT);
    REQUIRE(r->base != NULL);
    memset(r->base, 0xff, bytes);
    const gdn_item_cut cut = {
        .keys = 1, .key_parts = 1, .heads = 1, .head_parts = 1, .panels = 1, .panel_parts = items, .items = items};
    gdn_ahead_begin(&r->ahead, kernels, &r->run, &cut, r->base);
    r->helping = kernels;
}

static void close_ring(ring *r)
{
    free(r->base);
    case_free(&r->c);
}

static gdn_chunk_work make_work(ring *r, const gdn_cpu_kernels *of, gdn_ahead *ahead)
{
    const size_t bytes = gdn_chunk_work_bytes(of, &r->c.problem, CHUNK);
    gdn_chunk_work work = {
        .kernels = of, .problem = &r->c.problem, .args = &r->args, .chunk = CHUNK, .width = GDN_HALF_PANEL};
    unsigned char *const base = aligned_alloc(64, (bytes + 63) / 64 * 64);
    REQUIRE(base != NULL);
    gdn_chunk_work_place(&work, base);
    work.ahead = ahead;
    return work;
}

static void *help(void *data)
{
    ring *const r = data;
    gdn_chunk_work work = make_work(r, r->helping, NULL);
    gdn_ahead_help(&r->ahead, &work, 1);
    free(work.own_pack);
    return NULL;
}

static bool finds(const ring *r, gdn_chunk_work *work, int item, int64_t chunk)
{
    const gdn_item_part part = {.keys = 1, .heads = 1, .first_panel = item, .end_panel = item + 1};
    gdn_ahead_pack(work, &r->s.seq, &part, 0, chunk * CHUNK, CHUNK);
    return (unsigned char *)work->gram != work->own_pack;
}

static void says_passed(const gdn_chunk_work *work, int item, int64_t chunk)
{
    const gdn_item_part part = {.keys = 1, .heads = 1, .first_panel = item, .end_panel = item + 1};
    gdn_ahead_passed(work, &part, (chunk + 1) * CHUNK);
}

/* Two items of one head, the second so many chunks behind the first. Each waits until what must come has come. */
static void pass_through(int behind, int *found)
{
    ring r;
    pthread_t threads[THREADS];
    open_ring(&r, ITEMS);
    gdn_chunk_work work = make_work(&r, kernels, &r.ahead), plain = make_work(&r, kernels, NULL);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, help, &r) == 0);
    }
    for (int64_t step = 0; step < CHUNKS + behind; step++) {
        for (int item = 0; item < ITEMS; item++) {
            const int64_t chunk = step - item * behind;
            if (chunk < 0 || chunk >= CHUNKS) {
                continue;
            }
            found[item] += finds(&r, &work, item, chunk);
            gdn_chunk_pack(&plain, &r.s.seq, 0, chunk * CHUNK, CHUNK);
            REQUIRE(memcmp(work.gram, plain.gram, work.pack_bytes) == 0);
            says_passed(&work, item, chunk);
            if (chunk + 1 == CHUNKS) {
                gdn_ahead_ended(&r.ahead, item);
            }
        }
        /* The second is close enough for a place to be free, so this chunk will come. */
        const int64_t next = step + 1 + GDN_AHEAD_LEAD;
        while (behind < 3 && next < CHUNKS && !finds(&r, &work, 0, next)) {
            sched_yield();
        }
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    free(work.own_pack);
    free(plain.own_pack);
    close_ring(&r);
}

static void a_chunk_is_found_and_stays_until_all_have_read_it(void **unused)
{
    (void)unused;
    for (int behind = 0; behind < 3; behind++) {
        int found[ITEMS] = {0};
        pass_through(behind, found);
        const int first = GDN_AHEAD_LEAD + 1;
        assert_true(found[0] >= CHUNKS - first && found[1] >= CHUNKS - first);
    }
    int found[ITEMS] = {0};
    pass_through(CHUNKS, found); /* the second begins when the first has ended */
}

/* A helper that stops in the middle of its first chunk until it is let go. */
static atomic_int stop, stopped;

static void transpose_and_stop(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                               ptrdiff_t ldd)
{
    kernels->transpose(rows, cols, src, lds, scale, dst, ldd);
    if (!atomic_exchange(&stopped, 1)) {
        while (atomic_load(&stop)) {
            sched_yield();
        }
    }
}

static void a_place_that_is_being_filled_is_nobody_elses(void **unused)
{
    (void)unused;
    enum { PLACES = 16, SLOW = GDN_AHEAD_LEAD, NEXT = SLOW + PLACES }; /* NEXT has the place of SLOW */
    ring r;
    pthread_t slow, other;
    gdn_cpu_kernels stopping = *kernels;
    stopping.transpose = transpose_and_stop;
    open_ring(&r, 1);
    r.helping = &stopping;
    gdn_chunk_work work = make_work(&r, kernels, &r.ahead), plain = make_work(&r, kernels, NULL);
    atomic_store(&stopped, 0);
    atomic_store(&stop, 1);
    REQUIRE(pthread_create(&slow, NULL, help, &r) == 0);
    while (!atomic_load(&stopped)) {
        sched_yield();
    }
    assert_false(finds(&r, &work, 0, SLOW));
    says_passed(&work, 0, NEXT - GDN_AHEAD_LEAD - 2); /* helpers go on from the chunk before NEXT */
    REQUIRE(pthread_create(&other, NULL, help, &r) == 0);
    while (!finds(&r, &work, 0, NEXT + 1)) {
        sched_yield();
    }
    assert_false(finds(&r, &work, 0, NEXT));
    atomic_store(&stop, 0);
    while (!finds(&r, &work, 0, NEXT)) {
        sched_yield();
    }
    gdn_chunk_pack(&plain, &r.s.seq, 0, NEXT * CHUNK, CHUNK);
    REQUIRE(memcmp(work.gram, plain.gram, work.pack_bytes) == 0);
    gdn_ahead_ended(&r.ahead, 0);
    REQUIRE(pthread_join(slow, NULL) == 0 && pthread_join(other, NULL) == 0);
    free(work.own_pack);
    free(plain.own_pack);
    close_ring(&r);
}

int main(void)
{
    if (!test_backend_is_host()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_found_and_stays_until_all_have_read_it),
        cmocka_unit_test(a_place_that_is_being_filled_is_nobody_elses),
        cmocka_unit_test(threads_without_a_panel_change_no_bit),
        cmocka_unit_test(with_rounded_products_too),
        cmocka_unit_test(caps_change_no_bit),
    };
    return RUN_SUITE("cpu_ahead", tests);
}
