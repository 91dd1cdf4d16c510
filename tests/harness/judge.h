/* The verdict on a run: every value the call owes against the double reference, and every byte it does not owe
 * unchanged. Each function prints what is wrong, with coordinates, and returns the number of complaints. */
#ifndef GDN_TESTS_JUDGE_H
#define GDN_TESTS_JUDGE_H

#include "inputs.h"
#include "reference.h"

/* After a run: o, final states, checkpoints, token states, and the bytes between them. */
int judge_case(const test_case *c, const reference_result *ref);

/* Only the bytes: every one that no output owns is as before. */
int judge_untouched(const test_case *c, const reference_result *ref);

/* Every byte of every buffer as before: what a refused call leaves. */
int judge_nothing_written(const test_case *c);

reference_result reference_of(const test_case *c);

/* Build, run on the program's context, judge, free. */
int check_case(const case_spec *spec);

/* The same for a case already built (and perhaps changed); the case stays. */
int check_built_case(gdn_context *context, test_case *c);

/* Bit by bit. Sequence n of a and m of b: outputs and result states; the lengths agree. */
int same_sequence(const test_case *a, int64_t n, const test_case *b, int64_t m);
/* All sequences, in order. */
int same_results(const test_case *a, const test_case *b);
/* Tokens [from, from + count) of a against [at, ...) of b, packed numbers, o only. */
int same_outputs(const test_case *a, int64_t from, const test_case *b, int64_t at, int64_t count);
/* The state in slot s of operand x of a, and slot t of operand y of b. */
int same_state(const test_case *a, case_operand x, int64_t s, const test_case *b, case_operand y, int64_t t);

/* The same pairs, but equal only to the order of float32 sums (TOLERANCE_LAW, or GPU bounds). */
int close_outputs(const test_case *a, int64_t from, const test_case *b, int64_t at, int64_t count);
int close_state(const test_case *a, case_operand x, int64_t s, const test_case *b, case_operand y, int64_t t);

#endif
