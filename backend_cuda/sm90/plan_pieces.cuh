/* Hopper prefill: which pieces a wave's sequences are shared out in (pieces_kernel.cuh), found by a block of prep beside its others.
 *
 * Every sequence has a first piece, and all of those begin at once. Further pieces begin at once where multiprocessors are left,
 * or take the places of sequences that are done. Which sequence gets them follows from the time T, in chunks with outputs, after
 * which all is to be done: a piece that begins at b and whose outputs begin at chunk m, which it comes to in kQuiet m, has
 * time for outputs up to chunk T - b + (1 - kQuiet) m. The least such T is looked for by trying 32 at a time.
 */
#ifndef GDN_CUDA_SM90_PLAN_PIECES_CUH
#define GDN_CUDA_SM90_PLAN_PIECES_CUH

#include "state_map.cuh"
#include "wave.cuh"

namespace gdn
{
namespace sm90
{

constexpr float kQuiet = GDN_SM90_QUIET;
static_assert(sizeof(Item) == GDN_SM90_PIECE_BYTES, "what piece_items has room for");

/* A wave's sequences in shared memory, the longest first: chunks, and numbers counted from the wave's first sequence. */
struct Ranking {
    uint32_t address;
    int count;

    __device__ __forceinline__ void put(int rank, int chunks, int sequence) const
    {
        store_shared_u32(address + 8 * rank, static_cast<uint32_t>(chunks));
        store_shared_u32(address + 8 * rank + 4, static_cast<uint32_t>(sequence));
    }
    __device__ __forceinline__ int chunks(int rank) const
    {
        return static_cast<int>(load_shared_u32(address + 8 * rank));
    }
    __device__ __forceinline__ int sequence(int rank) const
    {
        return static_cast<int>(load_shared_u32(address + 8 * rank + 4));
    }
};

/* A piece of the sequence that is the `rank`th longest. */
struct Piece {
    int rank; /* -1: there is no such piece */
    int number; /* of the sequence's */
    int begin, end; /* its outputs, in chunks of the sequence's in the wave */
    bool last;
};

/* Whether all can be done after T; and piece `wanted` of those after the sequences' first ones, in the order in which they begin. */
__device__ __forceinline__ bool share_out(const Ranking &sequences, int spare, float T, int wanted, Piece &piece)
{
    int taken = 0;
    for (int rank = 0; rank < sequences.count; ++rank) {
        const float chunks = static_cast<float>(sequences.chunks(rank));
        float end = T;
        for (int number = 1; end < chunks - 0.5f; ++number) {
            const int place = sequences.count - 1 - (taken - spare); /* that of the shortest is left first */
            const float begin = taken < spare ? 0.0f : place > rank ? static_cast<float>(sequences.chunks(place)) : T;
            const float next = T - begin + (1.0f - kQuiet) * end;
            if (number == GDN_SM90_MOST_PIECES || next < end + 1.0f) {
                return false;
            }
            if (taken == wanted) {
                piece = {rank, number, static_cast<int>(end), static_cast<int>(fminf(next, chunks)),
                         next >= chunks - 0.5f};
            }
            ++taken;
            end = next;
        }
    }
    return true;
}

/* One warp: the least T, to a thousandth. */
__device__ __forceinline__ float least_time(const Ranking &sequences, int spare)
{
    constexpr int kLeast = 16; /* chunks of a sequence that is worth sharing out */
    const float longest = static_cast<float>(sequences.chunks(0));
    float T = longest, step = longest < kLeast ? 0.0f : longest * (0.4f / 32);
    Piece none;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        const float mine = T - static_cast<float>(threadIdx.x % 32) * step;
        const unsigned enough = __ballot_sync(0xffffffffu, share_out(sequences, spare, mine, -1, none));
        T -= static_cast<float>(31 - __clz(static_cast<int>(enough | 1))) * step;
        step /= 32;
    }
    return T;
}

__device__ __forceinline__ Piece find_piece(const Ranking &sequences, int spare, float T, int unit)
{
    Piece piece = {-1, 0, 0, 0, false};
    if (unit < sequences.count) {
        const int chunks = sequences.chunks(unit);
        const bool alone = T >= static_cast<float>(chunks) - 0.5f;
        piece = {unit, 0, 0, alone ? chunks : static_cast<int>(T), alone};
    } else {
        share_out(sequences, spare, T, unit - sequences.count, piece);
    }
    return piece;
}

/* The item of a piece, but for its head and half of V. */
__device__ __forceinline__ Item piece_item(const gdn_sm90_prefill &p, const Wave &wave, int seq, gdn_sm90_run run,
                                           const Piece &piece)
{
    const gdn_chunk first = wave.chunks[run.first], end = wave.chunks[run.end - 1];
    const bool shorter = piece.last && end.length < GDN_SM90_CHUNK;
    const bool shared = piece.number > 0 || !piece.last;
    Item item = {};
    item.chunks = (piece.last ? run.end - run.first : piece.end) - shorter;
    item.tail = shorter ? end.length : 0;
    item.seq = seq;
    item.token = p.equal_length ? first.index * GDN_SM90_CHUNK : static_cast<int>(first.token);
    item.row = p.equal_length ? seq : 0;
    item.source = first.index > 0 ? kPlaceCarry : kPlaceCaller;
    item.target = !piece.last ? kPlaceNone : end.last ? kPlaceCaller : kPlaceCarry;
    item.first_slot = run.first;
    item.index = first.index;
    item.quiet = piece.begin;
    item.reads = p.reads && first.index == 0 && shared ? 2 * p.num_v_heads * piece.rank : -1;
    item.awaited = piece.last ? piece.number : 0;
    return item;
}

/* One block; `shared` is 512 bytes. */
__device__ __forceinline__ void plan_pieces(const gdn_sm90_prefill &p, const Wave &wave, uint32_t shared)
{
    const WaveSequences all = sequences_of(p, wave);
    const Ranking sequences = {shared, all.count};
    const uint32_t runs = shared + 8 * GDN_SM90_MOST_SHARED; /* a first slot and the end of each */
    if (threadIdx.x < 2 * GDN_SM90_MOST_SHARED) {
        store_shared_u32(runs + 4 * threadIdx.x, 0);
    }
    __syncthreads();
    for (int slot = threadIdx.x; slot < wave.slots; slot += blockDim.x) {
        const int seq = wave.chunks[slot].seq;
        if (seq >= 0) {
            if (slot == 0 || wave.chunks[slot - 1].seq != seq) {
                store_shared_u32(runs + 8 * (seq - all.first), slot);
            }
            if (slot == wave.slots - 1 || wave.chunks[slot + 1].seq != seq) {
                store_shared_u32(runs + 8 * (seq - all.first) + 4, slot + 1);
            }
        }
    }
    __syncthreads();
    if (threadIdx.x >= 32) {
        return;
    }
    const int lane = threadIdx.x;
    const int chunks = static_cast<int>(load_shared_u32(runs + 8 * lane + 4) - load_shared_u32(runs + 8 * lane));
    int rank = 0;
    for (int other = 0; other < all.count; ++other) {
        const int x = __shfl_sync(0xffffffffu, chunks, other);
        rank += x > chunks || (x == chunks && other < lane);
    }
    if (lane < all.count) {
        sequences.put(rank, chunks, lane);
    }
    __syncwarp();
    const int spare = p.pieces - all.count;
    const float longest = all.count > 0 ? static_cast<float>(sequences.chunks(0)) : 0.0f;
    const float T = longest > 0.0f && p.piece_units > p.num_seqs ? least_time(sequences, spare) : longest;
    for (int unit = lane; unit < p.piece_units; unit += 32) {
        const Piece piece = find_piece(sequences, spare, T, unit);
        Item item = {};
        item.chunks = -1;
        if (piece.rank >= 0 && sequences.chunks(piece.rank) > 0) {
            const int n = sequences.sequence(piece.rank);
            const gdn_sm90_run run = {static_cast<int>(load_shared_u32(runs + 8 * n)),
                                      static_cast<int>(load_shared_u32(runs + 8 * n + 4))};
            item = piece_item(p, wave, all.first + n, run, piece);
        }
        static_cast<Item *>(p.piece_items)[unit] = item;
    }
}

} // namespace sm90
} // namespace gdn

#endif
