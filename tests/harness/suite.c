#include "suite.h"

#include <stdlib.h>
#include <string.h>

bool test_is_small(void)
{
    const char *const small = getenv("GDN_TEST_SMALL");
    return small != NULL && strcmp(small, "0") != 0;
}

void plan_implementation(const gdn_plan *plan, char name[64])
{
    char text[8192];
    REQUIRE_OK(gdn_plan_describe(plan, text, sizeof(text), NULL));
    const char *const line = strstr(text, "implementation: ");
    REQUIRE(line != NULL);
    REQUIRE(sscanf(line, "implementation: %63[^,\n]", name) == 1);
}

void case_implementation(gdn_context *context, const test_case *c, char name[64])
{
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &c->problem));
    plan_implementation(plan, name);
    gdn_plan_destroy(&plan);
}
