/* The generic path's booking: bounded at any length, capped to the byte, and refused with the least it needs. */
#include "check.h"
#include "random.h"

#include "generic_ops.h"
#include "generic_scratch.h"
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

static const gdn_backend host = {.name = "host", .host_memory = true};
static const gdn_backend accelerator = {.name = "accelerator"};
static const gdn_device host_device = {.backend = &host};
static const gdn_device device_device = {.backend = &accelerator};

static gdn_problem problem_of(int32_t H, int32_t HV, int32_t K, int32_t V, int64_t max_tokens)
{
    gdn_problem problem;
    REQUIRE_OK(gdn_problem_init(&problem, H, HV, K, V));
    problem.max_tokens = max_tokens;
    return problem;
}

static gdn_choice book(const gdn_device *device, const gdn_problem *problem, size_t cap, bool two_inverses)
{
    gdn_choice choice;
    memset(&choice, 0, sizeof(choice));
    REQUIRE_OK(gdn_generic_book(device, problem, cap, two_inverses, &choice));
    assert_false(choice.ledger.overflow);
    /* In order, aligned, apart. */
    size_t end = 0;
    for (int32_t i = 0; i < choice.ledger.count; i++) {
        const gdn_scratch_piece *const piece = &choice.ledger.piece[i];
        assert_int_equal(piece->offset % GDN_WORKSPACE_ALIGNMENT, 0);
        assert_true(piece->offset >= end);
        assert_non_null(piece->name);
        end = piece->offset + piece->bytes;
    }
    assert_true(choice.ledger.total >= end);
    return choice;
}

static void the_usual_shape_stays_small_at_any_length(void **unused)
{
    (void)unused;
    static const int64_t lengths[] = {1, 64, 512, 2048, 8192, 1 << 17, 1 << 20};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        gdn_problem problem = problem_of(16, 32, 128, 128, lengths[i]);
        for (int64_t seqs = 1; seqs <= 1024; seqs *= 32) {
            problem.max_seqs = seqs;
            assert_true(book(&host_device, &problem, 0, false).ledger.total <= (size_t)64 << 20);
            assert_true(book(&device_device, &problem, 0, false).ledger.total <= (size_t)256 << 20);
        }
    }
}

static void a_wave_never_exceeds_what_there_can_be(void **unused)
{
    (void)unused;
    gdn_problem problem = problem_of(1, 1, 8, 8, 70);
    gdn_choice choice = book(&host_device, &problem, 0, false);
    assert_int_equal(choice.chunk_size, 32);
    assert_int_equal(choice.wave_chunks, 3);
    assert_int_equal(choice.param[GDN_GENERIC_PARAM_LANES], 1);
    assert_int_equal(choice.param[GDN_GENERIC_PARAM_STEPS], 3);
    problem.max_seqs = 5;
    choice = book(&host_device, &problem, 0, false);
    assert_int_equal(choice.wave_chunks, 7);
    assert_int_equal(choice.param[GDN_GENERIC_PARAM_LANES], 5);
    /* No tokens at all: the sequences' states still pass through. */
    problem.max_tokens = 0;
    choice = book(&host_device, &problem, 0, false);
    assert_int_equal(choice.wave_chunks, 5);
}

static void chunk_size_is_a_hint(void **unused)
{
    (void)unused;
    static const int32_t hints[][2] = {{0, 32}, {1, 1}, {13, 13}, {256, 256}, {257, 256}, {INT32_MAX, 256}};
    for (size_t i = 0; i < COUNT_OF(hints); i++) {
        gdn_problem problem = problem_of(2, 4, 32, 32, 1000);
        problem.chunk_size = hints[i][0];
        assert_int_equal(book(&host_device, &problem, 0, false).chunk_size, hints[i][1]);
    }
    const gdn_problem problem = problem_of(2, 4, 32, 32, 1000);
    assert_int_equal(book(&device_device, &problem, 0, false).chunk_size, 64);
}

