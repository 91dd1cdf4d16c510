/* Products, in terms of one vector type (a vec_*.h is included before).
 *
 * A tile walks the depth once: each step loads VECTORS vectors of b and broadcasts ROWS words of a. */
#ifndef GDN_SIMD_PRODUCT_H
#define GDN_SIMD_PRODUCT_H

#include "simd_tile.h"

_Static_assert(GDN_PAIR == GDN_PANEL, "packed rows and rows of a panel are right operands alike");

enum { STEPS = 2 /* of the depth in a round of the loop */ };

#ifndef VF_WORD
/* Numbers in a word of an operand, and the product of words. */
#define VF_WORD 1
GDN_INLINE vf vf_word_fma(vf a, vf b, vf c)
{
    return vf_fma(a, b, c);
}
#endif

/* One step of the depth: acc[i][c] += a[i * A_ROW] * b[c] */
GDN_INLINE void accumulate_step(vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], const float *a, const float *b, const int ROWS,
                                const int VECTORS, const int A_ROW)
{
    vf bj[TILE_VECTORS_MAX];
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        bj[c] = vf_load(b + c * VF_LANES);
    }
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        const vf aij = vf_set1(a[i * A_ROW]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            acc[i][c] = vf_word_fma(aij, bj[c], acc[i][c]);
        }
    }
}

/* acc[i][c] += sum_{j < depth} a[j * lda + i * A_ROW] * b[j * GDN_PANEL + c] */
GDN_INLINE void accumulate(vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int depth, const float *a, ptrdiff_t lda,
                           const float *b, const int ROWS, const int VECTORS, const int A_ROW)
{
    int j = 0;
    for (; j + STEPS <= depth; j += STEPS) {
        GDN_UNROLL
        for (int s = 0; s < STEPS; s++, a += lda, b += GDN_PANEL) {
            accumulate_step(acc, a, b, ROWS, VECTORS, A_ROW);
        }
    }
    for (; j < depth; j++, a += lda, b += GDN_PANEL) {
        accumulate_step(acc, a, b, ROWS, VECTORS, A_ROW);
    }
}

/* What a tile is of: product_rows; product; product with a_packed_keys. */
enum { TILE_OF_ROWS, TILE_PLAIN, TILE_OF_KEYS, TILE_KINDS };

/* The sums of a tile of `product` begin with what they are added to: only `add` of float32, one add_scale or none. */
GDN_INLINE void begin_plain(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                            const int ROWS, const int VECTORS)
{
    const ptrdiff_t ld = p->ldadd;
    const float *const add = (const float *)p->add + row * ld + col;
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            acc[i][c] = vf_load(add + i * ld + c * VF_LANES);
        }
    }
    if (p->add_scale) {
        const vf s = vf_set1(p->add_scale[0]);
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_mul(s, acc[i][c]);
            }
        }
    }
}

/* And all rows of a float32 out are stored. */
GDN_INLINE void finish_plain(const gdn_product *p, vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX], int row, int col,
                             const int ROWS, const int VECTORS)
{
    const ptrdiff_t ld = p->ldo; /* a copy: a store could change *p, as far as the compiler knows */
    float *const out = (float *)p->out + row * ld + col;
    GDN_UNROLL
    for (int i = 0; i < ROWS; i++) {
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            vf_store(out + i * ld + c * VF_LANES, acc[i][c]);
        }
    }
}

GDN_INLINE void product_tile(const gdn_product *p, int row, int col, const int ROWS, const int VECTORS, const int KIND)
{
    const int block = row / GDN_TOKEN_BLOCK, in_block = row % GDN_TOKEN_BLOCK;
    vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];

    if (col == 0) {
        ask_all(p, row);
    }
    if (KIND != TILE_OF_ROWS && p->add) {
        begin_plain(p, acc, row, col, ROWS, VECTORS);
    } else {
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_zero();
            }
        }
    }
    if (KIND == TILE_OF_KEYS) {
        for (int j = 0; j < p->depth; j += GDN_TOKEN_BLOCK) {
            const int depth = p->depth - j < GDN_TOKEN_BLOCK ? p->depth - j : GDN_TOKEN_BLOCK;
            accumulate(acc, depth, p->a + j / GDN_TOKEN_BLOCK * p->a_block + row * GDN_PAIR, 1,
                       p->b + j * GDN_PANEL + col, ROWS, VECTORS, GDN_PAIR);
        }
    } else {
        accumulate(acc, p->depth, p->a + block * p->a_block + in_block, p->lda, p->b + col, ROWS, VECTORS, 1);
    }
    if (KIND != TILE_OF_ROWS) {
        finish_plain(p, acc, row, col, ROWS, VECTORS);
        return;
    }
    if (p->scale) {
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            const vf s = vf_set1(p->scale[row + i]);
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_mul(s, acc[i][c]);
            }
        }
    }
    if (p->lower) {
        const int depth = row + ROWS < p->lower_depth ? row + ROWS : p->lower_depth;
        accumulate(acc, (depth + VF_WORD - 1) / VF_WORD, p->lower + block * p->lower_block + in_block, p->lower_ld,
                   p->lower_b + col, ROWS, VECTORS, 1);
    }
    if (p->add) {
        add_rows(p, acc, row, col, ROWS, VECTORS);
    }
    store_rows(p, acc, row, col, ROWS, VECTORS);
}

