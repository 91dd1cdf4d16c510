/* Hopper prefill, between state_only and state_output: the state that each segment of a cut sequence starts from.
 *
 *     S_(n+1) = E_n S_n + F_n, from segment to segment; S_1 = F_0, which began at the sequence's real state
 *
 * in float32. One block has 8 or 16 columns of V of one (sequence, value head); the next E is loaded while one is used.
 * S_(n+1) replaces F_n. E is stored transposed, [K, K], S and F as states, [V, K].
 */
#ifndef GDN_CUDA_SM90_JOIN_KERNEL_CUH
#define GDN_CUDA_SM90_JOIN_KERNEL_CUH

#include "ptx.cuh"
#include "wave.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kJoinThreads = 256;

/* For head dims kDim x kDim. */
template <int kColumns, int kDim> struct JoinMap {
    static constexpr int kPieces = kDim > 128 ? 4 : 1; /* of E's rows: two of them must fit */
    static constexpr int kPieceRows = kDim / kPieces;
    static constexpr uint32_t kEBytes = kPieceRows * kDim * 4;
    static constexpr uint32_t kE = 0; /* two buffers */
    static constexpr uint32_t kS = kE + 2 * kEBytes; /* float[kColumns][kDim] */
    static constexpr uint32_t kBarriers = kS + kColumns * kDim * 4; /* E has arrived */
    static constexpr uint32_t kBytes = kBarriers + 16;
};

/* The segments of one sequence that join in a wave. */
struct Joints {
    int first_slot;
    int length; /* chunks of a segment */
    int count; /* segments to join: not the first one where the sequence starts here, not its last */
    bool starts, ends;
};

__device__ __forceinline__ Joints find_joints(const gdn_sm90_prefill &p, const Wave &wave, int seq)
{
    Joints joints = {0, 0, -1, false, false};
    const Run run = find_run(p, wave, seq);
    if (run.first < 0) {
        return joints;
    }
    const int chunks = sequence_chunks(p, seq);
    joints.length = gdn_sm90_segment_chunks(chunks, p.num_v_heads, p.head_k_dim);
    if (joints.length >= chunks) {
        return joints;
    }
    joints.starts = run.index == 0;
    joints.ends = run.last != 0;
    joints.first_slot = run.first + (joints.starts ? joints.length : 0);
    const int segments = (run.count + joints.length - 1) / joints.length;
    joints.count = segments - joints.starts - joints.ends;
    return joints;
}

template <int kDim>
__device__ __forceinline__ float *entry_of(const gdn_sm90_prefill &p, float *data, int slot, int head)
{
    return data + (static_cast<int64_t>(segment_entry(slot)) * p.num_v_heads + head) * (kDim * kDim);
}

/* Piece `m`, counted over all E of the sequence. */
template <int kColumns, int kDim>
__device__ __forceinline__ void load_E(const gdn_sm90_prefill &p, const Joints &joints, int m, int head, uint32_t base,
                                       int buffer)
{
    using Map = JoinMap<kColumns, kDim>;
    const uint32_t barrier = base + Map::kBarriers + 8 * buffer;
    const float *const E = entry_of<kDim>(p, p.segment_E, joints.first_slot + m / Map::kPieces * joints.length, head);
    mbarrier_arrive_expect(barrier, Map::kEBytes);
    bulk_load(base + Map::kE + buffer * Map::kEBytes, E + m % Map::kPieces * (Map::kEBytes / 4), Map::kEBytes, barrier);
}

