/* Each fused prefill by its name, on standard inputs in bfloat16: at least as exact as other implementations were measured
 * to be on them. Prints the errors as a table. */
#include "gpu_tools.h"

#include "harness/compare.h"
#include "harness/tolerances.h"

#include <stdlib.h>
#include <string.h>

typedef struct sums {
    double error, ref;
} sums;

static void add(sums *s, double got, double want)
{
    s->error += (got - want) * (got - want);
    s->ref += want * want;
}

static double output_error(const test_case *c, const reference_result *ref)
{
    const int32_t HV = c->problem.num_v_heads, V = c->problem.head_v_dim;
    sums s = {0, 0};
    for (int64_t t = 0; t < ref->num_tokens; t++) {
        for (int32_t head = 0; head < HV; head++) {
            for (int32_t d = 0; d < V; d++) {
                add(&s, case_output(c, t, head, d), ref->o[(t * HV + head) * V + d]);
            }
        }
    }
    return frobenius_of(s.error, s.ref);
}

static double state_error(const test_case *c, const reference_result *ref)
{
    const int32_t HV = c->problem.num_v_heads, V = c->problem.head_v_dim, K = c->problem.head_k_dim;
    sums s = {0, 0};
    for (int64_t n = 0; n < ref->num_rows; n++) {
        for (int32_t head = 0; head < HV; head++) {
            for (int32_t v = 0; v < V; v++) {
                for (int32_t k = 0; k < K; k++) {
                    const int64_t at = ((n * HV + head) * V + v) * K + k;
                    add(&s, case_state_after(c, CASE_FINAL_STATE, n, head, v, k), ref->state[at]);
                }
            }
        }
    }
    return frobenius_of(s.error, s.ref);
}

/* 1 where an error is too large. Where the device has not this implementation the case is left out. */
static int check_accuracy(const char *implementation, const case_spec *spec, int *measured)
{
    gdn_context_options options;
    gdn_context *context = NULL;
    test_case c;
    char name[64], allowed[80];
    snprintf(allowed, sizeof(allowed), "%s,generic", implementation);
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    options.implementations = allowed;
    REQUIRE_OK(gdn_context_create(&context, &options));
    case_build(&c, spec);
    case_implementation(context, &c, name);
    int complaints = 0;
    if (strcmp(name, implementation) == 0) {
        REQUIRE_OK(case_run(context, &c, NULL));
        reference_result ref = reference_of(&c);
        const double o = output_error(&c, &ref), state = state_error(&c, &ref);
        reference_free(&ref);
        complaints = !(o <= TOLERANCE_STANDARD_O) || !(state <= TOLERANCE_STANDARD_STATE);
        printf("%-16s %-12s %2d/%-2d K %3d  o %.2e (at most %.1e)  state %.2e (%.1e)%s\n", implementation, spec->label,
               spec->num_k_heads, spec->num_v_heads, spec->head_k_dim, o, TOLERANCE_STANDARD_O, state,
               TOLERANCE_STANDARD_STATE, complaints ? "  TOO LARGE" : "");
        ++*measured;
    }
    case_free(&c);
    gdn_context_destroy(&context);
    return complaints;
}

static void check_standard_inputs(const char *implementation)
{
    const int32_t heads[][2] = {{16, 32}, {32, 32}, {16, 64}, {2, 4}};
    const gate_regime regimes[] = {GATES_STANDARD, GATES_WEAK, GATES_STRONG};
    int measured = 0;
    int complaints = 0;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        const case_spec base = {.label = "T=256",
                                .seed = 900 + i,
                                .num_k_heads = heads[i][0],
                                .num_v_heads = heads[i][1],
                                .head_k_dim = 128,
                                .dtype = GDN_DTYPE_BF16,
                                .final_dtype = GDN_DTYPE_F32,
                                .length = 256,
                                .no_initial_state = true};
        case_spec spec = base;
        complaints += check_accuracy(implementation, &spec, &measured);
        spec.label = "T=256 h0";
        spec.no_initial_state = false;
        complaints += check_accuracy(implementation, &spec, &measured);
        if (heads[i][0] == 2 && !test_is_small()) {
            spec = base;
            spec.label = "T=4096";
            spec.length = 4096;
            complaints += check_accuracy(implementation, &spec, &measured);
            for (size_t dim = 64; dim <= 256; dim *= 4) {
                spec.label = "T=512";
                spec.length = 512;
                spec.head_k_dim = (int32_t)dim;
                complaints += check_accuracy(implementation, &spec, &measured);
            }
        }
        spec = base;
        spec.label = "varlen h0";
        spec.no_initial_state = false;
        spec.lengths = LENGTHS(1, 63, 64, 65, 300, 19);
        spec.num_seqs = 6;
        for (size_t r = 0; r < COUNT_OF(regimes) && (r == 0 || heads[i][0] == 2); r++) {
            spec.gates = regimes[r];
            complaints += check_accuracy(implementation, &spec, &measured);
        }
    }
    NO_COMPLAINTS(complaints);
    if (measured == 0) {
        printf("skipped: this device does not take %s\n", implementation);
        skip();
    }
}

static void sm90_is_as_exact_as_others(void **state)
{
    (void)state;
    check_standard_inputs("cuda.sm90");
}

static void fused_mma_is_as_exact_as_others(void **state)
{
    (void)state;
    check_standard_inputs("cuda.fused_mma");
}

int main(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sm90_is_as_exact_as_others),
        cmocka_unit_test(fused_mma_is_as_exact_as_others),
    };
    return cmocka_run_group_tests_name("cuda accuracy", tests, NULL, NULL);
}
