/* The copy warps of the state_output kernel: one finds the block's items and loads their chunks, one stores O. */
#ifndef GDN_CUDA_SM90_STATE_COPY_CUH
#define GDN_CUDA_SM90_STATE_COPY_CUH

#include "state_map.cuh"

namespace gdn
{
namespace sm90
{

/* An item as a lane finds it. */
struct FoundItem {
    int seq;
    int first; /* slot in the wave; -1: the sequence has no chunks in it */
    int count;
    int index; /* of the first chunk in its sequence */
    int token; /* of the first chunk */
    int last_length;
    int last;
};

__device__ __forceinline__ FoundItem find_item(const gdn_sm90_prefill &p, int seq)
{
    const gdn_chunk *const chunks = p.chunks + p.wave_begin;
    FoundItem found = {seq, -1, 0, 0, 0, 0, 0};
    const gdn_sm90_run run = p.runs[seq];
    if (run.first < 0 || run.end <= run.first || run.end > p.wave_slots) {
        return found;
    }
    const gdn_chunk first = chunks[run.first];
    const gdn_chunk last = chunks[run.end - 1];
    const bool begins = run.first == 0 || chunks[run.first - 1].seq != seq;
    const bool ends = run.end == p.wave_slots || chunks[run.end].seq != seq;
    if (first.seq != seq || last.seq != seq || !begins || !ends) {
        return found; /* an entry that an earlier wave left */
    }
    found.first = run.first;
    found.count = run.end - run.first;
    found.index = first.index;
    found.token = static_cast<int>(first.token);
    found.last_length = last.length;
    found.last = last.last;
    return found;
}

__device__ __forceinline__ int k_head_of(const gdn_sm90_prefill &p, int head)
{
    return p.tiled_heads ? head % p.num_k_heads : head / p.heads_per_group;
}

/* Waits for the next stage to be free; `cursor` runs from the first use of stage 0. */
__device__ __forceinline__ void wait_empty(const Barriers &barriers, const StageCursor &cursor, bool first_round)
{
    if (!first_round) {
        mbarrier_wait(barriers.empty(cursor.stage), cursor.parity ^ 1);
    }
}

/* One thread: loads an item's chunks into the ring. */
struct StageLoader {
    StageCursor cursor;
    int uses = 0; /* stages filled so far, up to kStages */

    __device__ __forceinline__ uint32_t next(uint32_t base, const Barriers &barriers)
    {
        wait_empty(barriers, cursor, uses < kStages);
        uses += uses < kStages;
        return cursor.address(base);
    }

    __device__ __forceinline__ void load_item(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers,
                                              const Item &item, int first_slot)
    {
        const int k_head = k_head_of(p, item.head);
        const int total = item.total();
        const unsigned char *record =
            p.records + (static_cast<int64_t>(first_slot) * p.num_v_heads + item.head) *
                            static_cast<int64_t>(GDN_SM90_RECORD_BYTES);
        for (int c = 0; c < total || c == 0; ++c) {
            const uint32_t stage = next(base, barriers);
            const uint32_t full = barriers.full(cursor.stage);
            if (c == 0) {
                store_item(stage, item);
            }
            if (total == 0) {
                mbarrier_arrive(full);
            } else {
                const int token = item.token + c * GDN_SM90_CHUNK;
                mbarrier_arrive_expect(full, Stage::kLoaded);
                tensor_load(stage + Stage::kK, &p.k_map, 0, k_head, token, item.row, full);
                tensor_load(stage + Stage::kK + 8192, &p.k_map, 64, k_head, token, item.row, full);
                tensor_load(stage + Stage::kV, &p.v_map, item.half * GDN_SM90_HALF, item.head, token, item.row, full);
                bulk_load(stage + Stage::kRecord, record, GDN_SM90_RECORD_USED, full);
                tensor_load(stage + Stage::kQ, &p.q_map, 0, k_head, token, item.row, full);
                tensor_load(stage + Stage::kQ + 8192, &p.q_map, 64, k_head, token, item.row, full);
                record += static_cast<int64_t>(p.num_v_heads) * GDN_SM90_RECORD_BYTES;
            }
            cursor.advance();
        }
    }

