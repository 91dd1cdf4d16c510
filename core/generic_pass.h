/* What the stages of the generic prefill path share: one wave under way, and products over its value heads. */
#ifndef GDN_CORE_GENERIC_PASS_H
#define GDN_CORE_GENERIC_PASS_H

#include "generic_ops.h"
#include "generic_scratch.h"

typedef struct gdn_pass gdn_pass;

/* Forms W from L's inverse in `square`; may use `rows`. */
typedef gdn_status (*gdn_form_W_fn)(const gdn_pass *p);

struct gdn_pass {
    const gdn_device *device;
    const gdn_prefill_run *run;
    const gdn_generic_ops *ops;
    gdn_wave wave;
    gdn_form_W_fn form_W;
};

static inline void *gdn_pass_piece(const gdn_pass *p, gdn_generic_piece name)
{
    return p->run->workspace + p->run->choice->param[name];
}

/* A piece as an operand of a batch over (slot or lane, k head, v head of that k head): an array of [rows, width] matrices,
 * one for each value head, or one for each key head. */
gdn_batch_matrix gdn_pass_by_value_head(const gdn_pass *p, gdn_generic_piece name, int32_t rows, int32_t width);
gdn_batch_matrix gdn_pass_by_key_head(const gdn_pass *p, gdn_generic_piece name, int32_t rows, int32_t width);

/* The product of one matrix a value head, for `outer` slots or lanes. */
gdn_status gdn_pass_multiply(const gdn_pass *p, gdn_matmul matmul, int64_t outer);

/* gram = rows k^T of each key head, rows being q or k. */
gdn_status gdn_pass_gram(const gdn_pass *p, gdn_generic_piece rows);

/* dst = square rows, rows being [C, width] of each value head. */
gdn_status gdn_pass_square_times_rows(const gdn_pass *p, gdn_generic_piece square, int32_t width,
                                      gdn_generic_piece dst);

/* The whole path, given a way to form W; and its `supports` of gdn_implementation. */
gdn_status gdn_generic_run(const gdn_device *device, const gdn_prefill_run *run, gdn_form_W_fn form_W);
bool gdn_generic_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason);

#endif
