/* Hopper prefill, first kernel: what a chunk needs that does not depend on the state.
 *
 * For the value heads of one key head, on one chunk (letters of docs/algorithm.md):
 *
 *     L  = StrictLower(B (D o K K^T))     D_ij = exp(G_i - G_j)
 *     A' = (I + L)^-1 B                   P = scale D o Q K^T
 *
 * A block is one warpgroup and works off jobs (chunk, key head, up to four value heads of it). K K^T and Q K^T are computed
 * once a job and stay in registers; the tiles are free as soon as they are done, and the next job's are loaded into them.
 *
 *     job:   warps 0..3     gates of value head `warp`, two tokens a lane
 *            warpgroup      K K^T, Q K^T (and Q Q^T, for its diagonal) by wgmma; rows' norms from the diagonals
 *            --- barrier; next tiles are loaded
 *     head:  warp w         row block w of L to shared memory; X_ww = (I + L_ww)^-1, 16 x 16, by substitution in float32
 *            --- barrier
 *            warp w         X_iw = -X_ii sum_k L_ik X_kw for i > w: block column w of A'; row block w of P
 *            warps 2, 3     the decay factors
 *            --- barrier; the record leaves by one bulk copy
 *
 * The inverse sees the decay, so its entries stay small wherever the recurrence itself does. Block merges take float16
 * operands (range 65504, 11 bits) where |k_i|^2 and beta_i |k_i|^2 bound the entries by about 2, which normalised keys do,
 * and TF32 ones otherwise: a choice by the chunk's own data. Substitution inside 16 rows and merges never form powers of L.
 */
#ifndef GDN_CUDA_SM90_PREP_KERNEL_CUH
#define GDN_CUDA_SM90_PREP_KERNEL_CUH

#include "plan_pieces.cuh"
#include "prep_head.cuh"

namespace gdn
{
namespace sm90
{

/* Normalises both tiles where they lie, rounded, rows past the chunk's length becoming zeros, and writes them as they are
 * to packed_qk: float16 has not the range to leave this to the factors of later sums. */
template <typename T, int kHeadK>
__device__ __forceinline__ void pack_tiles(const gdn_sm90_prefill &p, const PrepJob &job, uint32_t base)
{
    using Tiles = PrepTiles<kHeadK>;
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int g = lane / 4, t = lane % 4;
    float k_square[2], q_square[2];
    square_rows<T, kHeadK>(k_square, base + Tiles::kK, warp, lane);
    square_rows<T, kHeadK>(q_square, base + Tiles::kQ, warp, lane);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        if (t == g / 2) {
            store_shared_float(base + PrepMap::kKFactor + at, norm_factor(k_square[e], p.qk_norm, p.qk_norm_eps));
            store_shared_float(base + PrepMap::kQFactor + at, norm_factor(q_square[e], p.qk_norm, p.qk_norm_eps));
        }
    }
    __syncthreads();
    constexpr int kTilePieces = Tiles::kRowBytes / 16;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * kTilePieces; i += kPrepThreads) {
        const bool is_q = i >= kTilePieces;
        const int row = i / 8 % kRows; /* eight pieces a row of a tile */
        const float factor = load_shared_float(base + (is_q ? PrepMap::kQFactor : PrepMap::kKFactor) + 4 * row);
        const uint32_t at = base + 16 * i + (is_q ? Tiles::kQ - Tiles::kRowBytes : Tiles::kK);
        const uint4 v = load_shared_16(at);
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float2 x = unpack2<T>(words[e]);
            words[e] = row < job.length ? pack2<T>(x.x * factor, x.y * factor) : 0;
        }
        store_shared_16(at, make_uint4(words[0], words[1], words[2], words[3]));
    }
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0 && job.first_head == 0) {
        unsigned char *const packed = p.packed_qk + (static_cast<int64_t>(job.slot) * p.num_k_heads + job.k_head) *
                                                        static_cast<int64_t>(GDN_SM90_PACKED_BYTES(kHeadK));
        bulk_store(packed, base + Tiles::kK, Tiles::kRowBytes);
        bulk_store(packed + Tiles::kRowBytes, base + Tiles::kQ, Tiles::kRowBytes);
        bulk_commit();
    }
}

