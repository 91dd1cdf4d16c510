/* What the tests of cuda.sm90 share: a context that takes nothing else, cases, and what a sequence is compared with. */
#ifndef GDN_TESTS_SM90_TOOLS_H
#define GDN_TESTS_SM90_TOOLS_H

#include "gpu_tools.h"

#include "harness/slices.h"

/* false, with a word on why: this device does not take cuda.sm90. */
bool sm90_open(void);
gdn_context *sm90_context(void);
int sm90_close(void **state); /* a group's teardown */

/* bf16, 24 value heads on 12 key heads, weak gates. */
case_spec sm90_spec(const char *label, int32_t head_k_dim, int32_t head_v_dim);

/* By cuda.sm90, or the test fails. */
void sm90_run(test_case *c);

/* Complaints where a sequence of the batch has other bits than alone. */
int sm90_compare_with_alone(case_spec spec, const int64_t *lengths, int64_t num_seqs);

#endif
