/* How columns of a state, and vectors beside them, lie over a warp: loads, stores, sums. decode.cu has the picture. */
#ifndef GDN_CUDA_DECODE_COLUMNS_CUH
#define GDN_CUDA_DECODE_COLUMNS_CUH

#include "decode.h"
#include "device/element.cuh"

namespace gdn
{
namespace
{

/* A state stored [V, K]: kLanes lanes next to each other share a column, each with kPieces pieces of 16 bytes. */
template <typename T, int kDim> struct ColumnMap {
    using Type = T;
    static constexpr int K = kDim;
    static constexpr int kPerPiece = 16 / sizeof(T); /* elements of a column that lie next to each other in a lane */
    static constexpr int kRowPieces = K / kPerPiece;
    static constexpr int kLanes = kRowPieces < 32 ? kRowPieces : 32; /* of a column */
    static constexpr int kStep = 1; /* between two of them */
    static constexpr int kPieces = kRowPieces / kLanes; /* of a lane, kLanes pieces apart */
    static constexpr int kPerLane = kPieces * kPerPiece;
    static constexpr int kDepth = 32 / kPerLane; /* columns a lane works on */
    static constexpr int kSide = 32 / kLanes; /* columns side by side */
    static constexpr int kApart = kSide; /* columns from one that a lane works on to the next */
    static constexpr int kColumns = kSide * kDepth;

    static __device__ __forceinline__ uint32_t first_column()
    {
        return threadIdx.x / kLanes;
    }

    /* Bytes from the state's first element to the lane's first of a block whose columns begin at v0. A line is a column here. */
    static __device__ __forceinline__ uint64_t offset(uint32_t v0, uint32_t line)
    {
        return static_cast<uint64_t>(v0 + first_column()) * line + 16 * (threadIdx.x % kLanes);
    }
};

/* A float32 state stored [K, V]: a lane has four columns, which are a piece of 16 bytes, of an eighth of the rows k. Four lanes
 * next to each other read 64 bytes of a row, half of what memory moves at once: the other half is the next block's. */
template <int kDim> struct RowMap {
    using Type = float;
    static constexpr int K = kDim;
    static constexpr int kLanes = 8;
    static constexpr int kStep = 4;
    static constexpr int kPerPiece = K / kLanes;
    static constexpr int kPieces = 1;
    static constexpr int kPerLane = kPerPiece;
    static constexpr int kDepth = 4;
    static constexpr int kSide = 4;
    static constexpr int kApart = 1;
    static constexpr int kColumns = kSide * kDepth;

    static __device__ __forceinline__ uint32_t first_column()
    {
        return kDepth * (threadIdx.x % kStep);
    }

    /* A line is a row k here. */
    static __device__ __forceinline__ uint64_t offset(uint32_t v0, uint32_t line)
    {
        return sizeof(float) * (v0 + first_column()) + static_cast<uint64_t>(threadIdx.x / kStep * kPerLane) * line;
    }
};

/* Which of a column's lanes this one is. */
template <typename Map> __device__ __forceinline__ uint32_t position()
{
    return threadIdx.x / Map::kStep % Map::kLanes;
}

/* The lane's own of its columns, whose two sums scatter_sums leaves in it. The bits of its position, from the second up, are those of
 * the column's number from the highest down. */
template <typename Map> __device__ __forceinline__ uint32_t own_column()
{
    static_assert(Map::kColumns >= GDN_DECODE_LEAST_COLUMNS && 2 * Map::kDepth <= Map::kLanes, "");
    uint32_t column = 0;
#pragma unroll
    for (uint32_t half = Map::kDepth / 2, bit = 2; half > 0; half /= 2, bit *= 2) {
        column += position<Map>() & bit ? half : 0;
    }
    return column;
}

/* Whether it is the first lane that has this column for its own. */
template <typename Map> __device__ __forceinline__ bool is_owner()
{
    return position<Map>() < 2 * Map::kDepth && position<Map>() % 2 == 0;
}

/* x of the lane whose own column is number `column`. */
template <typename Map> __device__ __forceinline__ float from_owner(float x, uint32_t column)
{
    uint32_t owner = 0;
#pragma unroll
    for (uint32_t half = Map::kDepth / 2, bit = 2; half > 0; half /= 2, bit *= 2) {
        owner += column & half ? bit : 0;
    }
    return __shfl_sync(0xffffffffu, x, owner * Map::kStep + threadIdx.x % Map::kStep, Map::kLanes * Map::kStep);
}

/* Sums over the lanes of a column, all on their way together. */
template <typename Map, int kCount> __device__ __forceinline__ void lane_sums(float *x)
{
#pragma unroll
    for (int step = Map::kStep; step < Map::kStep * Map::kLanes; step *= 2) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
        }
    }
}