/* K K^T and, with P, Q K^T of normalised rows, the latter times scale, and zero in rows and columns past the chunk's length.
 * Also leaves the rows' factors and squares in shared memory. Has the block's barrier after which the tiles are free. */
template <typename T, int kHeadK>
__device__ __forceinline__ void compute_grams(const gdn_sm90_prefill &p, int length, uint32_t base, float (&kk)[32],
                                              float (&qk)[32])
{
    using Tiles = PrepTiles<kHeadK>;
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int g = lane / 4, t = lane % 4;
    const int norm = p.packed_qk ? GDN_QK_NORM_NONE : p.qk_norm; /* packed tiles are normalised ones */
    float q_square[2] = {0.0f, 0.0f};
    wgmma_fence();
    multiply_tiles<T, kHeadK>(kk, base + Tiles::kK, base + Tiles::kK);
    if (Tiles::kWithP) {
        multiply_tiles<T, kHeadK>(qk, base + Tiles::kQ, base + Tiles::kK);
    }
    wgmma_commit();
    wgmma_wait<0>();
    if (norm != GDN_QK_NORM_NONE) {
        square_rows<T, kHeadK>(q_square, base + Tiles::kQ, warp, lane);
    }
    store_row_factors(p, norm, length, base, warp, lane, kk, q_square);
    if (p.packed_qk && threadIdx.x == 0) {
        bulk_wait_read(); /* the tiles have left */
    }
    __syncthreads();

    float k_row[2], q_row[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        k_row[e] = load_shared_float(base + PrepMap::kKFactor + at);
        q_row[e] = load_shared_float(base + PrepMap::kQFactor + at);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float2 column = load_shared_float2(base + PrepMap::kKFactor + 4 * (8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float factor = c % 2 ? column.y : column.x;
            kk[4 * n + c] *= k_row[c / 2] * factor;
            if (Tiles::kWithP) {
                qk[4 * n + c] *= q_row[c / 2] * factor;
            }
        }
    }
    if (length < kRows) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const bool inside = 16 * warp + g + 8 * (c / 2) < length && 8 * n + 2 * t + c % 2 < length;
                kk[4 * n + c] = inside ? kk[4 * n + c] : 0.0f;
                if (Tiles::kWithP) {
                    qk[4 * n + c] = inside ? qk[4 * n + c] : 0.0f;
                }
            }
        }
    }
}

/* The slots of each sequence in the wave. */
__device__ __forceinline__ void store_runs(const gdn_sm90_prefill &p, const Wave &wave)
{
    const gdn_chunk *const chunks = wave.chunks;
    for (int slot = blockIdx.x * kPrepThreads + threadIdx.x; slot < wave.slots; slot += job_blocks(p) * kPrepThreads) {
        const int seq = chunks[slot].seq;
        if (seq >= 0) {
            if (slot == 0 || chunks[slot - 1].seq != seq) {
                p.runs[seq].first = slot;
            }
            if (slot == wave.slots - 1 || chunks[slot + 1].seq != seq) {
                p.runs[seq].end = slot + 1;
            }
        }
    }
}

