/* The state kernel's copy warps: operands from memory to shared memory ahead of use, O from there to memory. */
#ifndef GDN_CUDA_FUSED_PREFILL_COPY_CUH
#define GDN_CUDA_FUSED_PREFILL_COPY_CUH

#include "fused_prefill_run.cuh"

namespace gdn
{
namespace
{

/* Queues this copy thread's pieces of 64 rows; rows from `length` on become zeros and are not read. */
template <int K>
__device__ __forceinline__ void load_rows(uint32_t tile, const uint16_t *rows, int64_t token_stride, int length,
                                          int thread)
{
    constexpr int kPieces = WideTile<K>::kPieces;
    constexpr int kRowsAtOnce = kCopyThreads / kPieces;
    const int piece = thread % kPieces;
    const int first = thread / kPieces;
    const uint16_t *source = rows + first * token_stride + piece * 8;
#pragma unroll
    for (int pass = 0; pass < kChunk / kRowsAtOnce; ++pass) {
        const int row = first + pass * kRowsAtOnce;
        cp_async_16(tile + WideTile<K>::offset(row, piece), source, row < length);
        source += kRowsAtOnce * token_stride;
    }
}

/* What one copy thread needs to know of a run. It moves the same pieces of V in and of O out, so that only its own
 * program order keeps a new V from overtaking the O that lies there. */
template <int K> struct Copier {
    const uint16_t *k, *q, *v;
    uint16_t *o;
    const unsigned char *record;
    NarrowTile v_tile;
    int thread;

    __device__ __forceinline__ int length_of(const Run &run, int i) const
    {
        return i == run.count - 1 ? run.last_length : kChunk;
    }

    __device__ __forceinline__ void load_operands(const gdn_fused_prefill &p, const Run &run, int i,
                                                  uint32_t stage) const
    {
        const int length = length_of(run, i);
        const int64_t row = static_cast<int64_t>(i) * kChunk;
        if (p.packed_qk) {
            const int64_t step = static_cast<int64_t>(p.num_k_heads) * 2 * kChunk * K;
            load_rows<K>(stage, k + i * step, K, kChunk, thread);
            load_rows<K>(stage + StageMap<K>::kQ, q + i * step, K, kChunk, thread);
        } else {
            load_rows<K>(stage, k + row * p.k.token_stride, p.k.token_stride, length, thread);
            load_rows<K>(stage + StageMap<K>::kQ, q + row * p.q.token_stride, p.q.token_stride, length, thread);
        }
        const unsigned char *const source =
            record + static_cast<int64_t>(i) * p.num_v_heads * static_cast<int64_t>(GDN_FUSED_RECORD);
#pragma unroll
        for (int pass = 0; pass < (GDN_FUSED_STAGED / 16 + kCopyThreads - 1) / kCopyThreads; ++pass) {
            const int piece = thread + pass * kCopyThreads;
            if (piece < GDN_FUSED_STAGED / 16) {
                cp_async_16(stage + StageMap<K>::record(p.warps) + 16 * piece, source + 16 * piece, true);
            }
        }
    }

    __device__ __forceinline__ void load_values(const gdn_fused_prefill &p, const Run &run, int i, uint32_t stage) const
    {
        const int length = length_of(run, i);
        const uint16_t *const rows = v + static_cast<int64_t>(i) * kChunk * p.v.token_stride;
#pragma unroll 2
        for (int j = thread; j < kChunk << v_tile.log2_pieces; j += kCopyThreads) {
            const int row = j >> v_tile.log2_pieces;
            const int piece = j - (row << v_tile.log2_pieces);
            cp_async_16(stage + StageMap<K>::kV + v_tile.offset(row, piece), rows + row * p.v.token_stride + piece * 8,
                        row < length);
        }
    }

    /* Writes O of chunk i, which lies where its V was. */
    __device__ __forceinline__ void store_outputs(const gdn_fused_prefill &p, const Run &run, int i,
                                                  uint32_t stage) const
    {
        const int length = length_of(run, i);
        uint16_t *const rows = o + static_cast<int64_t>(i) * kChunk * p.o.token_stride;
#pragma unroll 2
        for (int j = thread; j < kChunk << v_tile.log2_pieces; j += kCopyThreads) {
            const int row = j >> v_tile.log2_pieces;
            const int piece = j - (row << v_tile.log2_pieces);
            const uint4 x = load_shared_16(stage + StageMap<K>::kV + v_tile.offset(row, piece));
            if (row < length) {
                *reinterpret_cast<uint4 *>(rows + row * p.o.token_stride + piece * 8) = x;
            }
        }
    }
};

/* Waits until chunk c's loads, the oldest of `stages` - 1 groups under way, are there. */
__device__ __forceinline__ void wait_for_stage(int stages)
{
    if (stages == 2) {
        cp_async_wait<0>();
    } else if (stages == 3) {
        cp_async_wait<1>();
    } else {
        cp_async_wait<2>();
    }
}

/* The copy warps' side of a run. */
template <int K>
__device__ __forceinline__ void copy_run(const gdn_fused_prefill &p, const Run &run, uint32_t smem,
                                         const NarrowTile &v_tile)
{
    Copier<K> copier;
    copier.thread = threadIdx.x - 32 * p.warps;
    copier.v_tile = v_tile;
    if (p.packed_qk) {
        copier.k = static_cast<const uint16_t *>(p.packed_qk) +
                   (static_cast<int64_t>(run.first_slot) * p.num_k_heads + run.k_head) * 2 * kChunk * K;
        copier.q = copier.k + kChunk * K;
    } else {
        copier.k = static_cast<const uint16_t *>(p.k.data) + run_base(p, p.k, run) + run.k_head * p.k.head_stride;
        copier.q = static_cast<const uint16_t *>(p.q.data) + run_base(p, p.q, run) + run.k_head * p.q.head_stride;
    }
    copier.v = static_cast<const uint16_t *>(p.v.data) + run_base(p, p.v, run) + run.head * p.v.head_stride + run.v0;
    copier.o = static_cast<uint16_t *>(p.o.data) + run_base(p, p.o, run) + run.head * p.o.head_stride + run.v0;
    copier.record = p.records + (static_cast<int64_t>(run.first_slot) * p.num_v_heads + run.head) * GDN_FUSED_RECORD;

    const uint32_t stage_bytes = StageMap<K>::bytes(p.warps);
    const int stages = p.stages;
    for (int i = 0; i < stages - 1; ++i) {
        if (i < run.count) {
            copier.load_operands(p, run, i, smem + i * stage_bytes);
            copier.load_values(p, run, i, smem + i * stage_bytes);
        }
        cp_async_commit();
    }
    int here = 0; /* stage of chunk c */
    int before = stages - 1; /* of chunk c - 1, and of chunk c - 1 + stages */
    for (int c = 0; c <= run.count; ++c) {
        if (stages > 1 && c < run.count) {
            wait_for_stage(stages);
            barrier_arrive(loads_barrier(here), block_threads(p));
        }
        if (c > 0) {
            barrier_sync(uses_barrier(before), block_threads(p));
        }
        const uint32_t stage = smem + before * stage_bytes;
        const int next = c - 1 + stages;
        if (next < run.count) {
            copier.load_operands(p, run, next, stage);
        }
        if (c > 0) {
            copier.store_outputs(p, run, c - 1, stage);
        }
        if (next < run.count) {
            copier.load_values(p, run, next, stage);
        }
        cp_async_commit();
        if (stages == 1 && c < run.count) {
            cp_async_wait<0>();
            barrier_arrive(loads_barrier(here), block_threads(p));
        }
        before = here;
        here = here + 1 == stages ? 0 : here + 1;
    }
}

} // namespace
} // namespace gdn

#endif
