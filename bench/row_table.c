/* Reading tables of prefill times. */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include "row_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t row_tokens(const row *r)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < r->num_seqs; i++) {
        tokens += r->lengths[i];
    }
    return tokens;
}

int64_t row_longest(const row *r)
{
    int64_t longest = 0;
    for (int32_t i = 0; i < r->num_seqs; i++) {
        longest = r->lengths[i] > longest ? r->lengths[i] : longest;
    }
    return longest;
}

/* One positive number; *end is behind it. */
static int64_t number(const char *text, const char **end)
{
    char *stop = NULL;
    const long long value = strtoll(text, &stop, 10);
    *end = stop;
    return stop == text ? -1 : (int64_t)value;
}

static int parse_lengths(row *r, const char *text)
{
    const char *at = text;
    int64_t value = number(at, &at);
    if (value < 1) {
        return -1;
    }
    if (*at == 'x') {
        const int64_t length = number(at + 1, &at);
        if (value > ROW_MAX_SEQS || length < 1 || *at != '\0') {
            return -1;
        }
        r->num_seqs = (int32_t)value;
        for (int32_t i = 0; i < r->num_seqs; i++) {
            r->lengths[i] = length;
        }
        return 0;
    }
    for (;;) {
        if (value < 1 || r->num_seqs == ROW_MAX_SEQS) {
            return -1;
        }
        r->lengths[r->num_seqs++] = value;
        if (*at == '\0') {
            return 0;
        }
        if (*at != '+') {
            return -1;
        }
        value = number(at + 1, &at);
    }
}

int row_table_add(row_table *table, const char *seqlens, int32_t num_k_heads, int32_t num_v_heads, double peer_ms)
{
    if (table->count == ROW_TABLE_MAX) {
        return -1;
    }
    row *const r = &table->rows[table->count];
    memset(r, 0, sizeof(*r));
    if (parse_lengths(r, seqlens) != 0 || num_k_heads < 1 || num_v_heads < num_k_heads ||
        num_v_heads % num_k_heads != 0) {
        return -1;
    }
    const char *const shown = strlen(seqlens) < 40 ? seqlens : "mixed";
    (void)snprintf(r->name, sizeof(r->name), "%" PRId32 "/%" PRId32 " %s", num_k_heads, num_v_heads, shown);
    r->num_k_heads = num_k_heads;
    r->num_v_heads = num_v_heads;
    r->peer_ms = peer_ms;
    table->count++;
    return 0;
}

static int add_line(row_table *table, char *line)
{
    char *rest = line;
    const char *const seqlens = strtok_r(rest, "\t\r\n", &rest);
    const char *const k_heads = strtok_r(rest, "\t\r\n", &rest);
    const char *const v_heads = strtok_r(rest, "\t\r\n", &rest);
    if (v_heads == NULL) {
        return -1;
    }
    double best = 0.0;
    for (const char *field = strtok_r(rest, "\t\r\n", &rest); field != NULL; field = strtok_r(rest, "\t\r\n", &rest)) {
        const double ms = strtod(field, NULL);
        if (ms > 0.0 && (best == 0.0 || ms < best)) {
            best = ms;
        }
    }
    return row_table_add(table, seqlens, atoi(k_heads), atoi(v_heads), best);
}

int row_table_read(row_table *table, const char *path)
{
    FILE *const file = fopen(path, "r");
    if (file == NULL) {
        return -1;
    }
    char line[1024];
    int at = 0, bad = 0, named = 0;
    while (bad == 0 && fgets(line, sizeof(line), file) != NULL) {
        at++;
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        if (named && add_line(table, line) != 0) {
            bad = at;
        }
        named = 1;
    }
    (void)fclose(file);
    return bad;
}

int row_is_double(const row *a, const row *b)
{
    if (a->num_k_heads != b->num_k_heads || a->num_v_heads != b->num_v_heads) {
        return 0;
    }
    int longer = a->num_seqs == b->num_seqs, more = b->num_seqs == 2 * a->num_seqs;
    for (int32_t i = 0; i < b->num_seqs; i++) {
        longer = longer && b->lengths[i] == 2 * a->lengths[i];
        more = more && b->lengths[i] == a->lengths[0] && a->lengths[i % a->num_seqs] == a->lengths[0];
    }
    return longer || more;
}
