/* Cases made of pieces of other cases: what laws compare. */
#ifndef GDN_TESTS_SLICES_H
#define GDN_TESTS_SLICES_H

#include "inputs.h"

/* Inputs of `count` tokens (q, k, v, gate, beta, all heads) from packed token `from` of src to token `at` of dst. */
void copy_tokens(test_case *dst, int64_t at, const test_case *src, int64_t from, int64_t count);

/* A_log and dt_bias. */
void copy_head_parameters(test_case *dst, const test_case *src);

/* Initial state of row n of dst from row m of src, as it was before src ran. */
void copy_initial_state(test_case *dst, int64_t n, const test_case *src, int64_t m);

/* Initial state of row n of dst from what src left for row m. */
void carry_state(test_case *dst, int64_t n, const test_case *src, int64_t m);

/* The same, from any state operand of src. */
void copy_state_after(test_case *dst, int64_t n, const test_case *src, case_operand operand, int64_t slot);

#endif
