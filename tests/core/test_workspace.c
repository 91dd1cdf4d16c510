/* The ledger: pieces are aligned, apart and in order, and a size that does not fit is noticed. */
#include "check.h"
#include "workspace.h"

static void pieces_are_aligned_and_apart(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {1, 256, 257, 0, 1000000, 3};
    gdn_ledger ledger = {0};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t offset = gdn_ledger_book(&ledger, "piece", sizes[i]);
        assert_int_equal(offset % GDN_WORKSPACE_ALIGNMENT, 0);
        assert_int_equal(ledger.piece[i].offset, offset);
        assert_int_equal(ledger.piece[i].bytes, sizes[i]);
        if (i > 0) {
            assert_true(offset >= ledger.piece[i - 1].offset + sizes[i - 1]);
        }
        assert_true(ledger.total >= offset + sizes[i]);
        assert_int_equal(ledger.total % GDN_WORKSPACE_ALIGNMENT, 0);
    }
    assert_int_equal(ledger.count, COUNT_OF(sizes));
    assert_false(ledger.overflow);
}

static void sizes_past_the_address_space_are_noticed(void **unused)
{
    (void)unused;
    gdn_ledger ledger = {0};
    gdn_ledger_book(&ledger, "first", 1000);
    const size_t total = ledger.total;
    gdn_ledger_book(&ledger, "huge", SIZE_MAX);
    assert_true(ledger.overflow);
    assert_int_equal(ledger.total, total);
}

static void too_many_pieces_are_noticed(void **unused)
{
    (void)unused;
    gdn_ledger ledger = {0};
    for (int i = 0; i < GDN_MAX_SCRATCH; i++) {
        gdn_ledger_book(&ledger, "piece", 8);
    }
    assert_false(ledger.overflow);
    gdn_ledger_book(&ledger, "one more", 8);
    assert_true(ledger.overflow);
    assert_int_equal(ledger.count, GDN_MAX_SCRATCH);
}

static void products_saturate(void **unused)
{
    (void)unused;
    assert_int_equal(gdn_size_mul(0, SIZE_MAX), 0);
    assert_int_equal(gdn_size_mul(3, 5), 15);
    assert_int_equal(gdn_size_mul(SIZE_MAX, 2), SIZE_MAX);
    assert_int_equal(gdn_size_mul((size_t)1 << 32, (size_t)1 << 32), SIZE_MAX);
    assert_int_equal(gdn_size_mul(gdn_size_mul(SIZE_MAX, 2), 3), SIZE_MAX);
    assert_int_equal(gdn_size_mul(SIZE_MAX, 1), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_apart),
        cmocka_unit_test(sizes_past_the_address_space_are_noticed),
        cmocka_unit_test(too_many_pieces_are_noticed),
        cmocka_unit_test(products_saturate),
    };
    return cmocka_run_group_tests_name("workspace", tests, NULL, NULL);
}
