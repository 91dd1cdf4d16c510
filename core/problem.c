#include "problem.h"

#include "struct_version.h"

#include <float.h>
#include <math.h>

static gdn_layout dense_layout(int64_t heads, int64_t dim)
{
    /* int64 products of two int32 do not overflow; nonsense heads and dims are refused by gdn_problem_check. */
    return (gdn_layout){
        .dtype = GDN_DTYPE_F32, .alignment = 16, .row_stride = 0, .token_stride = heads * dim, .head_stride = dim};
}

static gdn_state_layout dense_states(int64_t heads, int64_t k_dim, int64_t v_dim)
{
    const int64_t limit = INT64_MAX / 4;
    const int64_t head = k_dim * v_dim;
    const bool fits = head == 0 || (heads > 0 ? heads : -heads) <= limit / (head > 0 ? head : -head);
    return (gdn_state_layout){.dtype = GDN_DTYPE_F32,
                              .alignment = 16,
                              .slot_stride = fits ? heads * head : limit,
                              .head_stride = head,
                              .v_stride = k_dim,
                              .k_stride = 1};
}

gdn_status gdn_problem_init_sized(gdn_problem *problem, size_t struct_size, int32_t num_k_heads, int32_t num_v_heads,
                                  int32_t head_k_dim, int32_t head_v_dim)
{
    GDN_TRY(gdn_check_init_size(problem, struct_size, sizeof(*problem), "gdn_problem"));
    memset(problem, 0, struct_size);
    problem->struct_size = struct_size;
    problem->num_k_heads = num_k_heads;
    problem->num_v_heads = num_v_heads;
    problem->head_k_dim = head_k_dim;
    problem->head_v_dim = head_v_dim;
    problem->scale = head_k_dim > 0 ? (float)(1.0 / sqrt((double)head_k_dim)) : 0.0f;
    problem->beta_scale = 1.0f;
    problem->qk_norm_eps = 1e-6f;
    problem->q = problem->k = dense_layout(num_k_heads, head_k_dim);
    problem->v = problem->o = dense_layout(num_v_heads, head_v_dim);
    problem->gate = problem->beta = dense_layout(num_v_heads, 1);
    problem->state = dense_states(num_v_heads, head_k_dim, head_v_dim);
    problem->final_state = problem->state;
    problem->checkpoints = problem->state;
    problem->slots_dtype = GDN_DTYPE_I64;
    problem->cu_seqlens_dtype = GDN_DTYPE_I64;
    problem->checkpoint_index_dtype = GDN_DTYPE_I64;
    problem->tokens_per_row = 1;
    problem->max_seqs = 1;
    return GDN_OK;
}

/* What is added where a vector of zeros is divided by its length: enough that a product of two factors is finite, so that
 * zeros stay zeros, and nothing beside the square (the length) of any vector longer than 1e-12. */
static float least_eps(gdn_qk_norm norm)
{
    return norm == GDN_QK_NORM_RSQRT ? FLT_MIN : 1e-19f;
}

gdn_status gdn_problem_resolve(gdn_problem *resolved, const gdn_problem *problem)
{
    if (problem == NULL) {
        return GDN_INVALID("problem: NULL, must point to a gdn_problem");
    }
    GDN_TRY(gdn_check_struct_size(problem, problem->struct_size, sizeof(*resolved), "gdn_problem"));
    memcpy(resolved, problem, sizeof(*resolved));
    resolved->struct_size = sizeof(*resolved);
    GDN_TRY(gdn_problem_check(resolved));

    resolved->qk_norm_eps = fmaxf(resolved->qk_norm_eps, least_eps(resolved->qk_norm));
    if (resolved->operation == GDN_OPERATION_PREFILL) {
        if (resolved->max_seqlen == 0) {
            resolved->max_seqlen = resolved->max_tokens;
        }
    } else {
        gdn_layout *const layouts[] = {&resolved->q, &resolved->k,    &resolved->v,
                                       &resolved->o, &resolved->gate, &resolved->beta};
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); ++i) {
            if (layouts[i]->row_stride == 0) {
                layouts[i]->row_stride = resolved->tokens_per_row * layouts[i]->token_stride;
            }
        }
    }
    return GDN_OK;
}
