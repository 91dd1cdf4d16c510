/* cmocka with the headers it wants, and checks that helper functions can use. */
#ifndef GDN_TESTS_CHECK_H
#define GDN_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gdn/gdn.h>

#include <stdio.h>

#define REQUIRE(condition) assert_true(condition)

/* Fails the test with the library's own message. */
#define REQUIRE_OK(call)                                                                        \
    do {                                                                                        \
        const gdn_status require_status = (call);                                               \
        if (require_status != GDN_OK) {                                                         \
            fail_msg("%s: %s: %s", #call, gdn_status_string(require_status), gdn_last_error()); \
        }                                                                                       \
    } while (0)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
