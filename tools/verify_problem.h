/* One problem checked against the float64 recurrence, with its lines on stdout. */
#ifndef GDN_TOOLS_VERIFY_PROBLEM_H
#define GDN_TOOLS_VERIFY_PROBLEM_H

#include "problem_text.h"

typedef enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_SKIP } verdict;

typedef struct verify_style {
    bool verbose; /* print the plan */
    bool quiet; /* print failures only */
} verify_style;

/* Draws the inputs, runs, judges every output and prints a line for each. A problem that nothing on this context takes is
 * SKIP where it was drawn at random, FAIL where it was asked for. */
verdict verify_problem(gdn_context *context, const problem_text *text, bool drawn, const verify_style *style);

#endif
