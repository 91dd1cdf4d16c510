#include "layer_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    layer_file *layer;
    char *error;
    size_t error_size;
} loader;

static bool fail(const loader *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(const loader *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->error, l->error_size, format, args);
    va_end(args);
    return false;
}

static bool is_float(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 || dtype == GDN_DTYPE_BF16 || dtype == GDN_DTYPE_F16;
}

/* The first of two names that is there; NULL: neither. */
static const safetensors_tensor *find_either(const loader *l, const char *name, const char *other)
{
    const safetensors_tensor *const tensor = safetensors_find(l->layer->file, name);
    return tensor != NULL || other == NULL ? tensor : safetensors_find(l->layer->file, other);
}

static bool check_shape(const loader *l, const safetensors_tensor *tensor, int32_t rank, const int64_t *size)
{
    bool same = tensor->rank == rank;
    char want[96] = "", got[192] = "";
    size_t used_want = 0, used_got = 0;
    for (int32_t i = 0; i < rank; i++) {
        same = same && tensor->size[i] == size[i];
        used_want += (size_t)snprintf(want + used_want, sizeof(want) - used_want, "%s%lld", i > 0 ? ", " : "",
                                      (long long)size[i]);
    }
    for (int32_t i = 0; i < tensor->rank; i++) {
        used_got += (size_t)snprintf(got + used_got, sizeof(got) - used_got, "%s%lld", i > 0 ? ", " : "",
                                     (long long)tensor->size[i]);
    }
    return same || fail(l, "tensor '%s': shape [%s], must be [%s]", tensor->name, got, want);
}

/* Elements as float32; the tensor's data may lie at any address. */
static bool read_floats(const loader *l, const safetensors_tensor *tensor, float *values, int64_t count)
{
    if (!is_float(tensor->dtype)) {
        return fail(l, "tensor '%s': dtype %s, must be f32, bf16 or f16", tensor->name, gdn_dtype_name(tensor->dtype));
    }
    void *const aligned = malloc(tensor->bytes + 1);
    if (aligned == NULL) {
        return fail(l, "out of memory");
    }
    memcpy(aligned, tensor->data, tensor->bytes);
    const gdn_status status = gdn_convert(values, GDN_DTYPE_F32, aligned, tensor->dtype, count);
    free(aligned);
    return status == GDN_OK || fail(l, "tensor '%s': %s", tensor->name, gdn_last_error());
}

/* Index of a metadata value in a list of words, the first being the default; -1: wrong, reported. */
static int metadata_word(const loader *l, const char *key, const char *const *words, int count)
{
    const char *const value = safetensors_metadata(l->layer->file, key);
    for (int i = 0; i < count; i++) {
        if (value == NULL || strcmp(value, words[i]) == 0) {
            return i;
        }
    }
    char allowed[96] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    fail(l, "metadata %s: '%.32s' is not one of %s", key, value, allowed);
    return -1;
}

static bool metadata_number(const loader *l, const char *key, float *number)
{
    const char *const value = safetensors_metadata(l->layer->file, key);
    if (value == NULL) {
        return true;
    }
    char *end = NULL;
    *number = strtof(value, &end);
    return (end != value && *end == 0 && isfinite(*number)) ||
           fail(l, "metadata %s: '%.32s' is not a finite number", key, value);
}

