#include "slices.h"

#include "check.h"
#include "formats.h"

#include <string.h>

static void copy_row(test_case *dst, int64_t at, const test_case *src, int64_t from, case_operand operand,
                     int32_t heads, int32_t dim)
{
    for (int32_t head = 0; head < heads; head++) {
        for (int32_t d = 0; d < dim; d++) {
            case_put(dst, operand, at, head, d, case_get(src, operand, from, head, d));
        }
    }
}

void copy_tokens(test_case *dst, int64_t at, const test_case *src, int64_t from, int64_t count)
{
    const gdn_problem *const p = &src->problem;
    for (int64_t t = 0; t < count; t++) {
        copy_row(dst, at + t, src, from + t, CASE_Q, p->num_k_heads, p->head_k_dim);
        copy_row(dst, at + t, src, from + t, CASE_K, p->num_k_heads, p->head_k_dim);
        copy_row(dst, at + t, src, from + t, CASE_V, p->num_v_heads, p->head_v_dim);
        copy_row(dst, at + t, src, from + t, CASE_GATE, p->num_v_heads, 1);
        copy_row(dst, at + t, src, from + t, CASE_BETA, p->num_v_heads, 1);
    }
}

void copy_head_parameters(test_case *dst, const test_case *src)
{
    const size_t bytes = (size_t)src->problem.num_v_heads * sizeof(float);
    if (case_before(src, CASE_A_LOG) != NULL) {
        memcpy(case_before(dst, CASE_A_LOG), case_before(src, CASE_A_LOG), bytes);
    }
    if (case_before(src, CASE_DT_BIAS) != NULL) {
        memcpy(case_before(dst, CASE_DT_BIAS), case_before(src, CASE_DT_BIAS), bytes);
    }
}

static int64_t initial_slot(const test_case *c, int64_t n)
{
    if (c->spec.state_form == GDN_STATE_DENSE) {
        return n;
    }
    return format_load_index(c->spec.slots_dtype, case_before(c, CASE_READ_SLOTS), n);
}

void copy_initial_state(test_case *dst, int64_t n, const test_case *src, int64_t m)
{
    const int64_t to = initial_slot(dst, n), from = initial_slot(src, m);
    for (int32_t head = 0; head < src->problem.num_v_heads; head++) {
        for (int32_t v = 0; v < src->problem.head_v_dim; v++) {
            for (int32_t k = 0; k < src->problem.head_k_dim; k++) {
                const double x = format_decode(src->problem.state.dtype, case_before(src, CASE_STATE),
                                               case_state_index(src, CASE_STATE, from, head, v, k));
                case_put_state(dst, CASE_STATE, to, head, v, k, x);
            }
        }
    }
}

void copy_state_after(test_case *dst, int64_t n, const test_case *src, case_operand operand, int64_t slot)
{
    const int64_t to = initial_slot(dst, n);
    for (int32_t head = 0; head < src->problem.num_v_heads; head++) {
        for (int32_t v = 0; v < src->problem.head_v_dim; v++) {
            for (int32_t k = 0; k < src->problem.head_k_dim; k++) {
                case_put_state(dst, CASE_STATE, to, head, v, k, case_state_after(src, operand, slot, head, v, k));
            }
        }
    }
}

void carry_state(test_case *dst, int64_t n, const test_case *src, int64_t m)
{
    case_operand operand;
    int64_t slot;
    REQUIRE(case_result_state(src, m, &operand, &slot));
    copy_state_after(dst, n, src, operand, slot);
}