    __device__ __forceinline__ void finish(uint32_t base, const Barriers &barriers)
    {
        const uint32_t stage = next(base, barriers);
        store_item(stage, {-1, 0, 0, 0, 0, 0, 0, 0});
        mbarrier_arrive(barriers.full(cursor.stage));
    }
};

/* One warp: this block's items, in order of sequence, value head and half; every lane looks for one, then one lane loads
 * those that are there. */
__device__ __forceinline__ void load_items(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    const int lane = threadIdx.x % 32;
    StageLoader loader;
    const int first_seq = p.chunks[p.wave_begin].seq;
    if (first_seq >= 0) {
        const int last_seq = p.chunks[p.wave_begin + p.wave_slots - 1].seq; /* -1: the wave is not full */
        const int64_t per_seq = 2 * static_cast<int64_t>(p.num_v_heads);
        const int64_t items = (last_seq >= 0 ? last_seq + 1 - first_seq : p.num_seqs - first_seq) * per_seq;
        for (int64_t from = blockIdx.x; from < items; from += 32 * static_cast<int64_t>(gridDim.x)) {
            const int64_t mine = from + lane * static_cast<int64_t>(gridDim.x);
            FoundItem found = {0, -1, 0, 0, 0, 0, 0};
            if (mine < items) {
                found = find_item(p, first_seq + static_cast<int>(mine / per_seq));
            }
            unsigned there = __ballot_sync(0xffffffffu, found.first >= 0);
            while (there != 0) {
                const int source = __ffs(static_cast<int>(there)) - 1;
                there &= there - 1;
                const int head_half =
                    static_cast<int>((from + source * static_cast<int64_t>(gridDim.x)) % per_seq);
                const int seq = __shfl_sync(0xffffffffu, found.seq, source);
                const int first = __shfl_sync(0xffffffffu, found.first, source);
                const int count = __shfl_sync(0xffffffffu, found.count, source);
                const int index = __shfl_sync(0xffffffffu, found.index, source);
                const int token = __shfl_sync(0xffffffffu, found.token, source);
                const int last_length = __shfl_sync(0xffffffffu, found.last_length, source);
                const int last = __shfl_sync(0xffffffffu, found.last, source);
                if (lane == 0) {
                    Item item;
                    item.chunks = last_length == GDN_SM90_CHUNK ? count : count - 1;
                    item.tail = last_length == GDN_SM90_CHUNK ? 0 : last_length;
                    item.seq = seq;
                    item.head = head_half / 2;
                    item.half = head_half % 2;
                    item.token = p.equal_length ? index * GDN_SM90_CHUNK : token;
                    item.row = p.equal_length ? seq : 0;
                    item.flags = (index == 0 ? Item::kStarts : 0) | (last ? Item::kEnds : 0);
                    loader.load_item(p, base, barriers, item, first);
                }
                __syncwarp();
            }
        }
    }
    if (lane == 0) {
        loader.finish(base, barriers);
    }
}

/* One warp: O tiles from shared to device memory. Full ones by the copy engine; of a shorter one only its rows, since the
 * rows after them are another sequence's. */
__device__ __forceinline__ void store_outputs(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    const int lane = threadIdx.x % 32;
    uint32_t parity = 0;
    for (int buffer = 0;; buffer ^= 1) {
        mbarrier_wait(barriers.output(buffer), parity);
        const Output output = load_output(base + StateMap::kOutputs + 16 * buffer);
        if (output.length < 0) {
            break;
        }
        const uint32_t tile = base + StateMap::kO + 8192 * buffer;
        const int head = output.head_half / 2;
        const int v0 = output.head_half % 2 * GDN_SM90_HALF;
        if (output.length == GDN_SM90_CHUNK) {
            if (lane == 0) {
                tensor_store(&p.o_map, v0, head, output.token, output.row, tile);
                bulk_commit();
                bulk_wait_read();
            }
        } else {
            uint16_t *const rows = static_cast<uint16_t *>(p.o.data) + output.row * p.o.row_stride +
                                   output.token * p.o.token_stride + head * p.o.head_stride + v0;
            for (int i = lane; i < 8 * output.length; i += 32) {
                *reinterpret_cast<uint4 *>(rows + i / 8 * p.o.token_stride + i % 8 * 8) =
                    load_shared_16(tile + swizzled(i / 8, i % 8));
            }
        }
        __syncwarp();
        if (lane == 0) {
            mbarrier_arrive(barriers.output_free(buffer));
        }
        parity ^= buffer;
    }
    if (lane == 0) {
        bulk_wait();
    }
}

} // namespace sm90
} // namespace gdn

#endif