/* Each kind and size is a function of its own: in one body, compilers run out of registers for the addresses of all. */
typedef void (*tile_fn)(const gdn_product *p, int row, int col);
#define TILE(name, rows, vectors, kind)                                                \
    static __attribute__((noinline)) void name(const gdn_product *p, int row, int col) \
    {                                                                                  \
        product_tile(p, row, col, rows, vectors, kind);                                \
    }
TILE(rows_tile_1, PRODUCT_ROWS, 1, TILE_OF_ROWS)
TILE(rows_tile_2, PRODUCT_ROWS, 2, TILE_OF_ROWS)
TILE(plain_tile_1, PRODUCT_ROWS, 1, TILE_PLAIN)
TILE(plain_tile_2, PRODUCT_ROWS, 2, TILE_PLAIN)
TILE(keys_tile_1, PRODUCT_ROWS, 1, TILE_OF_KEYS)
TILE(keys_tile_2, PRODUCT_ROWS, 2, TILE_OF_KEYS)
TILE(rows_four_1, 4, 1, TILE_OF_ROWS)
TILE(rows_four_2, 4, 2, TILE_OF_ROWS)
TILE(plain_four_1, 4, 1, TILE_PLAIN)
TILE(plain_four_2, 4, 2, TILE_PLAIN)
TILE(keys_four_1, 4, 1, TILE_OF_KEYS)
TILE(keys_four_2, 4, 2, TILE_OF_KEYS)
#undef TILE

/* [kind][4 rows][2 vectors] */
static const tile_fn tiles[TILE_KINDS][2][2] = {
    {{rows_tile_1, rows_tile_2}, {rows_four_1, rows_four_2}},
    {{plain_tile_1, plain_tile_2}, {plain_four_1, plain_four_2}},
    {{keys_tile_1, keys_tile_2}, {keys_four_1, keys_four_2}},
};

static void product_all(const gdn_product *p, int kind)
{
    for (int col = 0, vectors; col < p->cols; col += vectors * VF_LANES) {
        vectors = col + 2 * VF_LANES <= p->cols ? 2 : 1;
        const tile_fn tile = tiles[kind][0][vectors - 1], tile_of_4 = tiles[kind][1][vectors - 1];
        for (int row = 0; row < p->rows;) {
            /* A tile stays inside a block of 16 rows, where a jumps. Tiles of 6 leave no 2: 6 + 6 + 4, or 4 + 4. */
            int left = GDN_TOKEN_BLOCK - row % GDN_TOKEN_BLOCK;
            left = left < p->rows - row ? left : p->rows - row;
            if (PRODUCT_ROWS == 8 || (left >= PRODUCT_ROWS && left - PRODUCT_ROWS != 2)) {
                tile(p, row, col);
                row += PRODUCT_ROWS;
            } else {
                tile_of_4(p, row, col);
                row += 4;
            }
        }
    }
}

/* The update of a state by one whole block of tokens: the depth is a constant, and every row is one of GDN_PANEL. */
GDN_INLINE void add_block_rows(const gdn_product *p, int first, int end, int col, const int ROWS, const int VECTORS,
                               const bool SCALED)
{
    const float *b = p->b + col, *a = p->a + first * GDN_PAIR;
    const float *add = (const float *)p->add + first * GDN_PANEL + col;
    float *out = (float *)p->out + first * GDN_PANEL + col;
    const vf s = vf_set1(SCALED ? p->add_scale[0] : 1.0f);
    __asm__("" : "+r"(b)); /* else each row of b gets a register of its own */
    for (int row = first; row < end; row += ROWS) {
        vf acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];
        if (col == 0) {
            ask_all(p, row);
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                acc[i][c] = vf_load(add + i * GDN_PANEL + c * VF_LANES);
                acc[i][c] = SCALED ? vf_mul(s, acc[i][c]) : acc[i][c];
            }
        }
        GDN_UNROLL
        for (int j = 0; j < GDN_TOKEN_BLOCK; j++) {
            accumulate_step(acc, a + j, b + j * GDN_PANEL, ROWS, VECTORS, GDN_PAIR);
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            GDN_UNROLL
            for (int c = 0; c < VECTORS; c++) {
                vf_store(out + i * GDN_PANEL + c * VF_LANES, acc[i][c]);
            }
        }
        a += ROWS * GDN_PAIR;
        add += ROWS * GDN_PANEL;
        out += ROWS * GDN_PANEL;
    }
}

