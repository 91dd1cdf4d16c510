/* The copy warps of the state_output kernel: one finds the block's items and loads their chunks, one stores O. */
#ifndef GDN_CUDA_SM90_STATE_COPY_CUH
#define GDN_CUDA_SM90_STATE_COPY_CUH

#include "state_map.cuh"
#include "wave.cuh"

#include <stddef.h>

namespace gdn
{
namespace sm90
{

/* Writes item `number` of the wave's to shared memory, if there is one: by sequence, segment, value head and tile of V, and
 * without outputs by F and E. Of a sequence that is not cut, the part in this wave is segment 0; without outputs it has no
 * items, nor has a sequence's last segment. */
template <Form kForm, typename D>
__device__ __forceinline__ bool find_item(const gdn_sm90_prefill &p, int first_seq, unsigned number, uint32_t found)
{
    /* Word by word, as they are known: the copy warp has few registers. */
    const auto put = [found](size_t word, int value) {
        store_shared_u32(found + static_cast<uint32_t>(word), static_cast<uint32_t>(value));
    };
    constexpr bool kOutput = kHasOutputs<kForm>;
    bool multiplier = false; /* E */
    if (!kOutput && !is_checkpoint_pass<D>(p)) {
        multiplier = number % 2 != 0;
        number /= 2;
    }
    const unsigned blocks = D::v_tiles(p) / kVTiles<kForm>;
    put(offsetof(Item, v_tile), number % blocks * kVTiles<kForm>);
    number /= blocks;
    put(offsetof(Item, head), number % p.num_v_heads);
    number /= p.num_v_heads;
    put(kItemSegment, static_cast<int>(number));
    if (!kOutput && is_checkpoint_pass<D>(p)) { /* a slot a segment */
        const gdn_chunk chunk = wave_of(p).chunks[number];
        put(offsetof(Item, chunks), 0);
        put(offsetof(Item, tail), chunk.length);
        put(offsetof(Item, seq), static_cast<int>(p.wave_begin + number)); /* whose state it is */
        put(offsetof(Item, token), p.equal_length ? chunk.index * GDN_SM90_CHUNK : static_cast<int>(chunk.token));
        put(offsetof(Item, row), p.equal_length ? chunk.seq : 0);
        put(offsetof(Item, source), kPlaceCaller);
        put(offsetof(Item, target), kPlaceCaller);
        put(offsetof(Item, first_slot), static_cast<int>(number));
        return chunk.length > 0;
    }
    const int seq = first_seq + static_cast<int>(number / p.max_segments);
    const int segment = static_cast<int>(number % p.max_segments);
    put(offsetof(Item, seq), seq);
    put(offsetof(Item, row), p.equal_length ? seq : 0);

    const Run run = find_run(p, wave_of(p), seq);
    if (run.first < 0) {
        return false;
    }
    const int run_end = run.index + run.count;
    int begin = run.index, end = run_end; /* chunks of the sequence */
    int length = 0; /* of its segments; 0: it is not cut */
    bool halves = false; /* what is in the wave is cut in two, and is one piece with what is before and after it */
    if (kForm != Form::kWhole && p.max_segments > 1) {
        const int chunks = sequence_chunks(p, seq);
        length = D::kAny && p.halves_only ? chunks : gdn_sm90_segment_chunks(chunks, p.num_v_heads, D::kK);
        if (length < chunks) {
            begin = segment * length;
            end = min(begin + length, chunks);
        } else {
            halves = p.halves && run.count >= 2 * GDN_SM90_MIN_HALF;
            length = halves ? (run.count + 1) / 2 : 0;
            if (halves) {
                begin += segment * length;
                end = min(begin + length, run_end);
            }
        }
    }
    const bool ends = run.last && end == run_end;
    const bool second = halves && segment > 0;
    if (begin < run.index || end > run_end || begin >= end || (length == 0 && (segment > 0 || !kOutput)) ||
        (!kOutput && (ends || second || (multiplier && (halves || begin == 0))))) {
        return false;
    }
    const int last_length = ends ? run.last_length : GDN_SM90_CHUNK;
    const bool shorter = last_length < GDN_SM90_CHUNK;
    const int skipped = begin - run.index;
    const int slot = run.first + skipped;
    put(offsetof(Item, chunks), end - begin - shorter);
    put(offsetof(Item, tail), shorter ? last_length : 0);
    put(offsetof(Item, token), p.equal_length ? begin * GDN_SM90_CHUNK : run.token + skipped * GDN_SM90_CHUNK);
    put(offsetof(Item, first_slot), slot);
    put(offsetof(Item, index), begin);
    if (kOutput) {
        const int source = begin > 0 ? (skipped == 0 ? kPlaceCarry : kPlaceF) : length > 0 ? kPlaceE : kPlaceCaller;
        put(offsetof(Item, source), source);
        put(offsetof(Item, source_entry),
            p.halves_only ? seq - first_seq : segment_entry(source == kPlaceF ? slot - length : slot));
        put(offsetof(Item, target), ends ? kPlaceCaller : length == 0 || second ? kPlaceCarry : kPlaceNone);
    } else {
        put(offsetof(Item, source), multiplier   ? kPlaceIdentity
                                    : begin == 0 ? kPlaceCaller
                                    : halves     ? kPlaceCarry
                                                 : kPlaceZero);
        put(offsetof(Item, target), multiplier ? kPlaceE : kPlaceF);
        put(offsetof(Item, target_entry), p.halves_only ? seq - first_seq : segment_entry(slot));
    }
    if (kForm == Form::kPieces) { /* not one */
        put(offsetof(Item, quiet), 0);
        put(offsetof(Item, reads), -1);
    }
    return true;
}

/* One thread: loads items' chunks into the ring. */
template <Form kForm, typename D> class StageLoader
{
  public:
    __device__ __forceinline__ StageLoader(uint32_t base, const Barriers &barriers) : base_(base), barriers_(barriers)
    {
    }

    /* The item at an address in shared memory. */
    __device__ __forceinline__ void load(const gdn_sm90_prefill &p, uint32_t found)
    {
        using S = Stage<kForm, D>;
        const Item item = read_item(found);
        const int k_head = p.tiled_heads ? item.head % p.num_k_heads : item.head / p.heads_per_group;
        /* Outside the tensor v reads as zeros, which is what E's recurrence wants. */
        const bool reads_v = (D::kPlain && kHasOutputs<kForm>) || item.target != kPlaceE;
        const int v_row = reads_v ? item.row : rows_of(p);
        const int total = item.total();
        int token = item.token;
        constexpr int64_t kRecordBytes = kWithP<D> ? GDN_SM90_RECORD_BYTES_WITH_P : GDN_SM90_RECORD_BYTES;
        const unsigned char *record =
            p.records + (static_cast<int64_t>(item.first_slot) * p.num_v_heads + item.head) * kRecordBytes;
        const unsigned char *packed = p.packed_qk + (static_cast<int64_t>(item.first_slot) * p.num_k_heads + k_head) *
                                                        static_cast<int64_t>(GDN_SM90_PACKED_BYTES(D::kK));
        for (int c = 0; c < total || c == 0; ++c) {
            const bool outputs = kHasOutputs<kForm> && (kForm != Form::kPieces || c >= item.quiet);
            const uint32_t stage = next_stage();
            const uint32_t full = this->full();
            if (c == 0) {
                copy_item(stage + S::kItem, found);
            }
            if (total == 0) {
                mbarrier_arrive(full);
            } else {
                const uint32_t record_bytes =
                    S::kApart && outputs ? gdn_sm90_record_used(p.qk_norm, p.packed_qk) : GDN_SM90_RECORD_STATE_BYTES;
                const uint32_t P_bytes = !S::kApart && outputs ? 8192 : 0;
                mbarrier_arrive_expect(full, (outputs ? S::kLoaded : S::kLoadedQuiet) + record_bytes + P_bytes);
                bulk_load(stage + S::kA, record, record_bytes, full);
                if (kForm != Form::kWhole && p.packed_qk) {
                    bulk_load(stage + S::kK, packed, D::kRowBytes, full);
                } else {
#pragma unroll(D::kPlain ? 1 : D::kKTiles)
                    for (int h = 0; h < D::kKTiles; ++h) {
                        tensor_load(stage + S::kK + h * 8192, &p.k_map, 64 * h, k_head, token, item.row, full);
                    }
                }
                /* Read again where registers are fewest. */
                const int v_tile = D::kPlain ? load_shared_u32(found + offsetof(Item, v_tile)) : item.v_tile;
                const int v0 = v_tile * GDN_SM90_TILE;
                tensor_load(stage + S::kV, &p.v_map, v0, item.head, token, v_row, full);
                if (kForm == Form::kWhole) {
                    tensor_load(stage + S::kV + 8192, &p.v_map, v0 + GDN_SM90_TILE, item.head, token, v_row, full);
                }
                if (outputs) {
                    if (!S::kApart) {
                        bulk_load(stage + S::kP, record + GDN_SM90_RECORD_P, 8192, full);
                    }
                    if (kForm != Form::kWhole && p.packed_qk) {
                        bulk_load(stage + S::kQ, packed + D::kRowBytes, D::kRowBytes, full);
                    } else {
#pragma unroll(D::kPlain ? 1 : D::kKTiles)
                        for (int h = 0; h < D::kKTiles; ++h) {
                            tensor_load(stage + S::kQ + h * 8192, &p.q_map, 64 * h, k_head, token, item.row, full);
                        }
                    }
                }
            }
            record += p.num_v_heads * kRecordBytes;
            packed += static_cast<int64_t>(p.num_k_heads) * GDN_SM90_PACKED_BYTES(D::kK);
            token += GDN_SM90_CHUNK;
            ++uses_;
        }
    }

    /* Says that there are no more items. */
    __device__ __forceinline__ void finish()
    {
        Item none = {};
        none.chunks = -1;
        store_item(next_stage() + Stage<kForm, D>::kItem, none);
        mbarrier_arrive(full());
    }

  private:
    static __device__ __forceinline__ int rows_of(const gdn_sm90_prefill &p)
    {
        return p.equal_length ? p.num_seqs : 1;
    }

    /* The barrier of the stage that next_stage gave. */
    __device__ __forceinline__ uint32_t full() const
    {
        return barriers_.full(uses_ % D::kStages);
    }

    /* Waits for the next stage to be free. */
    __device__ __forceinline__ uint32_t next_stage() const
    {
        const int stage = uses_ % D::kStages;
        if (uses_ >= D::kStages) {
            mbarrier_wait(barriers_.empty(stage), ((uses_ / D::kStages) & 1) ^ 1);
        }
        return base_ + stage * Stage<kForm, D>::kBytes;
    }

    uint32_t base_;
    Barriers barriers_;
    int uses_ = 0; /* of stages so far */
};

/* One warp: this block's items. The first has the block's number; each of the others is the next that no block has taken, so
 * that blocks with short ones take more. Items that are not there are passed over by segments: their lengths differ, and
 * numbers run to the most that a sequence may have. */
template <Form kForm, typename D>
__device__ __forceinline__ void load_items(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    using Map = StateMap<kForm, D>;
    const int lane = threadIdx.x % 32;
    const auto per_segment = [&p]() {
        const unsigned blocks = D::v_tiles(p) / kVTiles<kForm>;
        return p.num_v_heads * blocks * (kHasOutputs<kForm> || is_checkpoint_pass<D>(p) ? 1 : 2);
    };
    {
        const WaveSequences sequences = sequences_of(p, wave_of(p));
        const int segments = is_checkpoint_pass<D>(p) ? p.wave_slots : sequences.count * p.max_segments;
        if (lane == 0) {
            store_shared_u32(base + Map::kItemCount, segments * per_segment());
            store_shared_u32(base + Map::kFirstSequence, sequences.first);
        }
        __syncwarp();
    }
    StageLoader<kForm, D> loader(base, barriers);
    unsigned number = blockIdx.x;
    for (;;) {
        const unsigned items = load_shared_u32(base + Map::kItemCount);
        if (number >= items) {
            break;
        }
        /* Lane 0 looks for the item, the others for its like of the segments after it. */
        const unsigned mine = number + lane * per_segment();
        const bool there =
            mine < items && find_item<kForm, D>(p, static_cast<int>(load_shared_u32(base + Map::kFirstSequence)), mine,
                                                base + Map::kFound + lane * Map::kItemBytes);
        const unsigned found = __ballot_sync(0xffffffffu, there);
        const unsigned nearest = found != 0 ? __ffs(static_cast<int>(found)) - 1 : 32;
        if (lane == 0) {
            unsigned *const taken = p.taken + kHasOutputs<kForm>;
            if (there) {
                loader.load(p, base + Map::kFound + nearest * Map::kItemBytes); /* 0: this costs no register */
            } else if (kHasOutputs<kForm> || is_checkpoint_pass<D>(p) || number % 2 == 0) {
                /* Where F is not there, nothing of its segment is; E alone is missing of a sequence's first one. */
                const unsigned next = (load_shared_u32(base + Map::kFound + kItemSegment) + nearest) * per_segment();
                if (next > gridDim.x) {
                    atomicMax(taken, next - gridDim.x);
                }
            }
            number = gridDim.x + atomicAdd(taken, 1);
        }
        number = __shfl_sync(0xffffffffu, number, 0);
    }
    if (lane == 0) {
        loader.finish();
    }
}

/* One warp: O tiles from shared to device memory, of both buffers in turn or, where state warpgroups make them, of one tile of
 * V. Full tiles go by the copy engine; of a shorter one only its rows, since the rows after them are another sequence's. */
template <Form kForm, typename D = Usual>
__device__ __forceinline__ void store_outputs(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers,
                                              int first)
{
    using Map = StateMap<kForm, D>;
    constexpr bool kInTurn = kApart<kForm, D>;
    const int lane = threadIdx.x % 32;
    int buffer = first;
    for (uint32_t parity = 0;; parity ^= kInTurn ? buffer : 1, buffer ^= kInTurn) {
        mbarrier_wait(barriers.output(buffer), parity);
        const Output output = load_output(base + Map::kOutputs + 16 * (kInTurn ? 2 * parity + buffer : buffer));
        if (output.length < 0) {
            break;
        }
        const uint32_t tile = base + Map::kO + 8192 * buffer;
        const int head = output.tile / D::v_tiles(p);
        const int v0 = output.tile % D::v_tiles(p) * GDN_SM90_TILE;
        if (output.length == GDN_SM90_CHUNK) {
            if (lane == 0) {
                fence_proxy_async(); /* the tile was written by ordinary stores */
                tensor_store(&p.o_map, v0, head, output.token, output.row, tile);
                bulk_commit();
                bulk_wait_read();
            }
        } else {
            /* Four rows at a time, a lane a piece. */
            uint16_t *out = static_cast<uint16_t *>(p.o.data) + output.row * p.o.row_stride +
                            (output.token + lane / 8) * p.o.token_stride + head * p.o.head_stride + v0 + lane % 8 * 8;
#pragma unroll 1
            for (int row = lane / 8; row < output.length; row += 4) {
                *reinterpret_cast<uint4 *>(out) = load_shared_16(tile + swizzled(row, lane % 8));
                out += 4 * p.o.token_stride;
            }
        }
        __syncwarp();
        warp_arrive(barriers.output_free(buffer), lane);
    }
    if (lane == 0) {
        bulk_wait();
    }
}

} // namespace sm90
} // namespace gdn

#endif
