/* What a test program over cases needs, in one place. */
#ifndef GDN_TESTS_SUITE_H
#define GDN_TESTS_SUITE_H

#include "check.h"
#include "execute.h"
#include "inputs.h"
#include "judge.h"
#include "random.h"
#include "reference.h"

/* Lengths, slots and flags written in place; they must outlive the case, which a literal in the same block does. */
#define LENGTHS(...) ((const int64_t[]){__VA_ARGS__})
#define SLOTS(...) ((const int64_t[]){__VA_ARGS__})
#define FLAGS(...) ((const uint8_t[]){__VA_ARGS__})

/* GDN_TEST_SMALL=1: sanitizers, valgrind and emulators ask for small shapes. */
bool test_is_small(void);

/* Fails the test unless every check of `complaints` passed: each has printed what was wrong. */
#define NO_COMPLAINTS(complaints)                            \
    do {                                                     \
        const int found = (complaints);                      \
        if (found != 0) {                                    \
            fail_msg("%d complaints, printed above", found); \
        }                                                    \
    } while (0)

/* The name of the implementation a plan chose, from its description. */
void plan_implementation(const gdn_plan *plan, char name[64]);

/* The implementation that a case's problem gets on a context. */
void case_implementation(gdn_context *context, const test_case *c, char name[64]);

/* Runs the group on the backend under test; exits with TEST_SKIPPED where there is none. */
#define RUN_SUITE(name, tests) (test_context(), cmocka_run_group_tests_name(name, tests, NULL, NULL))

#endif