/* The same where registers hold all rows of b, one vector wide: a multiply-add then has one load and no more. */
GDN_INLINE void add_block_held(const gdn_product *p, int col, const bool SCALED)
{
    enum { ROWS = 8 };
    const float *const b = p->b + col, *a = p->a;
    const float *add = (const float *)p->add + col;
    float *out = (float *)p->out + col;
    const vf s = vf_set1(SCALED ? p->add_scale[0] : 1.0f);
    vf bj[GDN_TOKEN_BLOCK];
    GDN_UNROLL
    for (int j = 0; j < GDN_TOKEN_BLOCK; j++) {
        bj[j] = vf_load(b + j * GDN_PANEL);
    }
    for (int row = 0; row < p->rows; row += ROWS) {
        vf acc[ROWS];
        if (col == 0) {
            ask_all(p, row);
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            acc[i] = vf_load(add + i * GDN_PANEL);
            acc[i] = SCALED ? vf_mul(s, acc[i]) : acc[i];
        }
        GDN_UNROLL
        for (int j = 0; j < GDN_TOKEN_BLOCK; j++) {
            GDN_UNROLL
            for (int i = 0; i < ROWS; i++) {
                acc[i] = vf_word_fma(vf_set1(a[i * GDN_PAIR + j]), bj[j], acc[i]);
            }
        }
        GDN_UNROLL
        for (int i = 0; i < ROWS; i++) {
            vf_store(out + i * GDN_PANEL, acc[i]);
        }
        a += ROWS * GDN_PAIR;
        add += ROWS * GDN_PANEL;
        out += ROWS * GDN_PANEL;
    }
}

/* Rows that are a multiple of 16: in tiles of PRODUCT_ROWS and, where that does not divide them, a few of 4. */
GDN_INLINE void add_block_columns(const gdn_product *p, int col, const int VECTORS, const bool SCALED)
{
    if (VF_REGISTERS == 32 && VF_LANES == 16) {
        for (int c = 0; c < VECTORS; c++) {
            add_block_held(p, col + c * VF_LANES, SCALED);
        }
        return;
    }
    const int left = p->rows % PRODUCT_ROWS, fours = left % 4 ? left + PRODUCT_ROWS : left;
    add_block_rows(p, 0, p->rows - fours, col, PRODUCT_ROWS, VECTORS, SCALED);
    add_block_rows(p, p->rows - fours, p->rows, col, 4, VECTORS, SCALED);
}

#define ADD_BLOCK(name, vectors, scaled)                                      \
    static __attribute__((noinline)) void name(const gdn_product *p, int col) \
    {                                                                         \
        add_block_columns(p, col, vectors, scaled);                           \
    }
ADD_BLOCK(add_block_1, 1, false)
ADD_BLOCK(add_block_2, 2, false)
ADD_BLOCK(scale_and_add_block_1, 1, true)
ADD_BLOCK(scale_and_add_block_2, 2, true)
#undef ADD_BLOCK

static void add_block(const gdn_product *p)
{
    for (int col = 0, vectors; col < p->cols; col += vectors * VF_LANES) {
        vectors = col + 2 * VF_LANES <= p->cols ? 2 : 1;
        if (p->add_scale) {
            (vectors == 2 ? scale_and_add_block_2 : scale_and_add_block_1)(p, col);
        } else {
            (vectors == 2 ? add_block_2 : add_block_1)(p, col);
        }
    }
}

static bool is_block(const gdn_product *p)
{
    return p->a_packed_keys && p->depth == GDN_TOKEN_BLOCK && p->rows % GDN_TOKEN_BLOCK == 0 && p->add &&
           p->ldadd == GDN_PANEL && p->ldo == GDN_PANEL;
}

static void simd_product(const gdn_product *p, int count)
{
    for (int i = 0; i < count; i++) {
        if (is_block(&p[i])) {
            add_block(&p[i]);
        } else {
            product_all(&p[i], p[i].a_packed_keys ? TILE_OF_KEYS : TILE_PLAIN);
        }
    }
}

static void simd_product_rows(const gdn_product *p, int count)
{
    for (int i = 0; i < count; i++) {
        product_all(&p[i], TILE_OF_ROWS);
    }
}

#endif /* GDN_SIMD_PRODUCT_H */
