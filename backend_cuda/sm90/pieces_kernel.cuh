/* Hopper prefill, state_output of 128 x 128: half of V a block. A block's items are
 *
 *     a piece         of a few sequences of few heads, that would leave multiprocessors idle: several blocks have the outputs of a
 *                     sequence, value head and half of V between them. Each walks over the chunks before its own without outputs,
 *                     from the sequence's first one on or from a state that the first piece leaves on its way. A block has one
 *                     piece, which prep has found (plan_pieces.cuh)
 *     a share         where whole items would leave multiprocessors idle in their last round: as many chunks as any other block,
 *                     of one item after the other; where an item is parted, its state goes from one block to the next
 *     whole items     otherwise
 *     segments        where sequences are cut
 *
 * Each has another loader; the bits are those of one block. */
#ifndef GDN_CUDA_SM90_PIECES_KERNEL_CUH
#define GDN_CUDA_SM90_PIECES_KERNEL_CUH

#include "state_kernel.cuh"

namespace gdn
{
namespace sm90
{

/* One thread: this block's piece. Blocks take them in the order in which they begin: a piece may wait for those before it. A first
 * piece whose state is passed on becomes two items, the second of which starts from what the first has left. */
__device__ __forceinline__ void load_piece(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    StageLoader<Form::kPieces, Usual> loader(base, barriers);
    const uint32_t found = base + StateMap<Form::kPieces>::kFound;
    const int number = static_cast<int>(atomicAdd(p.taken, 1));
    const int per_piece = 2 * p.num_v_heads, within = number % per_piece;
    Item item = static_cast<const Item *>(p.piece_items)[number / per_piece];
    const int passes = item.head;
    item.head = within / 2;
    item.v_tile = within % 2;
    item.source_entry += within;
    item.target_entry += within;
    item.reads += item.reads >= 0 ? within : 0;
    if (item.chunks >= 0 && passes == 0) {
        store_piece(found, item);
        loader.load(p, found);
    } else if (item.chunks >= 0) {
        Item before = item;
        before.chunks = passes;
        before.tail = 0;
        before.target = kPlacePassed;
        store_piece(found, before);
        loader.load(p, found);
        item.chunks -= passes;
        item.token += passes * GDN_SM90_CHUNK;
        item.source = kPlacePassed;
        item.first_slot += passes;
        item.index += passes;
        item.reads = -1;
        store_piece(found, item);
        loader.load(p, found);
    }
    loader.finish();
}

/* Chunks from .. to - 1 of a sequence in the wave, for one value head and half of V; what a block has of the sequence's item. */
__device__ __forceinline__ Item part_of(const gdn_sm90_prefill &p, const Run &run, int seq, int head, int from, int to)
{
    const bool last = to == run.count;
    const bool shorter = last && run.last_length < GDN_SM90_CHUNK;
    Item item = {};
    item.chunks = to - from - shorter;
    item.tail = shorter ? run.last_length : 0;
    item.seq = seq;
    item.head = head / 2;
    item.v_tile = head % 2;
    item.token = (p.equal_length ? run.index * GDN_SM90_CHUNK : run.token) + from * GDN_SM90_CHUNK;
    item.row = p.equal_length ? seq : 0;
    item.source = from > 0 ? kPlacePassed : run.index > 0 ? kPlaceCarry : kPlaceCaller;
    item.target = !last ? kPlacePassed : run.last ? kPlaceCaller : kPlaceCarry;
    item.first_slot = run.first + from;
    item.index = run.index + from;
    item.reads = -1;
    return item;
}

/* One thread: this block's items where all are shared out evenly. They lie one after the other on a line, those of a sequence from
 * its slot times their number on, and block n has `share` chunks of it from n share on. It takes its items from the line's end to
 * its start, so that an item's first chunks are the first of one block, and what is left of them the last of the next one, which
 * waits for the state. */
__device__ __forceinline__ void load_shares(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    StageLoader<Form::kPieces, Usual> loader(base, barriers);
    const uint32_t found = base + StateMap<Form::kPieces>::kFound;
    const Wave wave = wave_of(p);
    const int block = static_cast<int>(atomicAdd(p.taken, 1));
    const int heads = 2 * p.num_v_heads; /* items of a sequence */
    const int begin = block * p.share;
    int end = min(begin + p.share, wave.slots * heads);
    while (end > begin) {
        const int slot = (end - 1) / heads;
        const int seq = wave.chunks[slot].seq;
        if (seq < 0) { /* unused slots are the last ones */
            end = slot * heads;
            continue;
        }
        const Run run = find_run(p, wave, seq);
        const int head = (end - 1 - run.first * heads) / run.count;
        const int start = run.first * heads + head * run.count;
        Item item = part_of(p, run, seq, head, max(begin - start, 0), end - start);
        item.source_entry = block - 1;
        item.target_entry = block;
        store_piece(found, item);
        loader.load(p, found);
        end = start;
    }
    loader.finish();
}

/* One thread: this block's items where sequences are not cut; the first has the block's number, each of the others is the next that no
 * block has taken. As load_items does, with a warp, where they are. */
__device__ __forceinline__ void load_whole_items(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    StageLoader<Form::kPieces, Usual> loader(base, barriers);
    const uint32_t found = base + StateMap<Form::kPieces>::kFound;
    const Wave wave = wave_of(p);
    const WaveSequences sequences = sequences_of(p, wave);
    const int heads = 2 * p.num_v_heads;
    int number = blockIdx.x;
    while (number < sequences.count * heads) {
        const int seq = sequences.first + number / heads;
        const Run run = find_run(p, wave, seq);
        if (run.first >= 0) {
            store_piece(found, part_of(p, run, seq, number % heads, 0, run.count));
            loader.load(p, found);
        }
        number = gridDim.x + atomicAdd(p.taken, 1);
    }
    loader.finish();
}

template <typename T>
__global__ void __launch_bounds__(StateBlock<Form::kPieces, false>::kThreads, 1)
    pieces_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    const uint32_t base = shared_memory_base();
    take_roles<T, Form::kPieces, Usual>(p, base, [&p, base](const Barriers &barriers) {
        if (p.max_segments > 1) {
            load_items<Form::kPieces, Usual>(p, base, barriers);
        } else if (threadIdx.x == 0) {
            if (p.pieces > 0) {
                load_piece(p, base, barriers);
            } else if (p.share > 0) {
                load_shares(p, base, barriers);
            } else {
                load_whole_items(p, base, barriers);
            }
        }
    });
#endif
}

} // namespace sm90
} // namespace gdn

#endif