static bool read_options(const loader *l, gdn_problem *problem)
{
    static const char *const gates[] = {"raw", "log_decay", "decay"};
    static const char *const betas[] = {"logit", "value"};
    static const char *const norms[] = {"rsqrt", "none", "eps_outside"};
    static const char *const maps[] = {"grouped", "tiled"};
    static const gdn_gate_form gate_forms[] = {GDN_GATE_RAW, GDN_GATE_LOG_DECAY, GDN_GATE_DECAY};
    static const gdn_beta_form beta_forms[] = {GDN_BETA_LOGIT, GDN_BETA_VALUE};
    static const gdn_qk_norm norm_forms[] = {GDN_QK_NORM_RSQRT, GDN_QK_NORM_NONE, GDN_QK_NORM_EPS_OUTSIDE};
    const int gate = metadata_word(l, "gdn.gate", gates, 3),
              beta = gate < 0 ? -1 : metadata_word(l, "gdn.beta", betas, 2);
    const int norm = beta < 0 ? -1 : metadata_word(l, "gdn.norm", norms, 3);
    const int map = norm < 0 ? -1 : metadata_word(l, "gdn.head_map", maps, 2);
    if (map < 0) {
        return false;
    }
    problem->gate_form = gate_forms[gate];
    problem->beta_form = beta_forms[beta];
    problem->qk_norm = norm_forms[norm];
    problem->head_map = map == 0 ? GDN_HEAD_MAP_GROUPED : GDN_HEAD_MAP_TILED;
    return metadata_number(l, "gdn.norm_eps", &problem->qk_norm_eps) &&
           metadata_number(l, "gdn.scale", &problem->scale);
}

/* Sequence bounds: ascending from 0 to at most the tokens there are. */
static bool read_cu(const loader *l, int64_t tokens, int64_t **cu, int64_t *num_seqs)
{
    const safetensors_tensor *const tensor = safetensors_find(l->layer->file, "cu_seqlens");
    if (tensor != NULL && ((tensor->dtype != GDN_DTYPE_I32 && tensor->dtype != GDN_DTYPE_I64) || tensor->rank != 1 ||
                           tensor->size[0] < 1)) {
        return fail(l, "tensor 'cu_seqlens': must be I32 or I64 of shape [N + 1]");
    }
    *num_seqs = tensor != NULL ? tensor->size[0] - 1 : 1;
    *cu = calloc((size_t)*num_seqs + 2, sizeof(int64_t));
    if (*cu == NULL) {
        return fail(l, "out of memory");
    }
    (*cu)[1] = tokens;
    for (int64_t i = 0; tensor != NULL && i <= *num_seqs; i++) {
        int32_t narrow = 0;
        if (tensor->dtype == GDN_DTYPE_I32) {
            memcpy(&narrow, (const char *)tensor->data + i * 4, 4);
            (*cu)[i] = narrow;
        } else {
            memcpy(&(*cu)[i], (const char *)tensor->data + i * 8, 8);
        }
        if ((*cu)[i] < (i == 0 ? 0 : (*cu)[i - 1]) || (*cu)[i] > tokens || (i == 0 && (*cu)[0] != 0)) {
            return fail(l, "tensor 'cu_seqlens': element %lld is %lld; must ascend from 0 to at most %lld tokens",
                        (long long)i, (long long)(*cu)[i], (long long)tokens);
        }
    }
    return true;
}

static bool read_tensor(const loader *l, const char *name, const char *other, int32_t rank, const int64_t *size,
                        float *values)
{
    const safetensors_tensor *const tensor = find_either(l, name, other);
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        count *= size[i];
    }
    if (tensor == NULL) {
        return fail(l, "tensor '%s' is missing", name);
    }
    return check_shape(l, tensor, rank, size) && read_floats(l, tensor, values, count);
}

/* Shapes from q and v, into a problem of these heads and dims. */
static bool read_shapes(const loader *l, gdn_problem *problem, int64_t *tokens)
{
    const safetensors_tensor *const q = safetensors_find(l->layer->file, "q");
    const safetensors_tensor *const v = safetensors_find(l->layer->file, "v");
    if (q == NULL || v == NULL || q->rank != 3 || v->rank != 3) {
        return fail(l, "tensors q [tokens, heads, dim] and v [tokens, heads, dim] must be there, of rank 3");
    }
    for (int i = 1; i < 3; i++) {
        const int64_t most = i == 1 ? 65536 : 1024;
        if (q->size[i] < 1 || q->size[i] > most || v->size[i] < 1 || v->size[i] > most) {
            return fail(l, "tensors q and v: heads must be in 1..65536 and dims in 1..1024");
        }
    }
    if (v->size[0] != q->size[0]) {
        return fail(l, "tensor 'v': %lld tokens, q has %lld", (long long)v->size[0], (long long)q->size[0]);
    }
    *tokens = q->size[0];
    (void)gdn_problem_init(problem, (int32_t)q->size[1], (int32_t)v->size[1], (int32_t)q->size[2], (int32_t)v->size[2]);
    problem->q.dtype = problem->k.dtype = problem->v.dtype = problem->o.dtype = q->dtype;
    return true;
}

