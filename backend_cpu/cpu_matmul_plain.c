#include "cpu_product.h"

/* Four floats, which every supported architecture has a register for; compilers without the extension never get here. */
typedef float float4 __attribute__((vector_size(16)));

/* A tile of C held in registers while a panel of B passes by: four rows of two float4 are half the registers of the
 * smallest baseline. */
#define ROWS 4
#define COLUMNS 8

/* Rows of B in a panel: 8 KiB on the stack. */
#define DEPTH 256

typedef union panel_row {
    float4 half[2];
    float at[COLUMNS];
} panel_row;

static int32_t min_int32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* panel[p].at[j] = op(B)[first + p][column + j], zeros past the last column. */
static void fill_panel(const gdn_cpu_product *product, int32_t first, int32_t depth, int32_t column, panel_row *panel)
{
    const int32_t columns = min_int32(COLUMNS, product->n - column);
    const int64_t row_stride = product->transpose_b ? 1 : product->ldb;
    const int64_t column_stride = product->transpose_b ? product->ldb : 1;
    const float *const b = product->b + first * row_stride + column * column_stride;
    for (int32_t p = 0; p < depth; p++) {
        for (int32_t j = 0; j < columns; j++) {
            panel[p].at[j] = b[p * row_stride + j * column_stride];
        }
        for (int32_t j = columns; j < COLUMNS; j++) {
            panel[p].at[j] = 0.0f;
        }
    }
}

static float4 spread(float x)
{
    return (float4){x, x, x, x};
}

/* sum = op(A) panel for ROWS rows; a[r] points to row r's first element, `step` on is its next one. */
static void multiply_tile(const float *const a[ROWS], int64_t step, int32_t depth, const panel_row *panel,
                          panel_row sum[ROWS])
{
    const float *const a0 = a[0];
    const float *const a1 = a[1];
    const float *const a2 = a[2];
    const float *const a3 = a[3];
    float4 c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};
    for (int64_t p = 0; p < depth; p++) {
        const float4 b0 = panel[p].half[0];
        const float4 b1 = panel[p].half[1];
        const float4 f0 = spread(a0[p * step]);
        c00 += f0 * b0;
        c01 += f0 * b1;
        const float4 f1 = spread(a1[p * step]);
        c10 += f1 * b0;
        c11 += f1 * b1;
        const float4 f2 = spread(a2[p * step]);
        c20 += f2 * b0;
        c21 += f2 * b1;
        const float4 f3 = spread(a3[p * step]);
        c30 += f3 * b0;
        c31 += f3 * b1;
    }
    sum[0] = (panel_row){.half = {c00, c01}};
    sum[1] = (panel_row){.half = {c10, c11}};
    sum[2] = (panel_row){.half = {c20, c21}};
    sum[3] = (panel_row){.half = {c30, c31}};
}

static void store_tile(const gdn_cpu_product *product, int32_t row, int32_t column, float beta, const panel_row *sum)
{
    const int32_t rows = min_int32(ROWS, product->m - row);
    const int32_t columns = min_int32(COLUMNS, product->n - column);
    for (int32_t r = 0; r < rows; r++) {
        float *const c = product->c + (row + r) * product->ldc + column;
        for (int32_t j = 0; j < columns; j++) {
            /* beta = 0 does not read C, which may hold anything. */
            c[j] = product->alpha * sum[r].at[j] + (beta == 0.0f ? 0.0f : beta * c[j]);
        }
    }
}

void gdn_cpu_product_plain(const gdn_cpu_product *product)
{
    const int64_t row_stride = product->transpose_a ? 1 : product->lda;
    const int64_t step = product->transpose_a ? product->lda : 1;
    panel_row panel[DEPTH];
    panel_row sum[ROWS];
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
