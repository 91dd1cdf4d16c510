/* fused_ahead.h
 *
 * Place c % PLACES of a ring is for chunk c. Its word is 2 c + 1 while that is prepared and 2 c + 2 from then on; an item's word is
 * how many chunks it has done with. A place is taken for another chunk once every item of the ring has done with the one in it, so
 * a thread may read a chunk until it says that it has done with it. Words and places are apart: threads must not meet but where one
 * has something for another. */
#include "fused_ahead.h"

#include <stdatomic.h>

#include "fused_sequence.h"
#include "fused_share.h"

enum {
    PLACES = 16,
    HELPERS = 2, /* of a ring: a thread prepares a chunk in about the time in which others use one */
    WORD_BYTES = 128 /* two cache lines, which a processor may fetch together */
};

static const int64_t ENDED = INT64_MAX;

typedef atomic_int_fast64_t word;

int64_t gdn_ahead_helpers(const gdn_problem *p, int64_t num_seqs)
{
    return HELPERS * num_seqs * p->num_k_heads;
}

static size_t place_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *p, int chunk)
{
    return gdn_chunk_pack_bytes(kernels, p, chunk) + GDN_LANE_GAP;
}

/* Items' words, places' words, places. */
size_t gdn_ahead_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *p, int chunk)
{
    const size_t seqs = (size_t)p->max_seqs, rings = seqs * (size_t)p->num_k_heads;
    const size_t items = seqs * (size_t)p->num_v_heads * (size_t)gdn_fused_panels(p, GDN_HALF_PANEL);
    return (items + rings * PLACES) * WORD_BYTES + GDN_LANE_GAP + rings * PLACES * place_bytes(kernels, p, chunk);
}

static word *word_at(const gdn_ahead *a, int64_t i)
{
    return (word *)(void *)(a->base + i * WORD_BYTES);
}

static word *item_word(const gdn_ahead *a, int64_t ring, int item)
{
    return word_at(a, ring * a->items + item);
}

static word *place_word(const gdn_ahead *a, int64_t ring, int64_t chunk)
{
    return word_at(a, a->rings * a->items + ring * PLACES + chunk % PLACES);
}

static unsigned char *place_of(const gdn_ahead *a, int64_t ring, int64_t chunk)
{
    unsigned char *const places = a->base + a->rings * (a->items + PLACES) * WORD_BYTES + GDN_LANE_GAP;
    return places + (size_t)(ring * PLACES + chunk % PLACES) * a->place_bytes;
}

static int64_t ring_of(const gdn_ahead *a, const gdn_item_part *part)
{
    return part->seq * a->run->problem->num_k_heads + part->first_key;
}

void gdn_ahead_begin(gdn_ahead *a, const gdn_cpu_kernels *kernels, const gdn_prefill_run *run, const gdn_item_cut *cut,
                     unsigned char *base)
{
    *a = (gdn_ahead){
        .run = run,
        .rings = run->args->num_seqs * run->problem->num_k_heads,
        .items = cut->head_parts * cut->panel_parts,
        .panels = cut->panel_parts,
        .place_bytes = place_bytes(kernels, run->problem, run->choice->chunk_size),
        .base = base,
    };
    for (int64_t i = 0; i < a->rings * (a->items + PLACES); i++) {
        atomic_init(word_at(a, i), 0);
    }
}

/* ---------------------------------------------------------------------------- Threads with an item */

/* Chunk `chunk` of a ring if it is there, or NULL. */
static unsigned char *find(const gdn_ahead *a, int64_t ring, int64_t chunk)
{
    const bool there = atomic_load_explicit(place_word(a, ring, chunk), memory_order_acquire) == 2 * chunk + 2;
    return there ? place_of(a, ring, chunk) : NULL;
}

void gdn_ahead_pack(gdn_chunk_work *w, const gdn_fused_sequence *seq, const gdn_item_part *part, int hk, int64_t t,
                    int n)
{
    if (w->ahead) {
        const int64_t ring = ring_of(w->ahead, part), chunk = t / w->chunk;
        unsigned char *const found = find(w->ahead, ring, chunk);
        gdn_chunk_pack_place(w, found ? found : w->own_pack);
        w->next_pack = find(w->ahead, ring, chunk + 1);
        if (found) {
            return;
        }
    }
    gdn_chunk_pack(w, seq, hk, t, n);
}

void gdn_ahead_passed(const gdn_chunk_work *w, const gdn_item_part *part, int64_t t)
{
    const gdn_ahead *a = w->ahead;
    if (a) {
        const int item = part->first_head * a->panels + part->first_panel;
        atomic_store_explicit(item_word(a, ring_of(a, part), item), t / w->chunk, memory_order_release);
    }
}

void gdn_ahead_ended(const gdn_ahead *a, int64_t item)
{
    atomic_store_explicit(word_at(a, item), ENDED, memory_order_release);
}

/* ------------------------------------------------------------------------------------------ Helpers */

/* The least chunks that an item of the ring has done with, and the most of those that have not ended. */
static void look(const gdn_ahead *a, int64_t ring, int64_t *least, int64_t *most)
{
    *least = ENDED;
    *most = 0;
    for (int i = 0; i < a->items; i++) {
        const int64_t done = atomic_load_explicit(item_word(a, ring, i), memory_order_acquire);
        *least = gdn_smaller(done, *least);
        *most = done != ENDED && done > *most ? done : *most;
    }
}

/* Takes the place of `chunk`, unless that is there or on its way, or a slow thread still fills the place with one before it. */
static bool take_place(const gdn_ahead *a, int64_t ring, int64_t chunk)
{
    word *const at = place_word(a, ring, chunk);
    int_fast64_t now = atomic_load_explicit(at, memory_order_acquire);
    return now % 2 == 0 && now < 2 * chunk && atomic_compare_exchange_strong(at, &now, 2 * chunk + 1);
}

/* Prepares a chunk of the ring, where there is one to prepare. Below least + PLACES, all have done with what is in its place. */
static bool prepare_one(const gdn_ahead *a, gdn_chunk_work *w, int64_t ring, int64_t least, int64_t most)
{
    const int keys = a->run->problem->num_k_heads, hk = (int)(ring % keys);
    gdn_sequence_run s;
    if (!gdn_fused_find_sequence(a->run, ring / keys, &s)) {
        return false;
    }
    for (int64_t chunk = most + GDN_AHEAD_LEAD; chunk < least + PLACES && chunk * w->chunk < s.seq.length; chunk++) {
        if (take_place(a, ring, chunk)) {
            const int64_t t = chunk * w->chunk;
            gdn_chunk_pack_place(w, place_of(a, ring, chunk));
            gdn_chunk_pack(w, &s.seq, hk, t, (int)gdn_smaller(s.seq.length - t, w->chunk));
            atomic_store_explicit(place_word(a, ring, chunk), 2 * chunk + 2, memory_order_release);
            return true;
        }
    }
    return false;
}

void gdn_ahead_help(const gdn_ahead *a, gdn_chunk_work *w, int lane)
{
    int idle = 0;
    for (bool ended = false; !ended;) {
        bool prepared = false;
        ended = true;
        for (int64_t i = 0; i < a->rings; i++) {
            const int64_t ring = (lane + i) % a->rings;
            int64_t least, most;
            look(a, ring, &least, &most);
            ended = ended && least == ENDED;
            prepared = (least != ENDED && prepare_one(a, w, ring, least, most)) || prepared;
        }
        idle = prepared ? 0 : idle + (idle < 1000);
        if (!prepared && !ended) {
            gdn_share_wait(idle);
        }
    }
}
