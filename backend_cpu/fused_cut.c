/* fused_cut.h */
#include "fused_cut.h"

#include "fused_rows.h"
#include "fused_state.h"

enum { STATE_BYTES = 256 << 10 }; /* of one item: a quarter of a usual second-level cache */

/* Cost of what the heads of a group share, against that of one head: where the work is cut, it is done again. */
static const double SHARED_COST = 0.12;

static int64_t round_up_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t panel_bytes(const gdn_problem *p)
{
    return (int64_t)p->head_k_dim * GDN_PANEL * (int64_t)sizeof(float);
}

/* Value heads of an item, at most. */
static int states_of_item(const gdn_problem *p)
{
    const int64_t fit = STATE_BYTES / (gdn_fused_panels(p, GDN_PANEL) * panel_bytes(p));
    return fit < 1 ? 1 : (int)gdn_smaller(fit, p->num_v_heads);
}

int64_t gdn_fused_widest_item(const gdn_problem *p)
{
    return (int64_t)states_of_item(p) * gdn_fused_panels(p, GDN_PANEL);
}

int64_t gdn_fused_panels_of_thread(const gdn_problem *p, int64_t panels, int64_t threads)
{
    const int64_t share = round_up_div(panels, threads);
    int64_t item = gdn_fused_widest_item(p);
    if (share < item) { /* items will be cut until about one of them is a share */
        while (item / 2 >= share) {
            item /= 2;
        }
        return item;
    }
    const int64_t bytes = item * panel_bytes(p);
    const int64_t bundle = bytes < STATE_BYTES ? GDN_MAX_BUNDLE : round_up_div(GDN_MAX_BUNDLE * STATE_BYTES, bytes);
    return gdn_smaller(round_up_div(share, item), bundle) * item;
}

static gdn_item_cut cut_of(const gdn_prefill_run *run, int keys, int heads, int panels, int width)
{
    const gdn_problem *p = run->problem;
    const int group = p->num_v_heads / p->num_k_heads;
    gdn_item_cut cut = {.keys = keys, .heads = heads, .panels = panels, .width = width};
    cut.key_parts = (p->num_k_heads + keys - 1) / keys;
    cut.head_parts = (group + heads - 1) / heads;
    cut.panel_parts = (gdn_fused_panels(p, width) + panels - 1) / panels;
    cut.items = run->args->num_seqs * cut.key_parts * cut.head_parts * cut.panel_parts;
    return cut;
}

/* Estimated time: rounds of items on the team, times what an item costs. */
static double cost_of(const gdn_problem *p, const gdn_item_cut *cut, int team)
{
    const double rounds = (double)round_up_div(cut->items, team);
    return rounds * cut->keys * ((double)cut->heads * cut->panels / gdn_fused_panels(p, cut->width) + SHARED_COST);
}

/* The cut with the shortest time. Of equals the widest: heads side by side in memory share its pages, and each token's row is in
 * another page. */
gdn_item_cut gdn_fused_choose_cut(const gdn_prefill_run *run, int team, int64_t room)
{
    const gdn_problem *p = run->problem;
    const int all = gdn_fused_panels(p, GDN_PANEL), group = p->num_v_heads / p->num_k_heads, states = states_of_item(p);
    const int most_heads = states < group ? states : group;
    const int most_keys = states / most_heads < p->num_k_heads ? states / most_heads : p->num_k_heads;
    gdn_item_cut best = {0};
    double best_cost = -1.0;
    for (int keys = most_keys; keys >= 1; keys /= 2) {
        for (int heads = most_heads; heads >= 1; heads /= 2) {
            for (int panels = all; panels >= 1; panels /= 2) {
                const gdn_item_cut cut = cut_of(run, keys, heads, panels, GDN_PANEL);
                const double cost = cost_of(p, &cut, team);
                if (gdn_fused_item_panels(&cut) <= room && (best_cost < 0.0 || cost < 0.99 * best_cost)) {
                    best = cut;
                    best_cost = cost;
                }
            }
        }
    }
    const gdn_item_cut halves = cut_of(run, 1, 1, 1, GDN_HALF_PANEL);
    const bool pays = best.items < team && gdn_fused_is_long(run) && cost_of(p, &halves, team) < 0.99 * best_cost;
    return pays ? halves : best;
}

int64_t gdn_fused_items_of_sequence(const gdn_item_cut *cut)
{
    return (int64_t)cut->key_parts * cut->head_parts * cut->panel_parts;
}

int64_t gdn_fused_item_panels(const gdn_item_cut *cut)
{
    return (int64_t)cut->keys * cut->heads * cut->panels;
}

/* The largest bundle that has scratch and takes no longer than single items. */
void gdn_fused_choose_bundle(const gdn_prefill_run *run, int team, int64_t room, gdn_item_cut *cut)
{
    const int64_t of_sequence = gdn_fused_items_of_sequence(cut), sequences = run->args->num_seqs;
    const int64_t most = room / gdn_fused_item_panels(cut);
    const int64_t alone = round_up_div(cut->items, team);
    cut->bundle = 1;
    cut->bundles = cut->items;
    for (int bundle = 2; bundle <= GDN_MAX_BUNDLE && bundle <= most && bundle <= of_sequence; bundle++) {
        const int64_t bundles = sequences * round_up_div(of_sequence, bundle);
        if (round_up_div(bundles, team) * bundle <= alone) {
            cut->bundle = bundle;
            cut->bundles = bundles;
        }
    }
}

/* Part `i` of `size` things each, of `count`. */
static void part_of(int i, int size, int count, int *first, int *got)
{
    *first = i * size;
    *got = *first + size < count ? size : count - *first;
}

gdn_item_part gdn_fused_part(const gdn_problem *p, const gdn_item_cut *cut, int64_t item)
{
    gdn_item_part part;
    int panels;
    part_of((int)(item % cut->panel_parts), cut->panels, gdn_fused_panels(p, cut->width), &part.first_panel, &panels);
    part.end_panel = part.first_panel + panels;
    item /= cut->panel_parts;
    part_of((int)(item % cut->head_parts), cut->heads, p->num_v_heads / p->num_k_heads, &part.first_head, &part.heads);
    item /= cut->head_parts;
    part_of((int)(item % cut->key_parts), cut->keys, p->num_k_heads, &part.first_key, &part.keys);
    part.seq = item / cut->key_parts;
    return part;
}

int gdn_fused_part_head(const gdn_problem *p, const gdn_item_part *part, int i)
{
    return gdn_group_head(p, part->first_key + i / part->heads, part->first_head + i % part->heads);
}