/* Any cap down to the least is kept to; one byte less is refused, with the least in the message. */
static void caps_are_kept_down_to_one_chunk(void **unused)
{
    (void)unused;
    test_random random = random_stream(15, 1);
    for (int round = 0; round < 40; round++) {
        const int32_t H = 1 + (int32_t)random_index(&random, 4);
        gdn_problem problem =
            problem_of(H, H * (1 + (int32_t)random_index(&random, 3)), 1 + (int32_t)random_index(&random, 200),
                       1 + (int32_t)random_index(&random, 200), random_index(&random, 3000));
        problem.max_seqs = 1 + random_index(&random, 20);
        problem.chunk_size = (int32_t)random_index(&random, 100);
        if (round % 3 == 0) {
            problem.checkpoint_form = GDN_CHECKPOINT_EVERY;
            problem.checkpoint_interval = 7;
            problem.max_checkpoints = 1000;
        }
        gdn_choice choice;
        memset(&choice, 0, sizeof(choice));
        assert_int_equal(gdn_generic_book(&host_device, &problem, 1, false, &choice), GDN_ERROR_UNSUPPORTED);
        const char *const words = strstr(gdn_last_error(), "at least ");
        assert_non_null(words);
        const size_t least = strtoull(words + strlen("at least "), NULL, 10);
        assert_int_equal(choice.ledger.count, 0); /* nothing is booked by a refusal */
        assert_int_equal(gdn_generic_book(&host_device, &problem, least - 1, false, &choice), GDN_ERROR_UNSUPPORTED);
        gdn_choice capped = book(&host_device, &problem, least, false);
        assert_int_equal(capped.ledger.total, least);
        int64_t before = 0;
        for (size_t cap = least; cap < 8 * least; cap += least / 3) {
            capped = book(&host_device, &problem, cap, false);
            assert_true(capped.ledger.total <= cap);
            assert_true(capped.wave_chunks >= before);
            before = capped.wave_chunks;
        }
    }
}

static void what_core_booked_before_counts(void **unused)
{
    (void)unused;
    const gdn_problem problem = problem_of(2, 4, 32, 32, 1000);
    gdn_choice alone = book(&host_device, &problem, 4 << 20, false);
    gdn_choice after;
    memset(&after, 0, sizeof(after));
    gdn_ledger_book(&after.ledger, "before", 3 << 20);
    REQUIRE_OK(gdn_generic_book(&host_device, &problem, 4 << 20, false, &after));
    assert_true(after.ledger.total <= 4 << 20);
    assert_true(after.wave_chunks < alone.wave_chunks);
}

static void the_ablation_books_its_second_inverse(void **unused)
{
    (void)unused;
    const gdn_problem problem = problem_of(2, 4, 32, 32, 64);
    assert_true(book(&host_device, &problem, 0, true).ledger.total >
                book(&host_device, &problem, 0, false).ledger.total);
}

static void sizes_that_fit_nothing_are_refused(void **unused)
{
    (void)unused;
    gdn_choice choice;
    memset(&choice, 0, sizeof(choice));
    gdn_problem problem = problem_of(1, 1, 8, 8, INT64_MAX);
    assert_int_equal(gdn_generic_book(&host_device, &problem, 0, false, &choice), GDN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(gdn_last_error(), "max_tokens"));
    problem = problem_of(1, 1, 8, 8, 100);
    problem.max_seqs = INT64_MAX;
    assert_int_equal(gdn_generic_book(&host_device, &problem, 0, false, &choice), GDN_ERROR_UNSUPPORTED);
    problem = problem_of(INT32_MAX, INT32_MAX, 1024, 1024, 64);
    const gdn_status status = gdn_generic_book(&host_device, &problem, 0, false, &choice);
    assert_true(status == GDN_OK || status == GDN_ERROR_UNSUPPORTED); /* petabytes, but they fit 64 bits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_shape_stays_small_at_any_length),
        cmocka_unit_test(a_wave_never_exceeds_what_there_can_be),
        cmocka_unit_test(chunk_size_is_a_hint),
        cmocka_unit_test(caps_are_kept_down_to_one_chunk),
        cmocka_unit_test(what_core_booked_before_counts),
        cmocka_unit_test(the_ablation_books_its_second_inverse),
        cmocka_unit_test(sizes_that_fit_nothing_are_refused),
    };
    return cmocka_run_group_tests_name("generic_scratch", tests, NULL, NULL);
}
