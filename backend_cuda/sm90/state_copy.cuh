/* The copy warps of the state_output kernel: one finds the block's items and loads their chunks, one stores O. */
#ifndef GDN_CUDA_SM90_STATE_COPY_CUH
#define GDN_CUDA_SM90_STATE_COPY_CUH

#include "state_map.cuh"
#include "wave.cuh"

namespace gdn
{
namespace sm90
{

/* What a lane of the copy warp finds: an item, and the slot of its first chunk. */
struct FoundItem {
    Item item;
    int first_slot; /* in the wave; -1: there is no such item */
};

/* Item `number` of the wave's: by sequence, segment, value head and half, and without outputs by F and E. Of a sequence that
 * is not cut, the part in this wave is segment 0; without outputs it has no items, nor has a sequence's last segment. */
template <bool kOutput>
__device__ __forceinline__ FoundItem find_item(const gdn_sm90_prefill &p, const Wave &wave, int first_seq,
                                               int64_t number)
{
    FoundItem found = {};
    Item &item = found.item;
    found.first_slot = -1;
    bool multiplier = false; /* E */
    if (!kOutput) {
        multiplier = number % 2 != 0;
        number /= 2;
    }
    item.half = static_cast<int>(number % 2);
    item.head = static_cast<int>(number / 2 % p.num_v_heads);
    number = number / 2 / p.num_v_heads;
    item.seq = first_seq + static_cast<int>(number / p.max_segments);
    const int segment = static_cast<int>(number % p.max_segments);

    const Run run = find_run(p, wave, item.seq);
    if (run.first < 0) {
        return found;
    }
    const int run_end = run.index + run.count;
    int begin = run.index, end = run_end; /* chunks of the sequence */
    int length = 0; /* of its segments; 0: it is not cut */
    if (p.max_segments > 1) {
        const int chunks = sequence_chunks(p, item.seq);
        length = gdn_sm90_segment_chunks(chunks, p.num_v_heads, p.halves);
        if (length < chunks) {
            begin = segment * length;
            end = min(begin + length, chunks);
        } else {
            length = 0;
        }
    }
    const bool ends = run.last && end == run_end;
    if (begin < run.index || end > run_end || begin >= end || (length == 0 && (segment > 0 || !kOutput)) ||
        (!kOutput && (ends || (multiplier && begin == 0)))) {
        return found;
    }
    const int skipped = begin - run.index;
    found.first_slot = run.first + skipped;
    const int last_length = ends ? run.last_length : GDN_SM90_CHUNK;
    item.tail = last_length < GDN_SM90_CHUNK ? last_length : 0;
    item.chunks = last_length < GDN_SM90_CHUNK ? end - begin - 1 : end - begin;
    item.token = p.equal_length ? begin * GDN_SM90_CHUNK : run.token + skipped * GDN_SM90_CHUNK;
    item.row = p.equal_length ? item.seq : 0;
    if (kOutput) {
        if (begin == 0) {
            item.source = length > 0 ? kPlaceE : kPlaceCaller;
            item.source_entry = segment_entry(found.first_slot);
        } else {
            item.source = skipped == 0 ? kPlaceCarry : kPlaceF;
            item.source_entry = segment_entry(found.first_slot - length);
        }
        item.target = ends ? kPlaceCaller : length > 0 ? kPlaceNone : kPlaceCarry;
    } else {
        item.source = multiplier ? kPlaceIdentity : begin == 0 ? kPlaceCaller : kPlaceZero;
        item.target = multiplier ? kPlaceE : kPlaceF;
        item.target_entry = segment_entry(found.first_slot);
    }
    return found;
}

__device__ __forceinline__ FoundItem broadcast(const FoundItem &found, int lane)
{
    FoundItem result;
    result.first_slot = __shfl_sync(0xffffffffu, found.first_slot, lane);
    result.item.chunks = __shfl_sync(0xffffffffu, found.item.chunks, lane);
    result.item.tail = __shfl_sync(0xffffffffu, found.item.tail, lane);
    result.item.seq = __shfl_sync(0xffffffffu, found.item.seq, lane);
    result.item.head = __shfl_sync(0xffffffffu, found.item.head, lane);
    result.item.half = __shfl_sync(0xffffffffu, found.item.half, lane);
    result.item.token = __shfl_sync(0xffffffffu, found.item.token, lane);
    result.item.row = __shfl_sync(0xffffffffu, found.item.row, lane);
    result.item.source = __shfl_sync(0xffffffffu, found.item.source, lane);
    result.item.source_entry = __shfl_sync(0xffffffffu, found.item.source_entry, lane);
    result.item.target = __shfl_sync(0xffffffffu, found.item.target, lane);
    result.item.target_entry = __shfl_sync(0xffffffffu, found.item.target_entry, lane);
    return result;
}

__device__ __forceinline__ int k_head_of(const gdn_sm90_prefill &p, int head)
{
    return p.tiled_heads ? head % p.num_k_heads : head / p.heads_per_group;
}

/* One thread: loads items' chunks into the ring. */
template <bool kOutput> class StageLoader
{
  public:
    __device__ __forceinline__ StageLoader(uint32_t base, const Barriers &barriers) : base_(base), barriers_(barriers)
    {
    }

    __device__ __forceinline__ void load(const gdn_sm90_prefill &p, const FoundItem &found)
    {
        using S = Stage<kOutput>;
        const Item &item = found.item;
        const int total = item.total();
        const int k_head = p.tiled_heads ? item.head % p.num_k_heads : item.head / p.heads_per_group;
        /* Outside the tensor v reads as zeros, which is what E's recurrence wants. */
        const int v_row = item.target == kPlaceE ? wave_rows(p) : item.row;
        const int v0 = item.half * GDN_SM90_HALF;
        const unsigned char *record = p.records + (static_cast<int64_t>(found.first_slot) * p.num_v_heads + item.head) *
                                                      static_cast<int64_t>(GDN_SM90_RECORD_BYTES);
        if (total == 0) {
            const uint32_t stage = next_stage();
            store_item(stage + S::kItem, item);
            mbarrier_arrive(barriers_.full(cursor_.stage));
            cursor_.advance();
        }
        for (int c = 0; c < total; ++c) {
            const uint32_t stage = next_stage();
            const uint32_t full = barriers_.full(cursor_.stage);
            const int token = item.token + c * GDN_SM90_CHUNK;
            if (c == 0) {
                store_item(stage + S::kItem, item);
            }
            mbarrier_arrive_expect(full, S::kLoaded);
            tensor_load(stage + S::kK, &p.k_map, 0, k_head, token, item.row, full);
            tensor_load(stage + S::kK + 8192, &p.k_map, 64, k_head, token, item.row, full);
            tensor_load(stage + S::kV, &p.v_map, v0, item.head, token, v_row, full);
            if (kOutput) {
                bulk_load(stage + S::kA, record, GDN_SM90_RECORD_USED, full);
                tensor_load(stage + S::kQ, &p.q_map, 0, k_head, token, item.row, full);
                tensor_load(stage + S::kQ + 8192, &p.q_map, 64, k_head, token, item.row, full);
            } else {
                bulk_load(stage + S::kA, record + GDN_SM90_RECORD_A, 8192, full);
                bulk_load(stage + S::kDecays, record + GDN_SM90_RECORD_DECAY_K, S::kDecayBytes, full);
            }
            record += static_cast<int64_t>(p.num_v_heads) * GDN_SM90_RECORD_BYTES;
            cursor_.advance();
        }
    }

    /* Says that there are no more items. */
    __device__ __forceinline__ void finish()
    {
        Item none = {};
        none.chunks = -1;
        store_item(next_stage() + Stage<kOutput>::kItem, none);
        mbarrier_arrive(barriers_.full(cursor_.stage));
    }

  private:
    static __device__ __forceinline__ int wave_rows(const gdn_sm90_prefill &p)
    {
        return p.equal_length ? p.num_seqs : 1;
    }

    /* Waits for the next stage to be free. */
    __device__ __forceinline__ uint32_t next_stage()
    {
        if (fresh_ > 0) {
            --fresh_;
        } else {
            mbarrier_wait(barriers_.empty(cursor_.stage), cursor_.parity ^ 1);
        }
        return cursor_.address<kOutput>(base_);
    }

    uint32_t base_;
    Barriers barriers_;
    StageCursor cursor_;
    int fresh_ = kStages; /* stages that have never been used */
};

/* One warp: this block's items; every lane looks for one, then one lane loads those that are there. */
template <bool kOutput>
__device__ __forceinline__ void load_items(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    const int lane = threadIdx.x % 32;
    const Wave wave = wave_of(p);
    const WaveSequences sequences = sequences_of(p, wave);
    const int64_t items = static_cast<int64_t>(sequences.count) * p.max_segments * p.num_v_heads * (kOutput ? 2 : 4);
    const int64_t stride = gridDim.x;
    StageLoader<kOutput> loader(base, barriers);
    for (int64_t from = blockIdx.x; from < items; from += 32 * stride) {
        const int64_t mine = from + lane * stride;
        FoundItem found = {};
        found.first_slot = -1;
        if (mine < items) {
            found = find_item<kOutput>(p, wave, sequences.first, mine);
        }
        unsigned there = __ballot_sync(0xffffffffu, found.first_slot >= 0);
        while (there != 0) {
            const int finder = __ffs(static_cast<int>(there)) - 1;
            there &= there - 1;
            const FoundItem next = broadcast(found, finder);
            if (lane == 0) {
                loader.load(p, next);
            }
            __syncwarp();
        }
    }
    if (lane == 0) {
        loader.finish();
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
        const Output output = load_output(base + StateMap<true>::kOutputs + 16 * buffer);
        if (output.length < 0) {
            break;
        }
        const uint32_t tile = base + StateMap<true>::kO + 8192 * buffer;
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