template <int kColumns, int kDim>
__global__ void __launch_bounds__(kJoinThreads, 1) join_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    using Map = JoinMap<kColumns, kDim>;
    constexpr int kHeadBlocks = kDim / kColumns; /* of a head */
    constexpr int kMine = kColumns * kDim / kJoinThreads; /* columns of a thread */
    const uint32_t base = shared_memory_base();
    const int k = threadIdx.x % kDim;
    const int v_first = threadIdx.x / kDim * kMine;
    if (threadIdx.x == 0) {
        mbarrier_init(base + Map::kBarriers, 1);
        mbarrier_init(base + Map::kBarriers + 8, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    const Wave wave = wave_of(p);
    const WaveSequences sequences = sequences_of(p, wave);
    const int64_t items = static_cast<int64_t>(sequences.count) * p.num_v_heads * kHeadBlocks;
    uint32_t parity = 0; /* bit b: of buffer b */
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int block = static_cast<int>(item % kHeadBlocks);
        const int head = static_cast<int>(item / kHeadBlocks % p.num_v_heads);
        const int seq = sequences.first + static_cast<int>(item / kHeadBlocks / p.num_v_heads);
        const Joints joints = find_joints(p, wave, seq);
        if (joints.count < 0 || (joints.count == 0 && joints.ends)) {
            continue;
        }
        /* Element (v, k) of this thread's columns, from (v_first, k) on. */
        const int64_t at = static_cast<int64_t>(block * kColumns + v_first) * kDim + k;
        if (threadIdx.x == 0) {
            for (int m = 0; m < joints.count * Map::kPieces && m < 2; ++m) {
                load_E<kColumns, kDim>(p, joints, m, head, base, m);
            }
        }
        const float *const start = joints.starts
                                       ? entry_of<kDim>(p, p.segment_F, joints.first_slot - joints.length, head)
                                       : p.carry_in + static_cast<int64_t>(head) * kDim * kDim;
        float S[kMine];
#pragma unroll
        for (int v = 0; v < kMine; ++v) {
            S[v] = start[at + v * kDim];
        }
        float f[kMine];
        const int pieces = joints.count * Map::kPieces;
        for (int m = 0; m < pieces; ++m) {
            const int n = m / Map::kPieces, piece = m % Map::kPieces, buffer = m % 2;
            float *const F = entry_of<kDim>(p, p.segment_F, joints.first_slot + n * joints.length, head) + at;
            if (piece == 0) {
#pragma unroll
                for (int v = 0; v < kMine; ++v) {
                    store_shared_float(base + Map::kS + 4 * ((v_first + v) * kDim + k), S[v]);
                    f[v] = F[v * kDim];
                    S[v] = 0.0f;
                }
                __syncthreads();
            }
            mbarrier_wait(base + Map::kBarriers + 8 * buffer, parity >> buffer & 1);
            parity ^= 1u << buffer;
            const uint32_t E = base + Map::kE + buffer * Map::kEBytes + 4 * k;
#pragma unroll 4
            for (int i = 0; i < Map::kPieceRows; i += 4) {
                float e[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    e[j] = load_shared_float(E + 4 * (i + j) * kDim);
                }
#pragma unroll
                for (int v = 0; v < kMine; ++v) {
                    const uint4 s =
                        load_shared_16(base + Map::kS + 4 * ((v_first + v) * kDim + piece * Map::kPieceRows + i));
                    S[v] = fmaf(__uint_as_float(s.x), e[0], S[v]);
                    S[v] = fmaf(__uint_as_float(s.y), e[1], S[v]);
                    S[v] = fmaf(__uint_as_float(s.z), e[2], S[v]);
                    S[v] = fmaf(__uint_as_float(s.w), e[3], S[v]);
                }
            }
            if (piece == Map::kPieces - 1) {
#pragma unroll
                for (int v = 0; v < kMine; ++v) {
                    S[v] += f[v];
                    F[v * kDim] = S[v];
                }
            }
            __syncthreads(); /* E and S have been read */
            if (threadIdx.x == 0 && m + 2 < pieces) {
                load_E<kColumns, kDim>(p, joints, m + 2, head, base, buffer);
            }
        }
        if (!joints.ends) {
            float *const carry = p.carry_out + static_cast<int64_t>(head) * kDim * kDim + at;
#pragma unroll
            for (int v = 0; v < kMine; ++v) {
                carry[v * kDim] = S[v];
            }
        }
    }
#endif
}

} // namespace sm90
} // namespace gdn

#endif
