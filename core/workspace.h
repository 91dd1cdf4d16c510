/* The workspace ledger: scratch is booked by name at plan time, as offsets into the caller's buffer.
 *
 *     offset 0                                                                  total
 *     | piece 0 | pad | piece 1 | pad | ...                                       |
 *     each piece starts at a multiple of GDN_WORKSPACE_ALIGNMENT; `total` is one, too
 *
 * Header-only, so that a backend module needs nothing of core at link time. */
#ifndef GDN_CORE_WORKSPACE_H
#define GDN_CORE_WORKSPACE_H

#include <gdn/gdn.h>

#include <stdbool.h>

#define GDN_MAX_SCRATCH 32

typedef struct gdn_scratch_piece {
    const char *name; /* static string, for gdn_plan_describe */
    size_t offset;
    size_t bytes;
} gdn_scratch_piece;

typedef struct gdn_ledger {
    size_t total;
    int32_t count;
    bool overflow; /* a size did not fit size_t, or too many pieces: the plan is refused */
    gdn_scratch_piece piece[GDN_MAX_SCRATCH];
} gdn_ledger;

/* a * b, or SIZE_MAX where that does not fit. SIZE_MAX stays SIZE_MAX through further products. */
static inline size_t gdn_size_mul(size_t a, size_t b)
{
    if (a == 0 || b == 0) {
        return 0;
    }
    return a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* Books `bytes` under `name` and returns its offset in the workspace. */
static inline size_t gdn_ledger_book(gdn_ledger *ledger, const char *name, size_t bytes)
{
    const size_t align = GDN_WORKSPACE_ALIGNMENT;
    const size_t offset = ledger->total;
    if (ledger->count >= GDN_MAX_SCRATCH || bytes > SIZE_MAX - offset - align) {
        ledger->overflow = true;
        return offset;
    }
    gdn_scratch_piece *const piece = &ledger->piece[ledger->count++];
    piece->name = name;
    piece->offset = offset;
    piece->bytes = bytes;
    ledger->total = (offset + bytes + align - 1) / align * align;
    return offset;
}

#endif
