/* The overlap check against counting bytes: what it lets pass never meets, and packed rows pass. */
#include "arguments.h"
#include "check.h"
#include "execute.h"
#include "random.h"

#include <string.h>

enum { SPACE = 4096 };

_Alignas(16) static unsigned char space[SPACE];

/* Adds to each byte that an element of the argument lies on. */
static void count_bytes(const gdn_argument *argument, unsigned char *counts)
{
    int64_t index[GDN_MAX_DIMS] = {0};
    const gdn_dims *const d = &argument->dims;
    for (;;) {
        int64_t at = (const unsigned char *)argument->ptr - space;
        for (int32_t i = 0; i < d->rank; i++) {
            at += index[i] * d->stride[i] * (int64_t)argument->element;
        }
        for (size_t b = 0; b < argument->element; b++) {
            assert_true(at + (int64_t)b < SPACE);
            counts[at + (int64_t)b] = 1;
        }
        int32_t i = 0;
        while (i < d->rank && ++index[i] == d->size[i]) {
            index[i++] = 0;
        }
        if (i == d->rank) {
            return;
        }
    }
}

static bool meet(const gdn_argument *a, const gdn_argument *b)
{
    unsigned char in_a[SPACE] = {0}, in_b[SPACE] = {0};
    count_bytes(a, in_a);
    count_bytes(b, in_b);
    for (int i = 0; i < SPACE; i++) {
        if (in_a[i] && in_b[i]) {
            return true;
        }
    }
    return false;
}

static gdn_argument draw(test_random *random, bool output)
{
    gdn_argument argument = {.name = output ? "out" : "in", .output = output, .required = true};
    argument.element = random_index(random, 2) == 0 ? 2 : 4;
    argument.alignment = (uint32_t)argument.element;
    argument.ptr = space + 4 * random_index(random, 100);
    static const int64_t strides[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    const int64_t rank = 1 + random_index(random, 3);
    for (int64_t i = 0; i < rank; i++) {
        gdn_dims_add(&argument.dims, 1 + random_index(random, 4), strides[random_index(random, 11)]);
    }
    return argument;
}

static gdn_status check_pair(const gdn_argument *a, const gdn_argument *b)
{
    gdn_arguments list = {.count = 2};
    list.item[0] = *a;
    list.item[1] = *b;
    return gdn_arguments_check(&list, test_context(), NULL, 0, 0);
}

static void arguments_that_pass_never_meet(void **unused)
{
    (void)unused;
    test_random random = random_stream(1701, 0);
    int passed = 0, interleaved = 0, refused = 0;
    for (int i = 0; i < 100000; i++) {
        const gdn_argument a = draw(&random, true), b = draw(&random, i % 2 == 0);
        const gdn_status status = check_pair(&a, &b);
        if (status != GDN_OK) {
            assert_int_equal(status, GDN_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(gdn_last_error(), "overlaps"));
            refused++;
            continue;
        }
        passed++;
        if (meet(&a, &b)) {
            fail_msg("round %d: two arguments that meet were let pass", i);
        }
        const unsigned char *const a_end = (const unsigned char *)a.ptr + gdn_dims_extent(&a.dims) * (int64_t)a.element;
        const unsigned char *const b_end = (const unsigned char *)b.ptr + gdn_dims_extent(&b.dims) * (int64_t)b.element;
        interleaved += (const unsigned char *)a.ptr < b_end && (const unsigned char *)b.ptr < a_end;
    }
    assert_true(passed > 1000 && interleaved > 100 && refused > 1000);
}

/* [q | k | v | o] in one row of 20 elements, as prefill and as decode rows of three tokens. */
static void slices_of_packed_rows_pass(void **unused)
{
    (void)unused;
    for (int64_t rows = 1; rows <= 3; rows++) {
        static const int64_t first[] = {0, 4, 8, 14}, heads[] = {2, 2, 3, 3};
        gdn_argument parts[4];
        for (int i = 0; i < 4; i++) {
            parts[i] = (gdn_argument){.name = "part",
                                      .ptr = space + 4 * first[i],
                                      .element = 4,
                                      .alignment = 4,
                                      .output = i == 3,
                                      .required = true};
            gdn_dims_add(&parts[i].dims, 2, 1);
            gdn_dims_add(&parts[i].dims, heads[i], 2);
            gdn_dims_add(&parts[i].dims, 3, 20);
            gdn_dims_add(&parts[i].dims, rows, 60);
        }
        for (int i = 0; i < 3; i++) {
            assert_false(meet(&parts[3], &parts[i]));
            REQUIRE_OK(check_pair(&parts[3], &parts[i]));
            REQUIRE_OK(check_pair(&parts[i], &parts[3]));
        }
        /* One element further, o runs into the next row's q. */
        parts[3].ptr = space + 4 * 15;
        assert_int_equal(check_pair(&parts[3], &parts[0]), GDN_ERROR_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_that_pass_never_meet),
        cmocka_unit_test(slices_of_packed_rows_pass),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