template <typename T, int kHeadK>
__global__ void __launch_bounds__(kPrepThreads, PrepTiles<kHeadK>::kPerMultiprocessor)
    prep_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    using Tiles = PrepTiles<kHeadK>;
    const uint32_t base = shared_memory_base() - Tiles::kK;
    const uint32_t record = base + Tiles::kRecord;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(base + PrepMap::kBarrier, 1);
        mbarrier_init(base + PrepMap::kQBarrier, 1);
        fence_mbarrier_init();
    }
    /* Blocks above the diagonal of A' and P are never written again; nor is the record's padding. */
    for (uint32_t at = 16 * threadIdx.x; at < Tiles::kRecordBytes; at += 16 * kPrepThreads) {
        store_shared_16(record + at, make_uint4(0, 0, 0, 0));
    }
    __syncthreads();

    const Wave wave = wave_of(p);
    if (static_cast<int>(blockIdx.x) == job_blocks(p)) {
        plan_pieces(p, wave, record);
        return;
    }
    PrepJob job = find_job(p, wave, blockIdx.x);
    RawGates raw = load_gates(p, job, warp);
    if (threadIdx.x == 0 && job.number >= 0) {
        load_tiles<kHeadK>(p, job, base);
        load_Q<kHeadK>(p, job, base);
    }
    uint32_t parity = 0;
    while (job.number >= 0) {
        if (warp < job.count) {
            compute_gates<T>(p, job, warp, raw, base + PrepMap::kGates + warp * PrepMap::kGatesBytes, lane);
        }
        float kk[32], qk[32];
        mbarrier_wait(base + PrepMap::kBarrier, parity);
        if (loads_Q<kHeadK>(p)) {
            mbarrier_wait(base + PrepMap::kQBarrier, parity);
        }
        parity ^= 1;
        if (std::is_same<T, __half>::value && p.packed_qk) {
            pack_tiles<T, kHeadK>(p, job, base);
        }
        const PrepJob next = find_job(p, wave, job.number + job_blocks(p));
        compute_grams<T, kHeadK>(p, job.length, base, kk, qk);
        if (threadIdx.x == 0 && next.number >= 0) {
            load_tiles<kHeadK>(p, next, base);
        }
        raw = load_gates(p, next, warp);

        for (int h = 0; h < job.count; ++h) {
            const uint32_t gates = base + PrepMap::kGates + h * PrepMap::kGatesBytes;
            const bool half = fits_half<T>(base, gates, lane);
            if (half) {
                store_lower<T, HalfBlocks>(kk, base, gates, warp, lane);
                __syncwarp();
                invert_diagonal<HalfBlocks>(base, warp, lane);
            } else {
                store_lower<T, Tf32Blocks>(kk, base, gates, warp, lane);
                __syncwarp();
                invert_diagonal<Tf32Blocks>(base, warp, lane);
            }
            if (threadIdx.x == 0) {
                bulk_wait_read(); /* the record before this one has left */
            }
            __syncthreads();
            if (half) {
                merge_column<T, HalfBlocks>(base, record, gates, warp, lane);
            } else {
                merge_column<T, Tf32Blocks>(base, record, gates, warp, lane);
            }
            if (Tiles::kWithP) {
                store_P<T>(qk, record, gates, warp, lane);
            } else if (warp >= 1) {
                store_P_gates(base, record, gates, threadIdx.x - 32);
            }
            if (warp >= 2) {
                store_decays(base, record, gates, threadIdx.x - 64);
            }
            fence_proxy_async();
            __syncthreads();
            if (threadIdx.x == 0) {
                unsigned char *const out =
                    p.records + (static_cast<int64_t>(job.slot) * p.num_v_heads + value_head(p, job, h)) *
                                    static_cast<int64_t>(Tiles::kRecordBytes);
                bulk_store(out, record,
                           Tiles::kWithP ? Tiles::kRecordBytes : gdn_sm90_record_used(p.qk_norm, p.packed_qk));
                bulk_commit();
                if (h == job.count - 1 && next.number >= 0) {
                    load_Q<kHeadK>(p, next, base);
                }
            }
        }
        job = next;
    }
    store_runs(p, wave);
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) {
            p.taken[0] = 0;
            p.taken[1] = 0;
        }
        bulk_wait();
    }
#endif
}

} // namespace sm90
} // namespace gdn

#endif