static bool read_gates(const loader *l, workload *load)
{
    const gdn_problem *const p = &load->problem;
    static const char *const names[] = {"log_decay", "decay", "a"}; /* by gdn_gate_form */
    const int64_t heads[2] = {load->total_tokens, p->num_v_heads};
    const bool raw = p->gate_form == GDN_GATE_RAW;
    if (!read_tensor(l, names[p->gate_form], raw ? NULL : "a", 2, heads, load->gate) ||
        !read_tensor(l, p->beta_form == GDN_BETA_LOGIT ? "b" : "beta", "b", 2, heads, load->beta)) {
        return false;
    }
    if (raw && safetensors_find(l->layer->file, "dt_bias") == NULL) {
        free(load->dt_bias);
        load->dt_bias = NULL;
    }
    return !raw || (read_tensor(l, "A_log", NULL, 1, &heads[1], load->A_log) &&
                    (load->dt_bias == NULL || read_tensor(l, "dt_bias", NULL, 1, &heads[1], load->dt_bias)));
}

/* Gate tensors stay in float32 unless the file has them in the dtype of q. */
static gdn_dtype gate_dtype(const loader *l, const gdn_problem *problem, const char *name, const char *other)
{
    const safetensors_tensor *const tensor = find_either(l, name, other);
    return tensor != NULL && tensor->dtype == problem->q.dtype ? tensor->dtype : GDN_DTYPE_F32;
}

static bool read_initial(const loader *l, workload *load)
{
    const safetensors_tensor *const tensor = safetensors_find(l->layer->file, "initial_state");
    if (tensor == NULL) {
        return true;
    }
    const gdn_problem *const p = &load->problem;
    const int64_t size[4] = {load->num_seqs, p->num_v_heads, p->head_v_dim, p->head_k_dim};
    if (!check_shape(l, tensor, 4, size)) {
        return false;
    }
    load->initial = calloc((size_t)(load->num_seqs * workload_state_size(load)) + 1, sizeof(float));
    return (load->initial != NULL || fail(l, "out of memory")) &&
           read_tensor(l, "initial_state", NULL, 4, size, load->initial);
}

static bool read_reference(const loader *l, const char *name, int32_t rank, const int64_t *size, double **values)
{
    const safetensors_tensor *const tensor = safetensors_find(l->layer->file, name);
    if (tensor == NULL) {
        return true;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        count *= size[i];
    }
    float *const narrow = check_shape(l, tensor, rank, size) ? malloc(((size_t)count + 1) * sizeof(float)) : NULL;
    *values = narrow != NULL ? malloc(((size_t)count + 1) * sizeof(double)) : NULL;
    const bool good = *values != NULL && read_floats(l, tensor, narrow, count);
    for (int64_t i = 0; good && i < count; i++) {
        (*values)[i] = narrow[i];
    }
    free(narrow);
    return good;
}

