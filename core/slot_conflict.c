#include "slot_conflict.h"

static bool before(const gdn_slot_use *a, const gdn_slot_use *b)
{
    return a->slot != b->slot ? a->slot < b->slot : a->row_and_write < b->row_and_write;
}

static void sift_down(gdn_slot_use *uses, int64_t root, int64_t count)
{
    for (;;) {
        int64_t largest = root;
        for (int64_t child = 2 * root + 1; child <= 2 * root + 2 && child < count; ++child) {
            if (before(&uses[largest], &uses[child])) {
                largest = child;
            }
        }
        if (largest == root) {
            return;
        }
        const gdn_slot_use moved = uses[root];
        uses[root] = uses[largest];
        uses[largest] = moved;
        root = largest;
    }
}

/* Heapsort: in place and O(n log n) whatever the slots are; the C library's qsort may allocate. */
static void sort_uses(gdn_slot_use *uses, int64_t count)
{
    for (int64_t root = count / 2 - 1; root >= 0; --root) {
        sift_down(uses, root, count);
    }
    for (int64_t end = count - 1; end > 0; --end) {
        const gdn_slot_use top = uses[0];
        uses[0] = uses[end];
        uses[end] = top;
        sift_down(uses, 0, end);
    }
}

bool gdn_find_slot_conflict(gdn_slot_use *uses, int64_t count, gdn_slot_conflict *conflict)
{
    sort_uses(uses, count);
    for (int64_t begin = 0; begin < count;) {
        /* One slot's uses, in order of row. */
        int64_t end = begin;
        int64_t writer = -1;
        while (end < count && uses[end].slot == uses[begin].slot) {
            if ((uses[end].row_and_write & 1) != 0 && writer < 0) {
                writer = uses[end].row_and_write / 2;
            }
            ++end;
        }
        const int64_t first = uses[begin].row_and_write / 2;
        const int64_t last = uses[end - 1].row_and_write / 2;
        if (writer >= 0 && first != last) {
            *conflict = (gdn_slot_conflict){
                .slot = uses[begin].slot, .writer = writer, .other = writer == first ? last : first};
            return true;
        }
        begin = end;
    }
    return false;
}