/* The first 2 kHalf of x are summed over the lanes from kStep on. */
template <typename Map, int kHalf, int kStep> __device__ __forceinline__ void scatter(float *x)
{
    if constexpr (kHalf > 0) {
        const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
            const float given = upper ? x[i] : x[kHalf + i];
            x[i] = (upper ? x[kHalf + i] : x[i]) + __shfl_xor_sync(0xffffffffu, given, kStep);
        }
        scatter<Map, kHalf / 2, 2 * kStep>(x);
    } else if constexpr (kStep < Map::kStep * Map::kLanes) {
        x[0] += __shfl_xor_sync(0xffffffffu, x[0], kStep);
        scatter<Map, 0, 2 * kStep>(x);
    }
}

/* The same of two sums for each of the lane's columns, x being the first of each and then the second of each; returns those of its own
 * column. A step leaves a lane half of what it had, so that there are 2 kDepth exchanges or one or two more, not
 * 2 kDepth log2(kLanes). The additions are those of lane_sums. */
template <typename Map> __device__ __forceinline__ float2 scatter_sums(float (&x)[2 * Map::kDepth])
{
    scatter<Map, Map::kDepth, Map::kStep>(x);
    const float other = __shfl_xor_sync(0xffffffffu, x[0], Map::kStep);
    return position<Map>() % 2 == 0 ? make_float2(x[0], other) : make_float2(other, x[0]);
}

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

/* A lane's part of the block's columns: as they are in memory (`load`, `store`), and in float32 (`unpack`, `pack`). `at` is its first
 * element; `line` bytes lie between two lines; `columns` are there, from its first on; the L2 is to keep what is `kKept`. */
template <typename Map> struct RawColumns;

template <typename T, int K> struct RawColumns<ColumnMap<T, K>> {
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

    template <bool kKept> __device__ __forceinline__ void load(const unsigned char *at, uint32_t line, int columns)
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kApart * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    const unsigned char *const from = at + 16 * Map::kLanes * i;
                    pieces[c][i] = kKept ? load_global_16_kept(from) : load_global_16(from);
                }
            }
            at += Map::kApart * static_cast<uint64_t>(line);
        }
    }

    __device__ __forceinline__ void store(unsigned char *at, uint32_t line, int columns) const
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kApart * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    store_global_16(at + 16 * Map::kLanes * i, pieces[c][i]);
                }
            }
            at += Map::kApart * static_cast<uint64_t>(line);
        }
    }

    __device__ __forceinline__ void unpack(float (&s)[Map::kDepth][Map::kPerLane]) const
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                Piece<T>::unpack(&s[c][i * Map::kPerPiece], pieces[c][i]);
            }
        }
    }

    __device__ __forceinline__ void pack(const float (&s)[Map::kDepth][Map::kPerLane])
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                pieces[c][i] = Piece<T>::pack(&s[c][i * Map::kPerPiece]);
            }
        }
    }
};

template <int K> struct RawColumns<RowMap<K>> {
    using Map = RowMap<K>;
    uint4 pieces[Map::kPerLane];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < Map::kPerLane; ++i) {
            pieces[i] = make_uint4(0, 0, 0, 0);
        }
    }

    /* A lane's four columns are there, or none is. */
    template <bool kKept> __device__ __forceinline__ void load(const unsigned char *at, uint32_t line, int columns)
    {
        if (columns > 0) {
#pragma unroll
            for (int i = 0; i < Map::kPerLane; ++i) {
                const unsigned char *const from = at + i * static_cast<uint64_t>(line);
                pieces[i] = kKept ? load_global_16_of_line_kept(from) : load_global_16_of_line(from);
            }
        }
    }

    __device__ __forceinline__ void store(unsigned char *at, uint32_t line, int columns) const
    {
        if (columns > 0) {
#pragma unroll
            for (int i = 0; i < Map::kPerLane; ++i) {
                store_global_16(at + i * static_cast<uint64_t>(line), pieces[i]);
            }
        }
    }

    __device__ __forceinline__ void unpack(float (&s)[Map::kDepth][Map::kPerLane]) const
    {
#pragma unroll
        for (int i = 0; i < Map::kPerLane; ++i) {
            float x[4];
            Piece<float>::unpack(x, pieces[i]);
#pragma unroll
            for (int c = 0; c < Map::kDepth; ++c) {
                s[c][i] = x[c];
            }
        }
    }

    __device__ __forceinline__ void pack(const float (&s)[Map::kDepth][Map::kPerLane])
    {
#pragma unroll
        for (int i = 0; i < Map::kPerLane; ++i) {
            const float x[4] = {s[0][i], s[1][i], s[2][i], s[3][i]};
            pieces[i] = Piece<float>::pack(x);
        }
    }
};

/* A lane's part of q or k: its elements of a column, as they are in memory. */
template <typename Map, bool k16Bit> struct RawVector {
    static constexpr int kPerWord = k16Bit ? 2 : 1;
    static constexpr int kWords = Map::kPerLane / kPerWord;
    static constexpr int kPieceWords = Map::kPerPiece / kPerWord; /* that lie side by side: 2, or a multiple of 4 */
    uint32_t words[kWords];

    /* The vector's first element is at `at`. */
    __device__ __forceinline__ void load(const unsigned char *at)
    {
        const uint32_t *const first = reinterpret_cast<const uint32_t *>(at) + position<Map>() * kPieceWords;
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
