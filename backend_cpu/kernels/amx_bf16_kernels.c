/* The kernels for AMX-BF16: products of rounded pairs by tile instructions, everything else as for AVX-512. Compiled
 * with that instruction set's own flags; nothing else is. */
#include "vec_avx512.h"

#undef VF_NAME
#undef VF_TABLE
#define VF_NAME "amx_bf16"
#define VF_TABLE gdn_cpu_kernels_amx_bf16

#include "avx512_pairs.h"
#include "simd_tile.h"

enum {
    TILE_ROWS = 16,
    TILE_WORDS = 16 /* of 4 bytes: 64 bytes a row */
};

/* What ldtilecfg reads: all eight tiles are 16 rows of 64 bytes. A constant, since some compilers' intrinsic does not say
 * that it reads all of it, and the stores into a local one would be dropped. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static const tile_config config = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
};
_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

static void tiles_begin(void)
{
    _tile_loadconfig(&config);
}

static void tiles_end(void)
{
    _tile_release();
}

/* round_rows of kernels.h. */
static void round_rows(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                       ptrdiff_t ldd)
{
    for (int i = 0; i < rows; i++) {
        const __m512 s = _mm512_set1_ps(scale[i]);
        const float *x = src + i * lds;
        for (int c = 0; c < cols; c += 32) {
            const __m512 low = _mm512_mul_ps(s, _mm512_loadu_ps(x + c)),
                         high = _mm512_mul_ps(s, _mm512_loadu_ps(x + c + 16));
            _mm512_storeu_si512(dst + i * ldd + c / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

/* pair_words of kernels.h. */
static void pair_words(int rows, int cols, const float *src, ptrdiff_t lds, float *dst, ptrdiff_t ldd)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int j = 0; j < rows; j += 2) {
        const float *even = src + j * lds, *odd = even + lds;
        float *out = dst + j / 2 * ldd;
        for (int c = 0; c < cols; c += 32) {
            const __m512i a = _mm512_loadu_si512(even + c / 2);
            const __m512i b = j + 1 < rows ? _mm512_loadu_si512(odd + c / 2) : _mm512_setzero_si512();
            _mm512_storeu_si512(out + c, _mm512_permutex2var_epi16(a, low, b));
            _mm512_storeu_si512(out + c + 16, _mm512_permutex2var_epi16(a, high, b));
        }
    }
}

/* A block of 32 rows on its way: tiles have made its sums, and the vector unit finishes them while the tiles work on the
 * next block. (Loading a row that a tile store has just written waits for the store to reach the cache.) */
typedef struct block_sums {
    _Alignas(64) float sums[32][GDN_PANEL];
    const gdn_product *p;
    int row, done, rows; /* first row; finished ones, of how many */
} block_sums;

/* Eight rows of the sums through scale, add and store. */
GDN_INLINE void finish_rows(const gdn_product *p, const float *sums, int row, const int VECTORS)
{
    enum { ROWS = 8 };
    vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            acc[i][c] = vf_load(sums + i * GDN_PANEL + c * VF_LANES);
            if (p->scale) {
                acc[i][c] = vf_mul(vf_set1(p->scale[row + i]), acc[i][c]);
            }
        }
    }
    if (p->add) {
        add_rows(p, acc, row, 0, ROWS, VECTORS);
    }
    store_rows(p, acc, row, 0, ROWS, VECTORS);
}

static void finish_some(block_sums *block)
{
    const gdn_product *p = block->p;
    if (block->done == block->rows) {
        return;
    }
    const int i = block->done, row = block->row + i;
    ask_all(p, row);
    if (p->cols > 16) {
        finish_rows(p, block->sums[i], row, 2);
    } else {
        finish_rows(p, block->sums[i], row, 1);
    }
    block->done += 8;
}

/* Tiles += a b over `depth` words, for two blocks of 16 rows (or one) and two of 16 columns (or one), while `before` is
 * finished bit by bit.
 *
 *     tiles      0: rows 0-15, columns 0-15   1: rows 0-15, columns 16-31
 *                2: rows 16-31, columns 0-15  3: rows 16-31, columns 16-31      4, 5: a   6, 7: b
 *
 * Operands are zero up to a whole tile of depth. */
