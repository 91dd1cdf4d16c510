/* How columns of a state stored [V, K], and vectors beside them, lie over a warp: loads, stores, sums. decode.cu has the
 * picture. */
#ifndef GDN_CUDA_DECODE_COLUMNS_CUH
#define GDN_CUDA_DECODE_COLUMNS_CUH

#include "decode.h"
#include "device/element.cuh"

namespace gdn
{
namespace
{

/* How columns of K elements of type T lie over a warp. */
template <typename T, int K> struct ColumnMap {
    static constexpr int kPerPiece = 16 / sizeof(T);
    static constexpr int kRowPieces = K / kPerPiece;
    static constexpr int kLanes = kRowPieces < 16 ? kRowPieces : 16; /* of a column */
    static constexpr int kPieces = kRowPieces / kLanes; /* of a lane, kLanes pieces apart */
    static constexpr int kPerLane = kPieces * kPerPiece;
    static constexpr int kDepth = 32 / kPerLane; /* columns a lane works on */
    static constexpr int kSide = 32 / kLanes; /* columns side by side */
    static constexpr int kColumns = kSide * kDepth;
    static_assert(kColumns >= GDN_DECODE_LEAST_COLUMNS && kDepth <= kLanes, "");

    /* Which k the lane's i-th element is. */
    static __device__ __forceinline__ int element(int i)
    {
        return (i / kPerPiece * kLanes + threadIdx.x % kLanes) * kPerPiece + i % kPerPiece;
    }
};

template <typename T> struct Piece;

template <> struct Piece<float> {
    static __device__ __forceinline__ void unpack(float *x, uint4 v)
    {
        x[0] = __uint_as_float(v.x);
        x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z);
        x[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float *x)
    {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
    }
};

template <typename T> struct Piece16 {
    static __device__ __forceinline__ void unpack(float *x, uint4 v)
    {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 pair = unpack2<T>(words[i]);
            x[2 * i] = pair.x;
            x[2 * i + 1] = pair.y;
        }
    }
    static __device__ __forceinline__ uint4 pack(const float *x)
    {
        return make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]), pack2<T>(x[6], x[7]));
    }
};

template <> struct Piece<__nv_bfloat16> : Piece16<__nv_bfloat16> {
};
template <> struct Piece<__half> : Piece16<__half> {
};

/* A lane's part of the block's columns, as they are in memory. `at` is the lane's first piece of its first column, of which
 * `columns` are there: every kSide-th of them is the lane's. `step` bytes lie between two columns. */
template <typename T, int K> struct RawColumns {
    using Map = ColumnMap<T, K>;
    uint4 pieces[Map::kDepth][Map::kPieces];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                pieces[c][i] = make_uint4(0, 0, 0, 0);
            }
        }
    }

    __device__ __forceinline__ void load(const unsigned char *at, uint32_t step, int columns)
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kSide * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    pieces[c][i] = load_global_16(at + 16 * Map::kLanes * i);
                }
            }
            at += Map::kSide * static_cast<uint64_t>(step);
        }
    }

    __device__ __forceinline__ void store(unsigned char *at, uint32_t step, int columns) const
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kSide * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    store_global_16(at + 16 * Map::kLanes * i, pieces[c][i]);
                }
            }
            at += Map::kSide * static_cast<uint64_t>(step);
        }
    }
};

/* The same in float32. */
template <typename T, int K> struct Columns {
    using Map = ColumnMap<T, K>;
    float s[Map::kDepth][Map::kPerLane];

    __device__ __forceinline__ void take(const RawColumns<T, K> &raw)
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                Piece<T>::unpack(&s[c][i * Map::kPerPiece], raw.pieces[c][i]);
            }
        }
    }

    __device__ __forceinline__ void store(unsigned char *at, uint32_t step, int columns) const
    {
        RawColumns<T, K> raw;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                raw.pieces[c][i] = Piece<T>::pack(&s[c][i * Map::kPerPiece]);
            }
        }
        raw.store(at, step, columns);
    }
};

/* Sums over the lanes of a column, all on their way together. */
template <int kLanes, int kCount> __device__ __forceinline__ void lane_sums(float *x)
{
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
        }
    }
}

/* A lane's part of q or k: its elements of a column, as they are in memory. */
template <typename T, int K, bool k16Bit> struct RawVector {
    using Map = ColumnMap<T, K>;
    static constexpr int kPerWord = k16Bit ? 2 : 1;
    static constexpr int kWords = Map::kPerLane / kPerWord;
    static constexpr int kPieceWords = Map::kPerPiece / kPerWord; /* that lie side by side: 2, 4 or 8 */
    uint32_t words[kWords];

    /* The vector's first element is at `at`. */
    __device__ __forceinline__ void load(const unsigned char *at)
    {
        const uint32_t *const first = reinterpret_cast<const uint32_t *>(at) + Map::element(0) / kPerWord;
#pragma unroll
        for (int i = 0; i < Map::kPieces; ++i) {
            load_piece(&words[i * kPieceWords], first + i * Map::kLanes * kPieceWords);
        }
    }

    static __device__ __forceinline__ void load_piece(uint32_t *to, const uint32_t *from)
    {
        if constexpr (kPieceWords == 2) {
            const uint2 v = *reinterpret_cast<const uint2 *>(from);
            to[0] = v.x;
            to[1] = v.y;
        } else {
#pragma unroll
            for (int i = 0; i < kPieceWords; i += 4) {
                const uint4 v = *reinterpret_cast<const uint4 *>(from + i);
                to[i] = v.x;
                to[i + 1] = v.y;
                to[i + 2] = v.z;
                to[i + 3] = v.w;
            }
        }
    }

    __device__ __forceinline__ void unpack(float *x, bool bf16) const
    {
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
            if (!k16Bit) {
                x[i] = __uint_as_float(words[i]);
            } else {
                const float2 pair = bf16 ? unpack2<__nv_bfloat16>(words[i]) : unpack2<__half>(words[i]);
                x[2 * i] = pair.x;
                x[2 * i + 1] = pair.y;
            }
        }
    }
};

} // namespace
} // namespace gdn

#endif
