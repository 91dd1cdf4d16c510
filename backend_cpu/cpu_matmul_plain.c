#include "cpu_product.h"

/* A tile of C held in registers while a panel of B passes by. Four rows of eight are eight registers of four floats,
 * half of what the smallest baseline has. */
#define ROWS 4
#define COLUMNS 8

/* Rows of B in a panel: 8 KiB on the stack. */
#define DEPTH 256

static int32_t min_int32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* panel[p][j] = op(B)[first + p][column + j], zeros past the last column. */
static void fill_panel(const gdn_cpu_product *product, int32_t first, int32_t depth, int32_t column,
                       float panel[DEPTH][COLUMNS])
{
    const int32_t columns = min_int32(COLUMNS, product->n - column);
    for (int32_t p = 0; p < depth; p++) {
        const int64_t row = first + p;
        for (int32_t j = 0; j < COLUMNS; j++) {
            if (j >= columns) {
                panel[p][j] = 0.0f;
            } else {
                panel[p][j] = product->transpose_b ? product->b[(column + j) * product->ldb + row]
                                                   : product->b[row * product->ldb + column + j];
            }
        }
    }
}

/* sum = op(A) panel for ROWS rows; a[r] points to row r's first element, `step` on is its next one. */
static void multiply_tile(const float *const a[ROWS], int64_t step, int32_t depth, float panel[DEPTH][COLUMNS],
                          float sum[ROWS][COLUMNS])
{
    float tile[ROWS][COLUMNS] = {{0}};
    for (int32_t p = 0; p < depth; p++) {
        for (int32_t r = 0; r < ROWS; r++) {
            const float factor = a[r][p * step];
            for (int32_t j = 0; j < COLUMNS; j++) {
                tile[r][j] += factor * panel[p][j];
            }
        }
    }
    for (int32_t r = 0; r < ROWS; r++) {
        for (int32_t j = 0; j < COLUMNS; j++) {
            sum[r][j] = tile[r][j];
        }
    }
}

static void store_tile(const gdn_cpu_product *product, int32_t row, int32_t column, float beta,
                       float sum[ROWS][COLUMNS])
{
    const int32_t rows = min_int32(ROWS, product->m - row);
    const int32_t columns = min_int32(COLUMNS, product->n - column);
    for (int32_t r = 0; r < rows; r++) {
        float *const c = product->c + (row + r) * product->ldc + column;
        for (int32_t j = 0; j < columns; j++) {
            /* beta = 0 does not read C, which may hold anything. */
            c[j] = product->alpha * sum[r][j] + (beta == 0.0f ? 0.0f : beta * c[j]);
        }
    }
}

void gdn_cpu_product_plain(const gdn_cpu_product *product)
{
    const int64_t row_stride = product->transpose_a ? 1 : product->lda;
    const int64_t step = product->transpose_a ? product->lda : 1;
    float panel[DEPTH][COLUMNS];
    float sum[ROWS][COLUMNS];
    for (int32_t first = 0; first < product->k; first += DEPTH) {
        const int32_t depth = min_int32(DEPTH, product->k - first);
        const float beta = first == 0 ? product->beta : 1.0f;
        for (int32_t column = 0; column < product->n; column += COLUMNS) {
            fill_panel(product, first, depth, column, panel);
            for (int32_t row = 0; row < product->m; row += ROWS) {
                const float *a[ROWS];
                for (int32_t r = 0; r < ROWS; r++) {
                    /* A tile past the last row repeats it, and is not stored. */
                    a[r] = product->a + min_int32(row + r, product->m - 1) * row_stride + first * step;
                }
                multiply_tile(a, step, depth, panel, sum);
                store_tile(product, row, column, beta, sum);
            }
        }
    }
}
