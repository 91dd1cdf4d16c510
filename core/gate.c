/* gdn_gate: the gate formulas alone. */
#include "context.h"
#include "pointer.h"
#include "strides.h"
#include "tensor.h"

static gdn_dims dims_of(const gdn_tensor *tensor)
{
    gdn_dims dims = {.rank = 0};
    for (int32_t i = 0; i < tensor->rank; ++i) {
        gdn_dims_add(&dims, tensor->size[i], tensor->stride[i]);
    }
    return dims;
}

static gdn_status check_output(const gdn_tensor *output, const char *name, int64_t tokens, int64_t heads)
{
    const gdn_tensor_rule rule = {
        .name = name, .rank = 2, .size = {tokens, heads}, .dtypes = GDN_DTYPE_BIT(GDN_DTYPE_F32), .needs_data = true};
    GDN_TRY(gdn_tensor_check(output, &rule));
    const gdn_dims dims = dims_of(output);
    return gdn_dims_are_apart(&dims) ? GDN_OK
                                     : GDN_INVALID("%s.stride: %lld, %lld, must keep the elements apart", name,
                                                   (long long)output->stride[0], (long long)output->stride[1]);
}

static gdn_status check_input(const gdn_tensor *input, const char *name)
{
    const gdn_tensor_rule rule = {
        .name = name, .rank = 2, .size = {GDN_ANY_SIZE, GDN_ANY_SIZE}, .dtypes = GDN_FLOAT_DTYPES, .needs_data = true};
    return gdn_tensor_check(input, &rule);
}

static gdn_status check_apart(const gdn_tensor *output, const char *output_name, const gdn_tensor *other,
                              const char *other_name)
{
    if (output == NULL || other == NULL) {
        return GDN_OK;
    }
    const gdn_dims a = dims_of(output);
    const gdn_dims b = dims_of(other);
    const uintptr_t a_begin = (uintptr_t)output->data;
    const uintptr_t b_begin = (uintptr_t)other->data;
    const uintptr_t a_end = a_begin + (uintptr_t)gdn_dims_extent(&a) * gdn_dtype_size(output->dtype);
    const uintptr_t b_end = b_begin + (uintptr_t)gdn_dims_extent(&b) * gdn_dtype_size(other->dtype);
    return a_begin < b_end && b_begin < a_end ? GDN_INVALID("%s.data: %p, overlaps %s, must be memory of its own",
                                                            output_name, output->data, other_name)
                                              : GDN_OK;
}

static gdn_status check_pointers(const gdn_context *context, const gdn_tensor *const *tensors, const char *const *names,
                                 int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        if (tensors[i] != NULL && tensors[i]->data != NULL) {
            GDN_TRY(gdn_pointer_check(context, tensors[i]->data, names[i]));
        }
    }
    return GDN_OK;
}

gdn_status gdn_gate(gdn_context *context, const gdn_tensor *a, const gdn_tensor *b, const gdn_tensor *A_log,
                    const gdn_tensor *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                    void *stream)
{
    if (context == NULL) {
        return GDN_INVALID("context: NULL, must be a context");
    }
    if (log_decay != NULL) {
        GDN_TRY(check_input(a, "a"));
        GDN_TRY(check_output(log_decay, "log_decay", a->size[0], a->size[1]));
        gdn_tensor_rule rule = {.name = "A_log",
                                .rank = 1,
                                .size = {a->size[1]},
                                .dtypes = GDN_DTYPE_BIT(GDN_DTYPE_F32),
                                .unit_inner = true,
                                .needs_data = true};
        GDN_TRY(gdn_tensor_check(A_log, &rule));
        if (dt_bias != NULL) {
            rule.name = "dt_bias";
            GDN_TRY(gdn_tensor_check(dt_bias, &rule));
        }
    }
    if (beta != NULL) {
        GDN_TRY(check_input(b, "b"));
        GDN_TRY(check_output(beta, "beta", b->size[0], b->size[1]));
        if (beta_scale != 1.0f && beta_scale != 2.0f) {
            return GDN_INVALID("beta_scale: %g, must be 1 or 2", (double)beta_scale);
        }
    }
    const gdn_tensor *const inputs[] = {log_decay != NULL ? a : NULL, beta != NULL ? b : NULL,
                                        log_decay != NULL ? A_log : NULL, log_decay != NULL ? dt_bias : NULL};
    const char *const input_names[] = {"a", "b", "A_log", "dt_bias"};
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); ++i) {
        GDN_TRY(check_apart(log_decay, "log_decay", inputs[i], input_names[i]));
        GDN_TRY(check_apart(beta, "beta", inputs[i], input_names[i]));
    }
    GDN_TRY(check_apart(log_decay, "log_decay", beta, "beta"));
    const gdn_tensor *const outputs[] = {log_decay, beta};
    const char *const output_names[] = {"log_decay", "beta"};
    GDN_TRY(check_pointers(context, inputs, input_names, 4));
    GDN_TRY(check_pointers(context, outputs, output_names, 2));
    const float *const decay_rates = inputs[2] != NULL ? inputs[2]->data : NULL;
    const float *const biases = inputs[3] != NULL ? inputs[3]->data : NULL;
    return context->backend->gate(context->device, inputs[0], inputs[1], decay_rates, biases, beta_scale, log_decay,
                                  beta, stream);
}
