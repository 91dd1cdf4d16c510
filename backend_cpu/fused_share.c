/* fused_share.h */
#define _POSIX_C_SOURCE 199309L /* nanosleep */

#include "fused_share.h"

#include <sched.h>
#include <time.h>

enum { EMPTY, CLAIMED, FULL }; /* the place: CLAIMED while an item is copied to it or from it */

bool gdn_fused_split(const gdn_problem *problem, gdn_item_run *item, gdn_item_run *half)
{
    gdn_item_part *first = &item->part, *second = &half->part;
    int panels = first->end_panel - first->first_panel;
    *half = *item;
    if (first->keys > 1) {
        first->keys /= 2;
        second->first_key += first->keys;
        second->keys -= first->keys;
        panels *= first->keys * first->heads;
    } else if (first->heads > 1) {
        first->heads /= 2;
        second->first_head += first->heads;
        second->heads -= first->heads;
        panels *= first->heads;
    } else if (panels > 1) {
        panels /= 2;
        first->end_panel = first->first_panel + panels;
        second->first_panel = first->end_panel;
    } else {
        return false;
    }
    half->state += (size_t)panels * gdn_fused_panel_floats(problem);
    return true;
}

/* Thread `lane`'s own bundle, unless it has been begun. */
static bool begin_own(gdn_bundles *bundles, int lane)
{
    const uint_fast64_t bit = (uint_fast64_t)1 << lane % 64;
    return lane < bundles->count && !(atomic_fetch_or(&bundles->begun[lane / 64], bit) & bit);
}

/* Looked at before anything is written, which takes the line away from all other threads, one after the other. */
static bool all_begun(gdn_bundles *bundles)
{
    const int64_t lanes = bundles->lanes < bundles->count ? bundles->lanes : bundles->count;
    bool all = atomic_load_explicit(&bundles->next, memory_order_relaxed) + bundles->lanes >= bundles->count;
    for (int64_t first = 0; all && first < lanes; first += 64) {
        const uint_fast64_t own = lanes - first < 64 ? ((uint_fast64_t)1 << (lanes - first)) - 1 : UINT64_MAX;
        all = (atomic_load_explicit(&bundles->begun[first / 64], memory_order_relaxed) & own) == own;
    }
    return all;
}

int64_t gdn_bundles_take(gdn_bundles *bundles, int lane, int *turn)
{
    if ((*turn)++ == 0 && begin_own(bundles, lane)) {
        return lane;
    }
    while (!all_begun(bundles)) {
        const int64_t i = atomic_fetch_add(&bundles->next, 1);
        if (i + bundles->lanes < bundles->count) {
            return i + bundles->lanes;
        }
        /* Those of threads that have not come yet. */
        const int64_t left = i - (bundles->count > bundles->lanes ? bundles->count - bundles->lanes : 0);
        if (left >= bundles->lanes) {
            break;
        }
        if (begin_own(bundles, (int)left)) {
            return left;
        }
    }
    return -1;
}

void gdn_share_begin(gdn_share *share)
{
    atomic_fetch_add(&share->working, 1);
}

bool gdn_share_is_wanted(gdn_share *share)
{
    int empty = EMPTY;
    return atomic_load_explicit(&share->waiting, memory_order_relaxed) > 0 &&
           atomic_compare_exchange_strong(&share->place, &empty, CLAIMED);
}

void gdn_share_leave(gdn_share *share, const gdn_item_run *item)
{
    share->left = *item;
    atomic_store(&share->place, FULL);
}

void gdn_share_leave_nothing(gdn_share *share)
{
    atomic_store(&share->place, EMPTY);
}

void gdn_share_wait(int times)
{
    if (times < 1000) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

bool gdn_share_take(gdn_share *share, gdn_item_run *item)
{
    bool found = false;
    atomic_fetch_sub(&share->working, 1);
    atomic_fetch_add(&share->waiting, 1);
    for (int times = 0; !found; times += times < 1000) {
        int full = atomic_load(&share->place); /* alone leaves the line where it is, with others who only look */
        if (full == FULL && atomic_compare_exchange_strong(&share->place, &full, CLAIMED)) {
            *item = share->left;
            atomic_fetch_add(&share->working, 1);
            atomic_store(&share->place, EMPTY);
            found = true;
        } else if (full == EMPTY && atomic_load(&share->working) == 0) {
            break;
        } else {
            gdn_share_wait(times);
        }
    }
    atomic_fetch_sub(&share->waiting, 1);
    return found;
}
