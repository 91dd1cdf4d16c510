/* Hopper prefill, instead of state_output, of a few sequences of few heads, that would leave multiprocessors idle: several blocks
 * have the outputs of a sequence, value head and half of V between them. Each walks the sequence from its first chunk in the wave
 * on, without outputs up to its own: nothing passes between them, and the bits are those of one. A piece is a block's only item;
 * prep has found them (plan_pieces.cuh).
 */
#ifndef GDN_CUDA_SM90_PIECES_KERNEL_CUH
#define GDN_CUDA_SM90_PIECES_KERNEL_CUH

#include "state_kernel.cuh"

namespace gdn
{
namespace sm90
{

/* One thread: this block's piece. Blocks take them in the order in which they begin: a piece may wait for those before it. */
__device__ __forceinline__ void load_piece(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    StageLoader<Form::kPieces, Usual> loader(base, barriers);
    const uint32_t found = base + StateMap<Form::kPieces>::kFound;
    const int number = static_cast<int>(atomicAdd(p.taken, 1));
    const int per_piece = 2 * p.num_v_heads, within = number % per_piece;
    Item item = static_cast<const Item *>(p.piece_items)[number / per_piece];
    item.head = within / 2;
    item.v_tile = within % 2;
    item.reads += item.reads >= 0 ? within : 0;
    if (item.chunks >= 0) {
        store_piece(found, item);
        loader.load(p, found);
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
        if (threadIdx.x == 0) {
            load_piece(p, base, barriers);
        }
    });
#endif
}

} // namespace sm90
} // namespace gdn

#endif
