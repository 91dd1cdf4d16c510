/* Rows of a table of prefill times: sequence lengths, heads, and what peers take for them. */
#ifndef GDN_BENCH_ROW_TABLE_H
#define GDN_BENCH_ROW_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROW_MAX_SEQS 128
#define ROW_TABLE_MAX 512

typedef struct row {
    char name[96]; /* "16/64 4x8192" */
    int32_t num_k_heads, num_v_heads;
    int32_t num_seqs;
    int64_t lengths[ROW_MAX_SEQS];
    double peer_ms; /* of the fastest peer; 0: none is known */
} row;

typedef struct row_table {
    int32_t count;
    row rows[ROW_TABLE_MAX];
} row_table;

int64_t row_tokens(const row *r);
int64_t row_longest(const row *r);

/* Appends a row. `seqlens` is "4x8192" (rows x tokens) or "1024+7168". Returns 0, or -1 where that is not what it says or there
 * is no room. */
int row_table_add(row_table *table, const char *seqlens, int32_t num_k_heads, int32_t num_v_heads, double peer_ms);

/* Appends the rows of a file of tab-separated lines: seqlens, key heads, value heads, then peers' milliseconds. Lines that
 * start with '#' and the first other one, which names the columns, are passed over. Returns 0, or the number of the line that is not so; -1: the
 * file cannot be read. */
int row_table_read(row_table *table, const char *path);

/* Whether `b` is `a` with twice the work, of the same kind: every sequence twice as long, or twice as many equal ones. */
int row_is_double(const row *a, const row *b);

#ifdef __cplusplus
}
#endif

#endif
