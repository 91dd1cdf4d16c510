/* Runs a case on the backend under test: GDN_TEST_BACKEND, "cpu" where it is not set. */
#ifndef GDN_TESTS_EXECUTE_H
#define GDN_TESTS_EXECUTE_H

#include "inputs.h"

const char *test_backend(void);
bool test_backend_is_host(void);

/* Exit status by which CTest tells a skipped program. */
#define TEST_SKIPPED 77

/* The context of the whole program, made on the first call. Where the backend has no device, says why and exits
 * with TEST_SKIPPED. */
gdn_context *test_context(void);

/* Another context of the backend under test, which the caller destroys; fails the test where it cannot be had. */
gdn_context *test_context_with_threads(int32_t num_threads);

/* A case in backend memory: guards round every buffer and the workspace, a workspace of exactly the plan's size. */
typedef struct staged_case {
    gdn_context *context;
    test_case *c;
    gdn_plan *plan;
    void *allocation[CASE_NUM_OPERANDS];
    unsigned char *base[CASE_NUM_OPERANDS];
    void *workspace_allocation;
    unsigned char *workspace; /* NULL where the plan needs none */
    size_t workspace_size;
    gdn_prefill_args prefill;
    gdn_decode_args decode;
} staged_case;

/* Makes the plan, buffers and arguments. Returns the plan's status; the message is gdn_last_error(). On failure
 * there is nothing to close. */
gdn_status stage_open(staged_case *stage, gdn_context *context, test_case *c);

/* Copies the inputs and poisoned outputs in afresh, fills the workspace with NaN, runs, waits and asks
 * gdn_plan_check. Returns the first status that is not GDN_OK. */
gdn_status stage_run(staged_case *stage);

/* As stage_run, but leaves the buffers as the last run did: for calls that go on from one another. */
gdn_status stage_run_again(staged_case *stage);

/* Copies everything back into the case's `after`; returns the number of guards that were written on, having
 * printed each. */
int stage_collect(staged_case *stage);
void stage_close(staged_case *stage);

/* All of it. Prints the message of a failure. *damaged gets the number of guards written on, and may be NULL: then
 * a damaged guard fails the test. */
gdn_status case_run(gdn_context *context, test_case *c, int *damaged);

#endif
