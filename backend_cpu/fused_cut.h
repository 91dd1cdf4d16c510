/* How the sequences and heads of a call are cut into items of work, and items into bundles: by the thread count and what
 * the plan's scratch holds. No bit of a result depends on it. */
#ifndef GDN_CPU_FUSED_CUT_H
#define GDN_CPU_FUSED_CUT_H

#include "backend.h"

enum { GDN_MAX_BUNDLE = 8 };

static inline int64_t gdn_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

typedef struct gdn_item_cut {
    int keys; /* key heads of an item */
    int key_parts;
    int heads; /* value heads of each of its key heads */
    int head_parts;
    int panels; /* panels of each of their states */
    int width; /* columns of a panel: GDN_PANEL, or GDN_HALF_PANEL where there are few */
    int panel_parts;
    int64_t items;
    int bundle; /* items of one sequence that a thread takes at once */
    int64_t bundles;
} gdn_item_cut;

/* Tokens of a sequence from which on half panels and helping threads pay: more threads take longer to start and to wait for. */
enum { GDN_LONG_SEQUENCE = 64 };

/* Whether the sequences of a call have as many on average. */
static inline bool gdn_fused_is_long(const gdn_prefill_run *run)
{
    return run->args->total_tokens >= GDN_LONG_SEQUENCE * run->args->num_seqs;
}

/* Panels of state of an item that is not cut for the sake of more threads. */
int64_t gdn_fused_widest_item(const gdn_problem *problem);
/* Panels of state that each of `threads` needs room for, where a call has so many in all: its share, in whole items, up to those
 * of a bundle. */
int64_t gdn_fused_panels_of_thread(const gdn_problem *problem, int64_t panels, int64_t threads);

/* For a team of threads with room for so many panels of state each. */
gdn_item_cut gdn_fused_choose_cut(const gdn_prefill_run *run, int team, int64_t room);
void gdn_fused_choose_bundle(const gdn_prefill_run *run, int team, int64_t room, gdn_item_cut *cut);

int64_t gdn_fused_items_of_sequence(const gdn_item_cut *cut);
/* Panels of state that an item has, at most. */
int64_t gdn_fused_item_panels(const gdn_item_cut *cut);

/* What an item is, by its number. */
typedef struct gdn_item_part {
    int64_t seq;
    int first_key, keys;
    int first_head, heads; /* within the group of a key head */
    int first_panel, end_panel;
} gdn_item_part;

static inline int gdn_fused_part_panels(const gdn_item_part *part)
{
    return part->keys * part->heads * (part->end_panel - part->first_panel);
}

gdn_item_part gdn_fused_part(const gdn_problem *problem, const gdn_item_cut *cut, int64_t item);

/* Its value heads, numbered from 0: the heads of its first key head, then of the next. */
int gdn_fused_part_head(const gdn_problem *problem, const gdn_item_part *part, int i);

#endif
