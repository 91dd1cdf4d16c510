/* Contexts of one instruction set, for the tests of the fused CPU implementations. */
#ifndef GDN_TEST_FUSED_CONTEXTS_H
#define GDN_TEST_FUSED_CONTEXTS_H

#include "suite.h"

#include <stdio.h>
#include <string.h>

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};

static inline gdn_context *context_with(const char *isa, int32_t threads)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    options.cpu_isa = isa;
    options.ignore_environment = 1;
    options.num_threads = threads;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    return context;
}

/* A context whose plans use exactly this instruction set; NULL where the machine has it not. */
static inline gdn_context *context_for(const char *isa, int32_t threads)
{
    gdn_context *context = context_with(isa, threads);
    test_case c;
    case_build(&c, &(case_spec){.label = "probe", .seed = 1, .length = 20});
    char name[64], wanted[64];
    case_implementation(context, &c, name);
    case_free(&c);
    snprintf(wanted, sizeof(wanted), "cpu.%s.prefill", isa);
    if (strcmp(name, wanted) != 0) {
        gdn_context_destroy(&context);
    }
    return context;
}

static inline int check_on(gdn_context *context, const case_spec *spec)
{
    test_case c;
    case_build(&c, spec);
    char name[64];
    case_implementation(context, &c, name);
    REQUIRE(strncmp(name, "cpu.", 4) == 0 && strcmp(name, "cpu.plain_decode") != 0);
    const int complaints = check_built_case(context, &c);
    case_free(&c);
    return complaints;
}

static inline int each_isa(int (*check)(gdn_context *context, const char *isa))
{
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(isas); i++) {
        gdn_context *context = context_for(isas[i], 2);
        if (context) {
            complaints += check(context, isas[i]);
            gdn_context_destroy(&context);
        }
    }
    return complaints;
}

#endif
