/* The conflict search against counting pairs. */
#include "check.h"
#include "random.h"
#include "slot_conflict.h"

#include <string.h>

static bool conflicts_by_pairs(const gdn_slot_use *uses, int64_t count, int64_t *lowest)
{
    bool found = false;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            const bool writes = uses[i].row_and_write % 2 == 1;
            if (writes && uses[i].slot == uses[j].slot && uses[i].row_and_write / 2 != uses[j].row_and_write / 2) {
                *lowest = found && *lowest < uses[i].slot ? *lowest : uses[i].slot;
                found = true;
            }
        }
    }
    return found;
}

static void random_uses_agree_with_counting_pairs(void **unused)
{
    (void)unused;
    test_random random = random_stream(301, 0);
    int conflicts = 0;
    for (int round = 0; round < 5000; round++) {
        gdn_slot_use uses[24] = {{0, 0}}, sorted[24];
        const int64_t count = random_index(&random, 25), rows = 1 + random_index(&random, 8);
        const int64_t slots = 1 + random_index(&random, 60);
        for (int64_t i = 0; i < count; i++) {
            uses[i] = (gdn_slot_use){random_index(&random, slots), random_index(&random, 2 * rows)};
        }
        memcpy(sorted, uses, sizeof(uses));
        int64_t lowest = -1;
        gdn_slot_conflict conflict;
        const bool want = conflicts_by_pairs(uses, count, &lowest);
        assert_int_equal(gdn_find_slot_conflict(sorted, count, &conflict), want);
        if (want) {
            conflicts++;
            assert_int_equal(conflict.slot, lowest);
            assert_true(conflict.writer != conflict.other);
        }
    }
    assert_true(conflicts > 500 && conflicts < 4500);
}

static void many_uses_take_no_quadratic_time(void **unused)
{
    (void)unused;
    enum { COUNT = 200000 };
    static gdn_slot_use uses[COUNT];
    for (int order = 0; order < 3; order++) {
        for (int64_t i = 0; i < COUNT; i++) {
            const int64_t slot = order == 0 ? i : order == 1 ? COUNT - i : i * 7919 % COUNT;
            uses[i] = (gdn_slot_use){slot, 2 * i + 1};
        }
        gdn_slot_conflict conflict;
        assert_false(gdn_find_slot_conflict(uses, COUNT, &conflict));
        uses[77].slot = uses[1234].slot;
        assert_true(gdn_find_slot_conflict(uses, COUNT, &conflict));
    }
    for (int64_t i = 0; i < COUNT; i++) {
        uses[i] = (gdn_slot_use){5, 2 * i};
    }
    gdn_slot_conflict conflict;
    assert_false(gdn_find_slot_conflict(uses, COUNT, &conflict));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_uses_agree_with_counting_pairs),
        cmocka_unit_test(many_uses_take_no_quadratic_time),
    };
    return cmocka_run_group_tests_name("slot conflict", tests, NULL, NULL);
}
