/* The head dims that a kernel is made for. */
#ifndef GDN_CUDA_SM90_DIMS_CUH
#define GDN_CUDA_SM90_DIMS_CUH

#include "prefill.h"

namespace gdn
{
namespace sm90
{

/* K is 64, 128 or 256; V is a constant, or 0: any multiple of 64, which the parameters say. Those for any V take checkpoints
 * anywhere, too; a constant V only between chunks. */
template <int kHeadK, int kHeadV = 0> struct Dims {
    static constexpr int kK = kHeadK;
    static constexpr bool kAny = kHeadV == 0;
    static constexpr int kKTiles = kK / GDN_SM90_TILE;
    static constexpr uint32_t kRowBytes =
        GDN_SM90_CHUNK * kK * 2; /* a chunk of K or Q, or S^T of a tile of V, in 16 bits */
    static constexpr int kStages = kK > 128 ? 2 : 3; /* chunks that a block loads ahead */
    static constexpr bool kPlain = kK > 128; /* PlainChain: there are no registers for the others */

    /* Tiles of V. */
    static __device__ __forceinline__ int v_tiles(const gdn_sm90_prefill &p)
    {
        return kAny ? p.v_tiles : kHeadV / GDN_SM90_TILE;
    }
    static __device__ __forceinline__ int64_t v_dim(const gdn_sm90_prefill &p)
    {
        return static_cast<int64_t>(v_tiles(p)) * GDN_SM90_TILE;
    }
};

using Usual = Dims<128, 128>;

} // namespace sm90
} // namespace gdn

#endif
