/* The triangular inverse where powers of L grow like binomials: equal and correlated keys, slow decay, beta near 1 or 2. */
#include "suite.h"

#include "tolerances.h"

#include <math.h>

static case_spec equal_keys(const char *label)
{
    return (case_spec){.label = label,
                       .seed = 601,
                       .adversarial = true,
                       .num_k_heads = 1,
                       .num_v_heads = 2,
                       .head_k_dim = 128,
                       .head_v_dim = test_is_small() ? 16 : 128,
                       .keys = KEYS_EQUAL,
                       .gates = GATES_CONSTANT,
                       .betas = BETAS_CONSTANT};
}

/* Entry 2: near-parallel keys, slow decay, beta 0.835. */
static void parallel_keys_amplify_rounded_inverses(void **unused)
{
    (void)unused;
    static const int32_t chunks[] = {0, 16, 64, 128, 256};
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        case_spec spec = equal_keys("equal keys, beta 0.835, g -1e-3");
        spec.chunk_size = chunks[i];
        spec.length = 256;
        spec.gate = -1e-3;
        spec.beta_form = GDN_BETA_LOGIT;
        spec.beta = 0.835;
        NO_COMPLAINTS(check_case(&spec));
    }
}

/* Entry 3: with q = k one unit vector, beta = 1 and no decay, S_t k = v_t, so o_t = scale v_t for every t, exactly. */
static void doubling_inverses_fail_on_equal_keys(void **unused)
{
    (void)unused;
    static const int32_t chunks[] = {0, 32, 64, 128};
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        case_spec spec = equal_keys("equal keys, beta 1, g 0");
        spec.chunk_size = chunks[i];
        spec.length = 130;
        spec.beta_form = GDN_BETA_LOGIT;
        spec.beta = 1;
        test_case c;
        case_build(&c, &spec);
        NO_COMPLAINTS(check_built_case(test_context(), &c));
        for (int64_t t = 0; t < 130; t++) {
            for (int32_t d = 0; d < spec.head_v_dim; d++) {
                const double want = (double)c.problem.scale * case_get(&c, CASE_V, t, 1, d);
                assert_true(fabs(case_output(&c, t, 1, d) - want) <= 1e-5 * (double)c.problem.scale * 4);
            }
        }
        case_free(&c);
    }
}

/* beta = 2 reflects: with a constant v and no initial state o is 2 scale v, 0, 2 scale v, 0, ... Keys of 64 equal elements are
 * exactly 1 long. */
static void beta_two_reflects(void **unused)
{
    (void)unused;
    case_spec spec = equal_keys("equal keys, beta 2");
    spec.head_k_dim = 64;
    spec.length = 131; /* odd, so that the state does not end as the rounding of 0 */
    spec.beta_form = GDN_BETA_LOGIT;
    spec.beta_scale = 2;
    spec.beta = 2;
    spec.no_initial_state = true;
    test_case c;
    case_build(&c, &spec);
    for (int64_t t = 0; t < 131; t++) {
        for (int32_t head = 0; head < 2; head++) {
            for (int32_t d = 0; d < spec.head_v_dim; d++) {
                case_put(&c, CASE_V, t, head, d, 1);
            }
        }
    }
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    for (int64_t t = 0; t < 131; t++) {
        const double want = t % 2 == 0 ? 2 * (double)c.problem.scale : 0;
        assert_true(fabs(case_output(&c, t, 0, 5) - want) <= 1e-5 * (double)c.problem.scale);
    }
    case_free(&c);
}

