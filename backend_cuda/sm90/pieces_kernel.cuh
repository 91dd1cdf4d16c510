/* Hopper prefill, instead of state_output, of a few sequences of few heads, that would leave multiprocessors idle: several blocks
 * have the outputs of a sequence, value head and half of V between them. Each walks the sequence from its first chunk in the wave
 * on, without outputs up to its own: nothing passes between them, and the bits are those of one. A piece is a block's only item.
 */
#ifndef GDN_CUDA_SM90_PIECES_KERNEL_CUH
#define GDN_CUDA_SM90_PIECES_KERNEL_CUH

#include "state_kernel.cuh"

namespace gdn
{
namespace sm90
{

/* One thread: writes piece `number` to shared memory, if there is one: by sequence, piece, value head and half of V. */
__device__ __forceinline__ bool find_piece(const gdn_sm90_prefill &p, int number, uint32_t found)
{
    const auto put = [found](size_t word, int value) {
        store_shared_u32(found + static_cast<uint32_t>(word), static_cast<uint32_t>(value));
    };
    constexpr int kMinPieces = 16; /* chunks of a sequence, for each piece to have some */
    const int per_piece = 2 * p.num_v_heads;
    const int within = number % per_piece, unit = number / per_piece;
    const int piece = unit % p.pieces;
    const Wave wave = wave_of(p);
    const int seq = (p.num_seqs > 1 ? sequences_of(p, wave).first : 0) + unit / p.pieces;
    if (seq >= p.num_seqs) {
        return false;
    }
    const Run run = find_run(p, wave, seq);
    const int pieces = run.count < kMinPieces ? 1 : p.pieces;
    if (run.first < 0 || piece >= pieces) {
        return false;
    }
    const auto start = [&p, &run](int n) { return static_cast<int>(static_cast<float>(run.count) * p.piece_start[n]); };
    const bool last = piece == pieces - 1;
    const bool shorter = last && run.last_length < GDN_SM90_CHUNK;
    put(offsetof(Item, chunks), (last ? run.count : start(piece + 1)) - shorter);
    put(offsetof(Item, tail), shorter ? run.last_length : 0);
    put(offsetof(Item, seq), seq);
    put(offsetof(Item, head), within / 2);
    put(offsetof(Item, v_tile), within % 2);
    put(offsetof(Item, token), p.equal_length ? run.index * GDN_SM90_CHUNK : run.token);
    put(offsetof(Item, row), p.equal_length ? seq : 0);
    put(offsetof(Item, source), run.index > 0 ? kPlaceCarry : kPlaceCaller);
    put(offsetof(Item, target), !last ? kPlaceNone : run.last ? kPlaceCaller : kPlaceCarry);
    put(offsetof(Item, first_slot), run.first);
    put(offsetof(Item, index), run.index);
    put(offsetof(Item, quiet), piece == 0 ? 0 : start(piece));
    put(offsetof(Item, reads), p.reads && run.index == 0 && pieces > 1 ? number - piece * per_piece : -1);
    put(offsetof(Item, awaited), last ? pieces - 1 : 0);
    return true;
}

template <typename T>
__global__ void __launch_bounds__(StateBlock<Form::kPieces, false>::kThreads, 1)
    pieces_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    const uint32_t base = shared_memory_base();
    take_roles<T, Form::kPieces, Usual>(p, base, [&p, base](const Barriers &barriers) {
        if (threadIdx.x == 0) {
            StageLoader<Form::kPieces, Usual> loader(base, barriers);
            const uint32_t found = base + StateMap<Form::kPieces>::kFound;
            /* In the order in which blocks begin: a piece may wait for those before it. */
            if (find_piece(p, static_cast<int>(atomicAdd(p.taken, 1)), found)) {
                loader.load(p, found);
            }
            loader.finish();
        }
    });
#endif
}

} // namespace sm90
} // namespace gdn

#endif
