/* A run against the double reference. */
#include "judge.h"

#include "check.h"
#include "compare.h"
#include "emulation.h"
#include "execute.h"
#include "formats.h"
#include "tolerances.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bounds {
    double frobenius; /* of all heads together */
    double head; /* of one */
    double largest; /* error of one element, by the head's largest value */
    double row;
    bool rounded; /* judge 16-bit results element by element instead */
    bool products16; /* of operands of 16 bits: grow with the cancellation of terms */
} bounds;

static bounds bounds_of(const test_case *c, bool state, gdn_dtype dtype)
{
    const bool narrow = dtype != GDN_DTYPE_F32;
    const double frobenius = c->spec.adversarial ? TOLERANCE_FROBENIUS_ADVERSARIAL : TOLERANCE_FROBENIUS;
    if (test_backend_is_host() && c->spec.numerics == GDN_NUMERICS_BF16) {
        return (bounds){
            TOLERANCE_CPU_BF16, TOLERANCE_CPU_BF16, TOLERANCE_TENSOR_CORE_ROW, TOLERANCE_TENSOR_CORE_ROW, false, true};
    }
    if (test_backend_is_host()) {
        return (bounds){frobenius, TOLERANCE_HEAD, TOLERANCE_LARGEST, TOLERANCE_ROW, narrow, false};
    }
    const bool tensor_cores = (c->spec.dtype != GDN_DTYPE_F32 && c->spec.numerics == GDN_NUMERICS_DEFAULT) ||
                              c->spec.numerics == GDN_NUMERICS_BF16 || c->spec.numerics == GDN_NUMERICS_TF32;
    if (!tensor_cores) {
        return (bounds){
            fmax(frobenius, TOLERANCE_GPU_FROBENIUS), TOLERANCE_HEAD, TOLERANCE_LARGEST, TOLERANCE_ROW, narrow, false};
    }
    const double tensor_core = state ? TOLERANCE_TENSOR_CORE_STATE : TOLERANCE_TENSOR_CORE_O;
    return (bounds){tensor_core, tensor_core, TOLERANCE_TENSOR_CORE_ROW, TOLERANCE_TENSOR_CORE_ROW, false, true};
}

/* How many times its bound a result may be off: rounding a chunk's operands is multiplied by what their products cancel,
 * the root of the sum of the terms' squares over the result's. */
static double cancellation(const bounds *allowed, double terms_sum, double ref_sum)
{
    const double factor = ref_sum > 0 ? TOLERANCE_CANCELLATION * sqrt(terms_sum / ref_sum) : 1;
    return allowed->products16 && isfinite(factor) && factor > 1 ? factor : 1;
}

static double *doubles(int64_t count)
{
    double *const memory = calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    REQUIRE(memory != NULL);
    return memory;
}