/* Frobenius errors of o and of the final state of one sequence. */
static void errors(const test_case *c, const reference_result *ref, double *o, double *state)
{
    const gdn_problem *const p = &c->problem;
    double sums[4] = {0};
    for (int64_t t = 0; t < c->spec.length; t++) {
        for (int32_t i = 0; i < p->num_v_heads * p->head_v_dim; i++) {
            const double want = ref->o[t * p->num_v_heads * p->head_v_dim + i];
            const double off = case_output(c, t, i / p->head_v_dim, i % p->head_v_dim) - want;
            sums[0] += off * off;
            sums[1] += want * want;
        }
    }
    for (int32_t i = 0; i < p->num_v_heads * p->head_v_dim * p->head_k_dim; i++) {
        const double want = ref->state[i];
        const int32_t row = i / p->head_k_dim;
        const double off =
            case_state_after(c, CASE_FINAL_STATE, 0, row / p->head_v_dim, row % p->head_v_dim, i % p->head_k_dim) -
            want;
        sums[2] += off * off;
        sums[3] += want * want;
    }
    *o = sqrt(sums[0] / sums[1]);
    *state = sqrt(sums[2] / sums[3]);
}

/* With beta = 2 and no decay a write is a reflection, which forgets nothing: where |k|^2 is not a float32, each token's rounding
 * stays. So the bound is that of one token, for each token. */
static void reflections_keep_every_rounding(void **unused)
{
    (void)unused;
    static const int32_t dims[] = {48, 96, 128, 208};
    const double allowed = 131 * (test_backend_is_host() ? TOLERANCE_FROBENIUS : TOLERANCE_GPU_FROBENIUS);
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        case_spec spec = equal_keys("equal keys that are not quite 1 long, beta 2");
        spec.head_k_dim = dims[i];
        spec.length = 131;
        spec.beta_form = GDN_BETA_LOGIT;
        spec.beta_scale = 2;
        spec.beta = 2;
        test_case c;
        case_build(&c, &spec);
        reference_result ref = reference_of(&c);
        assert_int_equal(case_run(test_context(), &c, NULL), GDN_OK);
        double o, state;
        errors(&c, &ref, &o, &state);
        assert_true(o <= allowed);
        assert_true(state <= allowed);
        reference_free(&ref);
        case_free(&c);
    }
}

/* All-positive keys, as other test suites draw them: every pair is highly correlated. */
static void positive_keys_in_every_gate_regime(void **unused)
{
    (void)unused;
    int complaints = 0;
    for (gate_regime regime = 0; regime < NUM_GATE_REGIMES; regime++) {
        for (int norm = 0; norm < 2; norm++) {
            char label[64];
            snprintf(label, sizeof(label), "positive keys, regime %d, norm %d", (int)regime, norm);
            const case_spec spec = {.label = label,
                                    .seed = 602,
                                    .adversarial = true,
                                    .num_k_heads = 2,
                                    .num_v_heads = 4,
                                    .head_k_dim = 64,
                                    .length = 200,
                                    .keys = KEYS_POSITIVE,
                                    .gates = regime,
                                    .qk_norm = norm ? GDN_QK_NORM_RSQRT : GDN_QK_NORM_NONE,
                                    .state_size = 1};
            complaints += check_case(&spec);
        }
    }
    NO_COMPLAINTS(complaints);
}

/* Keys longer than 1 are fine while the decay holds them: the inverse must see the decay. |k|^2 = 11, alpha = 0.09. */
static void long_keys_under_strong_decay(void **unused)
{
    (void)unused;
    case_spec spec = equal_keys("|k|^2 = 11, alpha 0.09");
    spec.length = 130;
    spec.gate = log(0.09);
    spec.beta = 1;
    test_case c;
    case_build(&c, &spec);
    for (int64_t t = 0; t < 130; t++) {
        for (int32_t d = 0; d < 128; d++) {
            case_put(&c, CASE_K, t, 0, d, sqrt(11.0 / 128));
        }
    }
    NO_COMPLAINTS(check_built_case(test_context(), &c));
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel_keys_amplify_rounded_inverses),
        cmocka_unit_test(doubling_inverses_fail_on_equal_keys),
        cmocka_unit_test(beta_two_reflects),
        cmocka_unit_test(reflections_keep_every_rounding),
        cmocka_unit_test(positive_keys_in_every_gate_regime),
        cmocka_unit_test(long_keys_under_strong_decay),
    };
    return RUN_SUITE("inverse", tests);
}
