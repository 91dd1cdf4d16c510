/* Hopper prefill: which pieces a wave's sequences are shared out in (pieces_kernel.cuh), found by a block of prep beside its others.
 *
 * Every sequence has a first piece, and all of those begin at once. Further pieces begin at once where multiprocessors are left,
 * or take the places of sequences that are done: those start from the state that the first piece has come to when the first of them
 * begins (in a run of one wave), the others from the sequence's. Which sequence gets them follows from the time T, in chunks with
 * outputs, after which all is to be done: a piece that begins at b with chunk a and whose outputs begin at chunk m, which it comes to
 * in kQuiet (m - a), has time for outputs up to chunk T - b + m - kQuiet (m - a). The least such T is looked for by trying 32 at a time.
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
    int start; /* its first chunk, of the sequence's in the wave; past 0 it takes the state from the first piece */
    int begin, end; /* its outputs */
    int passes; /* of a first piece: the chunk before which its state is passed on; 0: nowhere */
    int readers; /* pieces before it that start with the sequence */
    bool last;
};

/* Whether all can be done after T; and piece `wanted`: the sequences' first ones by rank, then the others in the order in which they
 * begin. */
__device__ __forceinline__ bool share_out(const Ranking &sequences, int spare, bool passes, float T, int wanted,
                                          Piece &piece)
{
    int taken = 0;
    for (int rank = 0; rank < sequences.count; ++rank) {
        const float chunks = static_cast<float>(sequences.chunks(rank));
        const bool alone = T >= chunks - 0.5f;
        float end = T, start = 0.0f;
        int readers = 1;
        for (int number = 1; end < chunks - 0.5f; ++number) {
            const int place = sequences.count - 1 - (taken - spare); /* that of the shortest is left first */
            const bool early = taken < spare;
            const float begin = early ? 0.0f : place > rank ? static_cast<float>(sequences.chunks(place)) : T;
            if (!early && passes && start == 0.0f) {
                start = begin;
            }
            const float next = T - begin + end - kQuiet * (end - start);
            if (number == GDN_SM90_MOST_PIECES || begin >= T || next < end + 1.0f) {
                return false;
            }
            if (sequences.count + taken == wanted) {
                piece = {rank,
                         number,
                         static_cast<int>(start),
                         static_cast<int>(end),
                         static_cast<int>(fminf(next, chunks)),
                         0,
                         readers,
                         next >= chunks - 0.5f};
            }
            readers += start == 0.0f;
            ++taken;
            end = next;
        }
        if (rank == wanted) {
            piece = {rank, 0, 0, 0, static_cast<int>(alone ? chunks : T), static_cast<int>(start), 0, alone};
        }
    }
    return true;
}

/* One warp: the least T, to a thousandth. */
__device__ __forceinline__ float least_time(const Ranking &sequences, int spare, bool passes)
{
    constexpr int kLeast = 16; /* chunks of a sequence that is worth sharing out */
    const float longest = static_cast<float>(sequences.chunks(0));
    float T = longest, step = longest < kLeast ? 0.0f : longest * (0.4f / 32);
    Piece none;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        const float mine = T - static_cast<float>(threadIdx.x % 32) * step;
        const unsigned enough = __ballot_sync(0xffffffffu, share_out(sequences, spare, passes, mine, -1, none));
        T -= static_cast<float>(31 - __clz(static_cast<int>(enough | 1))) * step;
        step /= 32;
    }
    return T;
}

/* The item of a piece, but for its head and half of V, which are added to the places in its sequence's row of p.reads and p.passed.
 * `head` is that of its chunks after which a first piece's state is passed on. */
__device__ __forceinline__ Item piece_item(const gdn_sm90_prefill &p, const Wave &wave, int seq, gdn_sm90_run run,
                                           const Piece &piece)
{
    const gdn_chunk first = wave.chunks[run.first + piece.start], end = wave.chunks[run.end - 1];
    const bool shorter = piece.last && end.length < GDN_SM90_CHUNK;
    const bool shared = piece.number > 0 || !piece.last;
    const int row = 2 * p.num_v_heads * piece.rank;
    Item item = {};
    item.chunks = (piece.last ? run.end - run.first : piece.end) - piece.start - shorter;
    item.tail = shorter ? end.length : 0;
    item.seq = seq;
    item.head = piece.passes;
    item.token = p.equal_length ? first.index * GDN_SM90_CHUNK : static_cast<int>(first.token);
    item.row = p.equal_length ? seq : 0;
    item.source = piece.start > 0 ? kPlacePassed : first.index > 0 ? kPlaceCarry : kPlaceCaller;
    item.source_entry = row;
    item.target = !piece.last ? kPlaceNone : end.last ? kPlaceCaller : kPlaceCarry;
    item.target_entry = row;
    item.first_slot = run.first + piece.start;
    item.index = first.index;
    item.quiet = piece.begin - piece.start;
    const bool reads = piece.last || piece.start == 0; /* or waits for those that do */
    item.reads = p.reads && first.index == piece.start && shared && reads ? row : -1;
    item.awaited = piece.last ? piece.readers : 0;
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
    const bool passes = p.passed_states.data != nullptr;
    const float T = longest > 0.0f && p.piece_units > p.num_seqs ? least_time(sequences, spare, passes) : longest;
    for (int unit = lane; unit < p.piece_units; unit += 32) {
        Piece piece = {-1};
        share_out(sequences, spare, passes, T, unit, piece);
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