static bool all_finite(const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

/* What is being judged, for complaints, and the sums of its heads so far. */
typedef struct verdict {
    const test_case *c;
    const char *what;
    int64_t which;
    gdn_dtype dtype;
    bounds allowed;
    double error_sum, ref_sum, terms_sum;
} verdict;

/* `terms`: squares of the terms that the results in use are sums of. */
static int judge_head(verdict *v, const compared *arrays, int32_t head, double terms)
{
    const difference d = compare_rows(arrays);
    const bounds *const allowed = &v->allowed;
    const double times = cancellation(allowed, terms, d.ref_sum);
    v->error_sum += d.error_sum;
    v->ref_sum += d.ref_sum;
    v->terms_sum += terms;
    if (!d.finite) {
        fprintf(stderr, "%s: %s %lld head %d: row %lld element %lld is not finite\n", v->c->spec.label, v->what,
                (long long)v->which, head, (long long)d.bad_row, (long long)d.bad_column);
        return 1;
    }
    int64_t row = d.worst_row, column = d.worst_column;
    bool bad;
    if (allowed->rounded) {
        bad = find_badly_rounded(arrays, v->dtype, TOLERANCE_ROUNDED * d.rms_row_norm, &row, &column);
    } else {
        bad =
            d.frobenius > times * allowed->head || d.row > times * allowed->row || d.largest > times * allowed->largest;
    }
    if (bad) {
        fprintf(stderr,
                "%s: %s %lld head %d: Frobenius %.3g (allowed %.3g), row %.3g (%.3g), largest %.3g (%.3g); row %lld "
                "element "
                "%lld is %.9g, should be %.9g\n",
                v->c->spec.label, v->what, (long long)v->which, head, d.frobenius, times * allowed->head, d.row,
                times * allowed->row, d.largest, times * allowed->largest, (long long)row, (long long)column,
                arrays->got[row * arrays->width + column], arrays->ref[row * arrays->width + column]);
    }
    return bad;
}

/* All heads together, after each alone. */
static int judge_sums(const verdict *v)
{
    const double error = frobenius_of(v->error_sum, v->ref_sum);
    const double allowed = v->allowed.frobenius * cancellation(&v->allowed, v->terms_sum, v->ref_sum);
    if (v->allowed.rounded || error <= allowed) {
        return 0;
    }
    fprintf(stderr, "%s: %s %lld: Frobenius %.3g (allowed %.3g)\n", v->c->spec.label, v->what, (long long)v->which,
            error, allowed);
    return 1;
}

static int judge_outputs(const test_case *c, const reference_result *ref)
{
    const int32_t HV = c->problem.num_v_heads, V = c->problem.head_v_dim;
    double *const got = doubles(ref->num_tokens * V), *const want = doubles(ref->num_tokens * V);
    bool *const use = malloc((size_t)ref->num_tokens + 1);
    REQUIRE(use != NULL);
    verdict v = {c, "o, tokens from", 0, c->problem.o.dtype, bounds_of(c, false, c->problem.o.dtype), 0, 0, 0};
    int complaints = 0;
    for (int32_t head = 0; head < HV; head++) {
        double terms = 0;
        for (int64_t t = 0; t < ref->num_tokens; t++) {
            const double *const row = ref->o + (t * HV + head) * V;
            use[t] = ref->token_written[t] && all_finite(row, V);
            terms += use[t] ? ref->o_terms[t * HV + head] : 0;
            for (int32_t d = 0; use[t] && d < V; d++) {
                got[t * V + d] = case_output(c, t, head, d);
                want[t * V + d] = row[d];
            }
        }
        const compared arrays = {ref->num_tokens, V, got, want, use};
        complaints += judge_head(&v, &arrays, head, terms);
    }
    free(got);
    free(want);
    free(use);
    return complaints + judge_sums(&v);
}

/* A state that passed through no token is the initial one, bit for bit where the dtypes agree. */
static int judge_passed_on(const test_case *c, gdn_dtype dtype, const double *got, const double *want, int64_t count,
                           int64_t slot)
{
    for (int64_t i = 0; i < count; i++) {
        float exact = 0;
        format_encode(dtype, &exact, 0, want[i]);
        if (format_decode(dtype, &exact, 0) != got[i]) {
            fprintf(stderr,
                    "%s: state of slot %lld, passed on by a sequence of no tokens: element %lld is %.9g, was %.9g\n",
                    c->spec.label, (long long)slot, (long long)i, got[i], want[i]);
            return 1;
        }
    }
    return 0;
}

/* `terms` of each head. */
static int judge_state(const test_case *c, case_operand operand, int64_t slot, const double *ref, const double *terms,
                       bool passed_on, const char *what)
{
    const gdn_problem *const p = &c->problem;
    const gdn_state_layout *const layout = operand == CASE_STATE         ? &p->state
                                           : operand == CASE_FINAL_STATE ? &p->final_state
                                                                         : &p->checkpoints;
    const int64_t size = (int64_t)p->head_v_dim * p->head_k_dim;
    double *const got = doubles(size);
    verdict sums = {c, what, slot, layout->dtype, bounds_of(c, true, layout->dtype), 0, 0, 0};
    int complaints = 0;
    for (int32_t head = 0; head < p->num_v_heads; head++) {
        const double *const want = ref + head * size;
        if (!all_finite(want, size)) {
            continue;
        }
        for (int32_t v = 0; v < p->head_v_dim; v++) {
            for (int32_t k = 0; k < p->head_k_dim; k++) {
                got[(int64_t)v * p->head_k_dim + k] = case_state_after(c, operand, slot, head, v, k);
            }
        }
        const compared arrays = {p->head_v_dim, p->head_k_dim, got, want, NULL};
        complaints += judge_head(&sums, &arrays, head, terms != NULL ? terms[head] : 0);
        if (passed_on) {
            complaints += judge_passed_on(c, layout->dtype, got, want, size, slot);
        }
    }
    free(got);
    return complaints + judge_sums(&sums);
}

static int64_t token_slot(const test_case *c, int64_t token)
{
    return format_load_index(c->spec.slots_dtype, case_before(c, CASE_TOKEN_SLOTS), token);
}

static int judge_states(const test_case *c, const reference_result *ref)
{
    const int32_t HV = c->problem.num_v_heads;
    const int64_t size = (int64_t)HV * c->problem.head_v_dim * c->problem.head_k_dim;
    int complaints = 0;
    for (int64_t n = 0; n < ref->num_rows; n++) {
        case_operand operand;
        int64_t slot;
        if (ref->row_done[n] && case_result_state(c, n, &operand, &slot)) {
            complaints += judge_state(c, operand, slot, ref->state + n * size, ref->state_terms + n * HV,
                                      case_length(c, n) == 0, "state of slot");
        }
    }
    for (int64_t i = 0; i < ref->num_checkpoints; i++) {
        if (ref->checkpoint_written[i]) {
            complaints += judge_state(c, CASE_CHECKPOINTS, i, ref->checkpoints + i * size,
                                      ref->checkpoint_terms + i * HV, false, "checkpoint");
        }
    }
    for (int64_t t = 0; ref->token_states != NULL && t < ref->num_tokens; t++) {
        if (ref->token_written[t] && token_slot(c, t) >= 0) {
            complaints += judge_state(c, CASE_STATE, token_slot(c, t), ref->token_states + t * size, NULL, false,
                                      "state of token slot");
        }
    }
    return complaints;
}

/* In `expected`, a copy of the buffer as it was, puts what the run wrote at one element. */
static void allow(const test_case *c, case_operand operand, unsigned char *expected, int64_t index, gdn_dtype dtype)
{
    const size_t size = format_size(dtype);
    memcpy(expected + c->view[operand].offset + (size_t)index * size, case_after(c, operand) + (size_t)index * size,
           size);
}

static void allow_state(const test_case *c, case_operand operand, unsigned char *expected, int64_t slot)
{
    const gdn_dtype dtype = operand == CASE_STATE         ? c->problem.state.dtype
                            : operand == CASE_FINAL_STATE ? c->problem.final_state.dtype
                                                          : c->problem.checkpoints.dtype;
    for (int32_t head = 0; head < c->problem.num_v_heads; head++) {
        for (int32_t v = 0; v < c->problem.head_v_dim; v++) {
            for (int32_t k = 0; k < c->problem.head_k_dim; k++) {
                allow(c, operand, expected, case_state_index(c, operand, slot, head, v, k), dtype);
            }
        }
    }
}

static void allow_states(const test_case *c, const reference_result *ref, case_operand operand, unsigned char *expected)
{
    for (int64_t n = 0; n < ref->num_rows; n++) {
        case_operand target;
        int64_t slot;
        if (ref->row_done[n] && case_result_state(c, n, &target, &slot) &&
            c->view[target].buffer == c->view[operand].buffer) {
            allow_state(c, target, expected, slot);
        }
    }
    for (int64_t t = 0; operand == CASE_STATE && ref->token_states != NULL && t < ref->num_tokens; t++) {
        if (ref->token_written[t] && token_slot(c, t) >= 0) {
            allow_state(c, CASE_STATE, expected, token_slot(c, t));
        }
    }
    for (int64_t i = 0; operand == CASE_CHECKPOINTS && i < ref->num_checkpoints; i++) {
        if (ref->checkpoint_written[i]) {
            allow_state(c, CASE_CHECKPOINTS, expected, i);
        }
    }
}

static int judge_bytes(const test_case *c, case_operand operand, const unsigned char *expected)
{
    const case_buffer *const buffer = &c->buffer[operand];
    for (size_t i = 0; i < buffer->bytes; i++) {
        if (buffer->after[i] != expected[i]) {
            fprintf(stderr, "%s: byte %zu of argument %d was written and no output is there\n", c->spec.label, i,
                    (int)operand);
            return 1;
        }
    }
    return 0;
}

int judge_untouched(const test_case *c, const reference_result *ref)
{
    int complaints = 0;
    for (case_operand operand = 0; operand < CASE_NUM_OPERANDS; operand++) {
        const case_buffer *const buffer = &c->buffer[operand];
        if (buffer->bytes == 0) {
            continue;
        }
        unsigned char *const expected = malloc(buffer->bytes);
        REQUIRE(expected != NULL);
        memcpy(expected, buffer->before, buffer->bytes);
        if (c->view[CASE_O].buffer == (int32_t)operand) {
            for (int64_t t = 0; t < ref->num_tokens; t++) {
                for (int32_t head = 0; ref->token_written[t] && head < c->problem.num_v_heads; head++) {
                    for (int32_t d = 0; d < c->problem.head_v_dim; d++) {
                        allow(c, CASE_O, expected, case_index(c, CASE_O, t, head, d), c->problem.o.dtype);
                    }
                }
            }
        } else {
            allow_states(c, ref, operand, expected);
        }
        complaints += judge_bytes(c, operand, expected);
        free(expected);
    }
    return complaints;
}

int judge_nothing_written(const test_case *c)
{
    int complaints = 0;
    for (case_operand operand = 0; operand < CASE_NUM_OPERANDS; operand++) {
        complaints += judge_bytes(c, operand, c->buffer[operand].before);
    }
    return complaints;
}

static bool has_float16(const gdn_problem *p)
{
    const gdn_dtype dtypes[] = {p->q.dtype,     p->gate.dtype,        p->beta.dtype,
                                p->state.dtype, p->final_state.dtype, p->checkpoints.dtype};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (dtypes[i] == GDN_DTYPE_F16) {
            return true;
        }
    }
    return false;
}

int judge_case(const test_case *c, const reference_result *ref)
{
    if (has_float16(&c->problem) && emulation_flushes_float16()) {
        printf("%s: float16, not judged: this emulated CPU flushes its subnormals\n", c->spec.label);
        return judge_untouched(c, ref);
    }
    return judge_outputs(c, ref) + judge_states(c, ref) + judge_untouched(c, ref);
}

reference_result reference_of(const test_case *c)
{
    if (c->spec.operation == GDN_OPERATION_DECODE) {
        const gdn_decode_args args = case_decode_args_before(c);
        return reference_decode(&c->problem, &args);
    }
    const gdn_prefill_args args = case_prefill_args_before(c);
    return reference_prefill(&c->problem, &args);
}

int check_built_case(gdn_context *context, test_case *c)
{
    int complaints = 0;
    if (case_run(context, c, &complaints) != GDN_OK) {
        return 1;
    }
    reference_result ref = reference_of(c);
    complaints += judge_case(c, &ref);
    reference_free(&ref);
    return complaints;
}

int check_case(const case_spec *spec)
{
    test_case c;
    case_build(&c, spec);
    const int complaints = check_built_case(test_context(), &c);
    case_free(&c);
    return complaints;
}