static bool load_all(const loader *l, gdn_dtype io)
{
    workload *const load = &l->layer->load;
    gdn_problem problem = {0};
    int64_t tokens = 0, num_seqs = 0, *cu = NULL;
    if (!read_shapes(l, &problem, &tokens) || !read_options(l, &problem) || !read_cu(l, tokens, &cu, &num_seqs) ||
        cu == NULL) {
        free(cu);
        return false;
    }
    problem.gate.dtype = gate_dtype(l, &problem, problem.gate_form == GDN_GATE_RAW ? "a" : "log_decay", "a");
    problem.beta.dtype = gate_dtype(l, &problem, "b", "beta");
    if (io != GDN_DTYPE_NONE) {
        problem.gate.dtype = problem.beta.dtype = GDN_DTYPE_F32;
        problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = io;
    }
    const double elements = (double)num_seqs * problem.num_v_heads * problem.head_v_dim * problem.head_k_dim;
    if (elements > 0x1p40) {
        free(cu);
        return fail(l, "the final states of %lld sequences have more than 2^40 elements", (long long)num_seqs);
    }
    problem.max_seqs = num_seqs > 0 ? num_seqs : 1;
    problem.max_tokens = tokens > 0 ? tokens : 1;
    if (!workload_alloc(load, &problem, num_seqs, tokens)) {
        free(cu);
        return fail(l, "out of memory for %lld tokens", (long long)tokens);
    }
    memcpy(load->cu, cu, ((size_t)num_seqs + 1) * sizeof(int64_t));
    free(cu);

    const int64_t qk[3] = {tokens, problem.num_k_heads, problem.head_k_dim};
    const int64_t vo[3] = {tokens, problem.num_v_heads, problem.head_v_dim};
    const int64_t states[4] = {num_seqs, problem.num_v_heads, problem.head_v_dim, problem.head_k_dim};
    if (!read_tensor(l, "q", NULL, 3, qk, load->q) || !read_tensor(l, "k", NULL, 3, qk, load->k) ||
        !read_tensor(l, "v", NULL, 3, vo, load->v) || !read_gates(l, load) || !read_initial(l, load) ||
        !read_reference(l, "ref.o", 3, vo, &l->layer->ref_o) ||
        !read_reference(l, "ref.final_state", 4, states, &l->layer->ref_final)) {
        return false;
    }
    workload_round(load->q, tokens * qk[1] * qk[2], problem.q.dtype);
    workload_round(load->k, tokens * qk[1] * qk[2], problem.k.dtype);
    workload_round(load->v, tokens * vo[1] * vo[2], problem.v.dtype);
    return true;
}

bool layer_open(layer_file *layer, const char *path, gdn_dtype io, char *error, size_t error_size)
{
    *layer = (layer_file){.source = ""};
    if (!safetensors_open(&layer->file, path, error, error_size)) {
        return false;
    }
    char reason[512];
    const loader l = {layer, reason, sizeof(reason)};
    if (!load_all(&l, io)) {
        snprintf(error, error_size, "%s: %s", path, reason);
        layer_close(layer);
        return false;
    }
    const char *const source = safetensors_metadata(layer->file, "gdn.source");
    layer->source = source != NULL ? source : "";
    return true;
}

void layer_close(layer_file *layer)
{
    workload_free(&layer->load);
    free(layer->ref_o);
    free(layer->ref_final);
    safetensors_close(&layer->file);
    *layer = (layer_file){.source = ""};
}

bool layer_write_outputs(const layer_file *layer, const char *path, const float *o, const float *final,
                         const char *producer, char *error, size_t error_size)
{
    const gdn_problem *const p = &layer->load.problem;
    const int64_t count = layer->load.total_tokens * p->num_v_heads * p->head_v_dim;
    const size_t bytes = (size_t)count * gdn_dtype_size(p->o.dtype);
    void *const narrow = malloc(bytes + 1);
    if (narrow == NULL) {
        snprintf(error, error_size, "out of memory");
        return false;
    }
    (void)gdn_convert(narrow, p->o.dtype, o, GDN_DTYPE_F32, count);
    const safetensors_tensor tensors[2] = {
        {"o", p->o.dtype, 3, {layer->load.total_tokens, p->num_v_heads, p->head_v_dim}, narrow, bytes},
        {"final_state",
         GDN_DTYPE_F32,
         4,
         {layer->load.num_seqs, p->num_v_heads, p->head_v_dim, p->head_k_dim},
         final,
         (size_t)(layer->load.num_seqs * workload_state_size(&layer->load)) * sizeof(float)},
    };
    const safetensors_entry metadata[2] = {{"gdn.producer", producer}, {"gdn.source", layer->source}};
    const bool good = safetensors_write(path, tensors, final != NULL ? 2 : 1, metadata, 2, error, error_size);
    free(narrow);
    return good;
}
