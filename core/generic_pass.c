#include "generic_pass.h"

gdn_batch_matrix gdn_pass_by_value_head(const gdn_pass *p, gdn_generic_piece name, int32_t rows, int32_t width)
{
    const gdn_problem *const problem = p->run->problem;
    const int64_t matrix = (int64_t)rows * width;
    const int64_t ratio = problem->num_v_heads / problem->num_k_heads;
    const bool tiled = problem->head_map == GDN_HEAD_MAP_TILED;
    return (gdn_batch_matrix){
        .data = gdn_pass_piece(p, name),
        .ld = width,
        .stride = {matrix * problem->num_v_heads, tiled ? matrix : ratio * matrix,
                   tiled ? problem->num_k_heads * matrix : matrix},
    };
}

gdn_batch_matrix gdn_pass_by_key_head(const gdn_pass *p, gdn_generic_piece name, int32_t rows, int32_t width)
{
    const int64_t matrix = (int64_t)rows * width;
    return (gdn_batch_matrix){
        .data = gdn_pass_piece(p, name),
        .ld = width,
        .stride = {matrix * p->run->problem->num_k_heads, matrix, 0},
    };
}

gdn_status gdn_pass_multiply(const gdn_pass *p, gdn_matmul matmul, int64_t outer)
{
    const gdn_problem *const problem = p->run->problem;
    matmul.numerics = problem->numerics == GDN_NUMERICS_DEFAULT ? GDN_NUMERICS_FP32 : problem->numerics;
    matmul.batch[0] = outer;
    matmul.batch[1] = problem->num_k_heads;
    matmul.batch[2] = problem->num_v_heads / problem->num_k_heads;
    return p->ops->matmul(p->device, p->run, &matmul);
}

gdn_status gdn_pass_gram(const gdn_pass *p, gdn_generic_piece rows)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const gdn_matmul matmul = {
        .m = C,
        .n = C,
        .k = K,
        .transpose_b = true,
        .alpha = 1.0f,
        .numerics = problem->numerics == GDN_NUMERICS_DEFAULT ? GDN_NUMERICS_FP32 : problem->numerics,
        .batch = {p->wave.num_slots, problem->num_k_heads, 1},
        .a = gdn_pass_by_key_head(p, rows, C, K),
        .b = gdn_pass_by_key_head(p, GDN_GENERIC_K, C, K),
        .c = gdn_pass_by_key_head(p, GDN_GENERIC_GRAM, C, C),
    };
    return p->ops->matmul(p->device, p->run, &matmul);
}

gdn_status gdn_pass_square_times_rows(const gdn_pass *p, gdn_generic_piece square, int32_t width, gdn_generic_piece dst)
{
    const int32_t C = p->wave.chunk_size;
    return gdn_pass_multiply(p,
                             (gdn_matmul){
                                 .m = C,
                                 .n = width,
                                 .k = C,
                                 .alpha = 1.0f,
                                 .a = gdn_pass_by_value_head(p, square, C, C),
                                 .b = gdn_pass_by_value_head(p, GDN_GENERIC_ROWS, C, width),
                                 .c = gdn_pass_by_value_head(p, dst, C, width),
                             },
                             p->wave.num_slots);
}
