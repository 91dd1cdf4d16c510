/* Finding a slot that one row writes and another reads or writes, among any number of uses, without allocating. */
#ifndef GDN_CORE_SLOT_CONFLICT_H
#define GDN_CORE_SLOT_CONFLICT_H

#include <stdbool.h>
#include <stdint.h>

/* Up to so many uses are sorted on the stack; more in the workspace. */
#define GDN_SLOT_USES_ON_STACK 128

typedef struct gdn_slot_use {
    int64_t slot;
    int64_t row_and_write; /* 2 * row, + 1 for a write */
} gdn_slot_use;

typedef struct gdn_slot_conflict {
    int64_t slot;
    int64_t writer; /* a row that writes it */
    int64_t other; /* another row that reads or writes it */
} gdn_slot_conflict;

/* Sorts uses[count] and returns whether two rows conflict; *conflict is then that of the lowest slot. Reads by several rows
 * are no conflict, nor are several uses by one row. */
bool gdn_find_slot_conflict(gdn_slot_use *uses, int64_t count, gdn_slot_conflict *conflict);

#endif
