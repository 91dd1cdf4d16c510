/* Internal to inputs: fills the buffers of a laid-out case. */
#ifndef GDN_TESTS_INPUTS_VALUES_H
#define GDN_TESTS_INPUTS_VALUES_H

#include "inputs.h"

void fill_values(test_case *c);

#endif