static void multiply(const gdn_product *p, int blocks, int depth, const float *a, ptrdiff_t lda, ptrdiff_t a_block,
                     const float *b, block_sums *before)
{
    const int cols = p->cols;
    for (int j = 0; j < depth; j += TILE_WORDS, b += TILE_WORDS * GDN_PANEL) {
        _tile_loadd(4, a + j, lda * 4);
        _tile_loadd(6, b, GDN_PANEL * 4);
        _tile_dpbf16ps(0, 4, 6);
        if (cols > 16) {
            _tile_loadd(7, b + 16, GDN_PANEL * 4);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (blocks > 1) {
            _tile_loadd(5, a + a_block + j, lda * 4);
            _tile_dpbf16ps(2, 5, 6);
            if (cols > 16) {
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        finish_some(before);
    }
}

static void store_tiles(float *out, ptrdiff_t ld, int blocks, int cols)
{
    _tile_stored(0, out, ld * 4);
    if (cols > 16) {
        _tile_stored(1, out + 16, ld * 4);
    }
    if (blocks > 1) {
        _tile_stored(2, out + 16 * ld, ld * 4);
        if (cols > 16) {
            _tile_stored(3, out + 16 * ld + 16, ld * 4);
        }
    }
}

static void finish_all(block_sums *block)
{
    while (block->done < block->rows) {
        finish_some(block);
    }
}

/* What sums begin with: zeros, or what they are added to. */
static void begin_tiles(const gdn_product *p, int row, int blocks)
{
    if (!p->add || p->add_scale) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    const float *add = (const float *)p->add + row * p->ldadd;
    _tile_loadd(0, add, p->ldadd * 4);
    if (p->cols > 16) {
        _tile_loadd(1, add + 16, p->ldadd * 4);
    }
    if (blocks > 1) {
        _tile_loadd(2, add + 16 * p->ldadd, p->ldadd * 4);
        if (p->cols > 16) {
            _tile_loadd(3, add + 16 * p->ldadd + 16, p->ldadd * 4);
        }
    }
}

/* Adds to all of `out` where one step of the depth does it, the columns are 32 and the rows a multiple of 32. While two tiles
 * are stored and loaded again the unit works on the other two; b stays. */
static void add_shallow(const gdn_product *p)
{
    const float *add = p->add, *a = p->a;
    float *out = p->out;
    const ptrdiff_t from = p->ldadd * 4, to = p->ldo * 4, add_step = TILE_ROWS * p->ldadd, step = TILE_ROWS * p->ldo;
    _tile_loadd(6, p->b, GDN_PANEL * 4);
    _tile_loadd(7, p->b + 16, GDN_PANEL * 4);
    for (int row = 0; row < p->rows; row += 2 * TILE_ROWS, add += 2 * add_step, a += 2 * p->a_block) {
        if (row > 0) {
            _tile_stored(0, out - 2 * step, to);
            _tile_stored(1, out - 2 * step + 16, to);
        }
        _tile_loadd(4, a, p->lda * 4);
        _tile_loadd(0, add, from);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(1, add + 16, from);
        _tile_dpbf16ps(1, 4, 7);
        if (row > 0) {
            _tile_stored(2, out - step, to);
            _tile_stored(3, out - step + 16, to);
        }
        _tile_loadd(5, a + p->a_block, p->lda * 4);
        _tile_loadd(2, add + add_step, from);
        _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(3, add + add_step + 16, from);
        _tile_dpbf16ps(3, 5, 7);
        out += 2 * step;
        for (int i = 0; i < 2 * TILE_ROWS; i += 8) {
            ask_all(p, row + i);
        }
    }
    _tile_stored(0, out - 2 * step, to);
    _tile_stored(1, out - 2 * step + 16, to);
    _tile_stored(2, out - step, to);
    _tile_stored(3, out - step + 16, to);
}

/* Whether tiles are what is wanted of `rows` rows from `row` on, and can be stored as they are. */
static bool is_done_by_tiles(const gdn_product *p, int row, int rows)
{
    return !p->scale && (!p->add || !p->add_scale) && p->out_dtype == GDN_DTYPE_F32 && rows % TILE_ROWS == 0 &&
           row + rows <= p->out_rows;
}

static void ask_around(const gdn_product *p, int row, int rows)
{
    for (int i = 0; i < rows; i++) {
        if (i % 8 == 0) {
            ask_all(p, row + i);
        }
        if (p->out_ahead) {
            ask_ahead(p->out, GDN_DTYPE_F32, (row + i) * p->ldo, p->out_ahead, p->cols);
        }
    }
}

/* Both kinds of product. `lower` comes without `scale`: its sums go on where those of a b end. The last rows of a product are
 * finished beside the first tiles of the next. */
static void simd_product_rows(const gdn_product *p, int count)
{
    block_sums blocks[2];
    int turn = 0;
    block_sums *before = &blocks[1];
    before->done = before->rows = 0;
    for (const gdn_product *const end = p + count; p < end; p++) {
        for (int row = 0; row < p->rows; row += 32) {
            const int left = p->rows - row, rows = left < 32 ? left : 32, sixteens = left > 16 ? 2 : 1;
            const int first = row / GDN_TOKEN_BLOCK;
            begin_tiles(p, row, sixteens);
            multiply(p, sixteens, p->depth, p->a + first * p->a_block, p->lda, p->a_block, p->b, before);
            if (p->lower) {
                const int depth = row + 32 < p->lower_depth ? row + 32 : p->lower_depth;
                multiply(p, sixteens, (depth + 1) / 2, p->lower + first * p->lower_block, p->lower_ld, p->lower_block,
                         p->lower_b, before);
            }
            finish_all(before);
            if (is_done_by_tiles(p, row, rows)) {
                store_tiles((float *)p->out + row * p->ldo, p->ldo, sixteens, p->cols);
                ask_around(p, row, rows);
                continue;
            }
            block_sums *now = &blocks[turn];
            turn = 1 - turn;
            store_tiles(now->sums[0], GDN_PANEL, sixteens, p->cols);
            now->p = p;
            now->row = row;
            now->done = 0;
            now->rows = rows;
            before = now;
        }
    }
    finish_all(before);
}

static void simd_product(const gdn_product *p, int count)
{
    const bool shallow = p->add && !p->add_scale && p->depth <= TILE_WORDS && p->cols > 16;
    if (!shallow || p->rows % (2 * TILE_ROWS) != 0) {
        simd_product_rows(p, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        add_shallow(&p[i]);
    }
}

#include "simd_solve.h"
#include "simd_solve_two.h"

/* solve_sums of kernels.h. */
static void solve_sums(const gdn_product *p, int count, const float *n, ptrdiff_t n_block, const float *scale,
                       float *const *y, float *const *pairs)
{
    for (int i = 0, step; i < count; i += step) {
        const bool two = i + 1 < count && p[i].cols == GDN_PANEL && p[i + 1].cols == GDN_PANEL;
        step = two ? 2 : 1;
        for (int k = i; k < i + step; k++) {
            for (int row = 0; row < p[k].rows; row += 8) {
                ask_all(&p[k], row);
            }
        }
        if (two) {
            solve_two_panels(p + i, n, n_block, scale, y + i, pairs + i);
        } else {
            solve_all(p[i].rows, p[i].cols, n, n_block, p[i].out, scale, y[i], pairs[i], &p[i]);
        }
    }
}

#define VF_STRIP GDN_MAX_STRIP
#define VF_OWN_PRODUCT
#define VF_TABLE_EXTRA                                                                                         \
    .pair_rows = pair_rows, .solve_pairs = simd_solve_pairs, .solve_sums = solve_sums, .left_row_major = true, \
    .round_rows = round_rows, .pair_words = pair_words, .thread_begin = tiles_begin, .thread_end = tiles_end,

#include "simd_table.h"
