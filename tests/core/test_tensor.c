/* Borrowed views: dense strides, the checks of a rule, extents and overlaps of strided arrays. */
#include "check.h"
#include "strides.h"
#include "tensor.h"

#include <string.h>

static void dense_views_have_row_major_strides(void **unused)
{
    (void)unused;
    float data[24];
    const int64_t size[] = {2, 3, 4};
    const gdn_tensor t = gdn_tensor_dense(data, GDN_DTYPE_F32, 3, size);
    assert_ptr_equal(t.data, data);
    assert_int_equal(t.dtype, GDN_DTYPE_F32);
    assert_int_equal(t.rank, 3);
    assert_int_equal(t.stride[0], 12);
    assert_int_equal(t.stride[1], 4);
    assert_int_equal(t.stride[2], 1);
    assert_int_equal(gdn_tensor_dense(data, GDN_DTYPE_F32, 0, size).rank, 0);
    assert_int_equal(gdn_tensor_dense(data, GDN_DTYPE_F32, GDN_MAX_RANK + 1, size).rank, 0);
    assert_int_equal(gdn_tensor_dense(data, GDN_DTYPE_F32, -1, size).rank, 0);
    assert_int_equal(gdn_tensor_dense(data, GDN_DTYPE_F32, 2, NULL).rank, 0);
}

static gdn_tensor good_tensor(void)
{
    static float data[64];
    return gdn_tensor_dense(data, GDN_DTYPE_F32, 2, (const int64_t[]){4, 8});
}

static const gdn_tensor_rule rule = {.name = "thing",
                                     .rank = 2,
                                     .size = {GDN_ANY_SIZE, 8},
                                     .dtypes = GDN_FLOAT_DTYPES,
                                     .unit_inner = true,
                                     .needs_data = true};

static void a_rule_takes_what_it_allows(void **unused)
{
    (void)unused;
    gdn_tensor t = good_tensor();
    REQUIRE_OK(gdn_tensor_check(&t, &rule));
    t.stride[0] = 100;
    REQUIRE_OK(gdn_tensor_check(&t, &rule));
    t.size[0] = 0;
    t.data = NULL;
    REQUIRE_OK(gdn_tensor_check(&t, &rule));
}

static void assert_refused(const gdn_tensor *t, const char *says)
{
    assert_int_equal(gdn_tensor_check(t, &rule), GDN_ERROR_INVALID_ARGUMENT);
    if (strstr(gdn_last_error(), says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", gdn_last_error(), says);
    }
}

static void a_rule_refuses_by_name_and_value(void **unused)
{
    (void)unused;
    assert_refused(NULL, "thing: NULL");
    gdn_tensor t = good_tensor();
    t.rank = 3;
    assert_refused(&t, "thing.rank: 3, must be 2");
    t = good_tensor();
    t.dtype = GDN_DTYPE_I64;
    assert_refused(&t, "thing.dtype: i64 (5), must be f32, bf16 or f16");
    t.dtype = (gdn_dtype)40;
    assert_refused(&t, "40");
    t.dtype = (gdn_dtype)-1;
    assert_refused(&t, "-1");
    t = good_tensor();
    t.size[1] = 9;
    assert_refused(&t, "thing.size[1]: 9, must be 8");
    t = good_tensor();
    t.size[0] = -2;
    assert_refused(&t, "thing.size[0]: -2");
    t = good_tensor();
    t.stride[0] = -8;
    assert_refused(&t, "thing.stride[0]: -8");
    t = good_tensor();
    t.stride[1] = 2;
    assert_refused(&t, "thing.stride[1]: 2, must be 1");
    t = good_tensor();
    t.stride[0] = INT64_MAX;
    assert_refused(&t, "thing.stride[0]: 9223372036854775807");
    t = good_tensor();
    t.size[0] = INT64_MAX;
    assert_refused(&t, "thing.stride[0]");
    t = good_tensor();
    t.stride[0] = GDN_MAX_EXTENT; /* what every later extent must be able to hold */
    assert_refused(&t, "thing.stride[0]: 288230376151711744");
    t = good_tensor();
    t.data = NULL;
    assert_refused(&t, "thing.data: NULL");
    t = good_tensor();
    t.data = (char *)t.data + 2;
    assert_refused(&t, "aligned");
    t = good_tensor();
    t.data = (void *)(UINTPTR_MAX - 63);
    assert_refused(&t, "past the end of the address space");
}

static gdn_dims dims_of(int32_t rank, const int64_t *size, const int64_t *stride)
{
    gdn_dims dims = {.rank = 0};
    for (int32_t i = 0; i < rank; i++) {
        gdn_dims_add(&dims, size[i], stride[i]);
    }
    return dims;
}

#define DIMS(rank, sizes, strides) dims_of(rank, (const int64_t[])sizes, (const int64_t[])strides)
#define LIST(...)   \
    {               \
        __VA_ARGS__ \
    }

static void extents_reach_one_past_the_last_element(void **unused)
{
    (void)unused;
    gdn_dims dims = DIMS(2, LIST(4, 3), LIST(1, 10));
    assert_int_equal(gdn_dims_extent(&dims), 24);
    dims = DIMS(2, LIST(4, 0), LIST(1, 10));
    assert_int_equal(gdn_dims_extent(&dims), 0);
    dims = DIMS(1, LIST(5), LIST(0));
    assert_int_equal(gdn_dims_extent(&dims), 1);
    dims = DIMS(2, LIST(4, INT64_MAX), LIST(1, INT64_MAX));
    assert_int_equal(gdn_dims_extent(&dims), -1);
    dims = DIMS(1, LIST(2), LIST(GDN_MAX_EXTENT - 1));
    assert_int_equal(gdn_dims_extent(&dims), GDN_MAX_EXTENT);
    dims = DIMS(1, LIST(2), LIST(GDN_MAX_EXTENT));
    assert_int_equal(gdn_dims_extent(&dims), -1);
}

/* Against brute force: are all elements of a small array at different places? */
static bool apart_by_counting(const int64_t size[3], const int64_t stride[3])
{
    unsigned char seen[512] = {0};
    for (int64_t i = 0; i < size[0]; i++) {
        for (int64_t j = 0; j < size[1]; j++) {
            for (int64_t k = 0; k < size[2]; k++) {
                const int64_t at = i * stride[0] + j * stride[1] + k * stride[2];
                if (seen[at]++ != 0) {
                    return false;
                }
            }
        }
    }
    return true;
}

static void arrays_called_apart_are_apart(void **unused)
{
    (void)unused;
    int found = 0;
    for (int64_t a = 0; a < 12; a++) {
        for (int64_t b = 0; b < 12; b++) {
            for (int64_t c = 0; c < 12; c++) {
                const int64_t size[] = {3, 2, 4}, stride[] = {a, b, c};
                const gdn_dims dims = dims_of(3, size, stride);
                if (gdn_dims_are_apart(&dims)) {
                    assert_true(apart_by_counting(size, stride));
                    found++;
                }
            }
        }
    }
    assert_true(found > 10);
    gdn_dims dims = DIMS(3, LIST(8, 4, 5), LIST(1, 8, 32));
    assert_true(gdn_dims_are_apart(&dims));
    dims = DIMS(3, LIST(8, 4, 5), LIST(1, 8, 31));
    assert_false(gdn_dims_are_apart(&dims));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_views_have_row_major_strides), cmocka_unit_test(a_rule_takes_what_it_allows),
        cmocka_unit_test(a_rule_refuses_by_name_and_value),   cmocka_unit_test(extents_reach_one_past_the_last_element),
        cmocka_unit_test(arrays_called_apart_are_apart),
    };
    return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
