/* The fused kernel's items: their order, and the warp that loads their chunks. O is stored by those of state_copy.cuh. */
#ifndef GDN_CUDA_SM90_FUSED_COPY_CUH
#define GDN_CUDA_SM90_FUSED_COPY_CUH

#include "fused_map.cuh"
#include "state_copy.cuh"

namespace gdn
{
namespace sm90
{

/* Bounds of a sequence, as the caller gave them: they may be wrong ones, of a sequence that has no chunks. */
struct Span {
    int64_t begin, length;
};

__device__ __forceinline__ Span span_of(const gdn_sm90_prefill &p, int seq)
{
    if (p.equal_length) {
        return {seq * p.row_length, p.row_length};
    }
    const int64_t begin = load_index(p.cu_seqlens, p.cu_seqlens_dtype, seq);
    return {begin, load_index(p.cu_seqlens, p.cu_seqlens_dtype, seq + 1) - begin};
}

__device__ __forceinline__ int load_shared_int(uint32_t address)
{
    return static_cast<int>(__float_as_uint(load_shared_float(address)));
}

/* Whether a block has items to choose between, and can sort them. */
__device__ __forceinline__ bool sorts_sequences(const gdn_sm90_prefill &p)
{
    return p.share == 0 && !p.equal_length && p.num_seqs > 1 && p.num_seqs <= kMostSorted &&
           static_cast<int64_t>(p.num_seqs) * p.num_v_heads > gridDim.x;
}

/* All threads, before anything else: which sequence is the n-th longest. The lengths pass through the records' memory. */
__device__ __forceinline__ void sort_sequences(const gdn_sm90_prefill &p, uint32_t base)
{
    const uint32_t lengths = base + StateMap<Form::kFused>::kRecords;
    for (int seq = threadIdx.x; seq < p.num_seqs; seq += blockDim.x) {
        store_shared_u32(lengths + 4 * seq, static_cast<uint32_t>(span_of(p, seq).length));
    }
    __syncthreads();
    for (int seq = threadIdx.x; seq < p.num_seqs; seq += blockDim.x) {
        const int mine = load_shared_int(lengths + 4 * seq);
        int before = 0;
        for (int other = 0; other < p.num_seqs; ++other) {
            const int length = load_shared_int(lengths + 4 * other);
            before += length > mine || (length == mine && other < seq);
        }
        store_shared_u32(base + StateMap<Form::kFused>::kOrder + 4 * before, static_cast<uint32_t>(seq));
    }
    __syncthreads();
}

/* One warp: where in the table, which is sorted by sequence, a sequence's chunks start; -1: it has none, that is, it is not to
 * be computed. */
__device__ __forceinline__ int find_slot(const gdn_sm90_prefill &p, int seq, const Span &span)
{
    const int lane = threadIdx.x % 32;
    const int slots = p.wave_slots;
    /* Where it starts if none before it is skipped and few of them have shorter last chunks. */
    const int64_t guess =
        p.equal_length ? seq * max((p.row_length + kRows - 1) / kRows, int64_t{1}) : span.begin / kRows;
    int low = static_cast<int>(min(max(guess, int64_t{0}), static_cast<int64_t>(slots)));
    bool starts = false;
    if (low + lane < slots) {
        const gdn_chunk probe = p.chunks[low + lane];
        starts = probe.seq == seq && probe.index == 0;
    }
    const unsigned hits = __ballot_sync(0xffffffffu, starts);
    if (hits != 0) {
        return low + __ffs(static_cast<int>(hits)) - 1;
    }
    /* The first slot that is not of a sequence before it lies in low .. high; unused slots are the last ones. */
    low = 0;
    int high = slots;
    while (low < high) {
        const int step = (high - low + 31) / 32;
        const int at = low + lane * step;
        const int found = at < high ? p.chunks[at].seq : seq;
        const unsigned before = __ballot_sync(0xffffffffu, found >= 0 && found < seq);
        const int count = __popc(before); /* probes that are before it */
        if (count == 0) {
            high = low;
        } else {
            high = min(high, low + count * step);
            low += (count - 1) * step + 1;
        }
    }
    return low < slots && p.chunks[low].seq == seq ? low : -1;
}

/* Takes the next item, the longest sequences' first, and hands it to the loading warp; without more items, an end mark.
 * `number` counts the block's items. The first has the block's number; each of the others is taken when nothing of the one before is
 * left to load, so that a block whose items are short takes more of them. */
__device__ __forceinline__ bool find_item(const gdn_sm90_prefill &p, uint32_t base, const FusedBarriers &barriers,
                                          int number)
{
    using Map = StateMap<Form::kFused>;
    const int lane = threadIdx.x % 32;
    const int items = p.num_seqs * p.num_v_heads;
    bool there = false;
    int taken = blockIdx.x, seq = 0, first_slot = -1;
    Span span = {0, 0};
    if (number > 0) {
        mbarrier_wait(barriers.found_free(), (number - 1) & 1);
    }
    for (bool given = number == 0; !there; given = false) {
        if (!given) {
            if (lane == 0) {
                taken = gridDim.x + atomicAdd(p.next_item, 1);
            }
            taken = __shfl_sync(0xffffffffu, taken, 0);
        }
        if (taken >= items) {
            break;
        }
        seq = taken / p.num_v_heads;
        if (sorts_sequences(p)) {
            seq = load_shared_int(base + Map::kOrder + 4 * seq);
        }
        span = span_of(p, seq);
        first_slot = p.planned ? p.runs[seq].first : find_slot(p, seq, span);
        there = first_slot >= 0;
    }
    if (lane == 0) {
        Item item = {};
        item.chunks = there ? static_cast<int>(span.length / kRows) : -1;
        item.tail = there ? static_cast<int>(span.length % kRows) : 0;
        item.seq = seq;
        item.head = taken % p.num_v_heads;
        item.token = p.equal_length ? 0 : static_cast<int>(span.begin);
        item.row = p.equal_length ? seq : 0;
        item.source = kPlaceCaller;
        item.target = kPlaceCaller;
        item.first_slot = first_slot;
        store_item(base + Map::kFound, item);
        mbarrier_arrive(barriers.found());
    }
    __syncwarp();
    return there;
}

/* One warp: the part of a sequence's item for `head` from chunk `from` up to `to`, if there is any of it; whether there is. The first
 * of two parts leaves its state in the entry of its block, the other takes it from there. Word by word, as they are known: there are
 * few registers. */
__device__ __forceinline__ bool find_part(const gdn_sm90_prefill &p, uint32_t found, int seq, int head, int from,
                                          int to, int block)
{
    const auto put = [found](size_t word, int value) {
        store_shared_u32(found + static_cast<uint32_t>(word), static_cast<uint32_t>(value));
    };
    const Span span = span_of(p, seq);
    const int first_slot = p.runs[seq].first;
    const int length = static_cast<int>(span.length);
    const int total = (length + kRows - 1) / kRows;
    if (first_slot < 0 || (from > 0 && from >= total)) {
        return false;
    }
    const bool last = to >= total;
    put(offsetof(Item, chunks), (last ? length / kRows : to) - from);
    put(offsetof(Item, tail), last ? length % kRows : 0);
    put(offsetof(Item, seq), seq);
    put(offsetof(Item, head), head);
    put(offsetof(Item, token), (p.equal_length ? 0 : static_cast<int>(span.begin)) + from * kRows);
    put(offsetof(Item, row), p.equal_length ? seq : 0);
    put(offsetof(Item, source), from > 0 ? kPlacePassed : kPlaceCaller);
    put(offsetof(Item, source_entry), block - 1);
    put(offsetof(Item, target), last ? kPlaceCaller : kPlacePassed);
    put(offsetof(Item, target_entry), block);
    put(offsetof(Item, first_slot), first_slot + from);
    put(offsetof(Item, index), from);
    return true;
}

/* One warp: the items of a block where all are shared out evenly. Items lie one after the other on a line, each as long as the
 * longest, and block n has `share` chunks of it from n share on. It takes its items from the line's end to its start, so that an
 * item's first chunks are the first of one block, and what is left of them the last of the next one, which waits for the state.
 * As blocks take their numbers when they begin, what one waits for has begun. */
__device__ __forceinline__ void find_shares(const gdn_sm90_prefill &p, uint32_t base, const FusedBarriers &barriers)
{
    const uint32_t found = base + StateMap<Form::kFused>::kFound;
    const int lane = threadIdx.x % 32;
    const int block = __shfl_sync(0xffffffffu, lane == 0 ? atomicAdd(p.next_item, 1) : 0, 0);
    int end = min((block + 1) * p.share, p.num_seqs * p.num_v_heads * p.item_chunks);
    const int last = (end - 1) / p.item_chunks; /* item */
    int seq = last / p.num_v_heads, head = last % p.num_v_heads, start = last * p.item_chunks;
    uint32_t parity = 1;
#pragma unroll 1
    while (end > block * p.share) {
        mbarrier_wait(barriers.found_free(), parity); /* at once for the first */
        if (find_part(p, found, seq, head, max(block * p.share - start, 0), end - start, block)) {
            parity ^= 1;
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(barriers.found());
            }
        }
        end = start;
        start -= p.item_chunks;
        head = head > 0 ? head - 1 : p.num_v_heads - 1;
        seq -= head == p.num_v_heads - 1;
    }
    mbarrier_wait(barriers.found_free(), parity);
    if (lane == 0) { /* no more */
        store_shared_u32(found + offsetof(Item, chunks), ~0u);
        store_shared_u32(found + offsetof(Item, tail), 0);
        mbarrier_arrive(barriers.found());
    }
    __syncwarp();
}

/* One warp: finds items until there are none. It waits for the gates kernel for all: nothing of what that leaves is read before an
 * item is found, and the block does not end before. */
__device__ __forceinline__ void find_items(const gdn_sm90_prefill &p, uint32_t base, const FusedBarriers &barriers)
{
    wait_for_kernel_before();
    if (p.share > 0) {
        find_shares(p, base, barriers);
        return;
    }
    for (int n = 0; find_item(p, base, barriers, n); ++n) {
    }
}

/* One thread: loads items' chunks into the ring. */
__device__ __forceinline__ void load_found_items(const gdn_sm90_prefill &p, uint32_t base,
                                                 const FusedBarriers &barriers)
{
    using Map = StateMap<Form::kFused>;
    using S = Stage<Form::kFused>;
    const uint32_t found = base + Map::kFound;
    StageCursor cursor;
    for (int n = 0;; ++n) {
        mbarrier_wait(barriers.found(), n & 1);
        const Item item = read_item(found);
        const int k_head = p.tiled_heads ? item.head % p.num_k_heads : item.head / p.heads_per_group;
        const int total = item.total();
        const unsigned char *gates =
            p.records + (static_cast<int64_t>(item.first_slot) * p.num_v_heads + item.head) * PrepMap::kGatesBytes;
        int token = item.token;
        for (int c = 0; c < total || c == 0; ++c) {
            const uint32_t stage = cursor.address<Form::kFused>(base);
            const uint32_t full = barriers.full(cursor.stage);
            mbarrier_wait(barriers.empty(cursor.stage), cursor.parity ^ 1); /* at once in the first round */
            if (c == 0) {
                copy_item(stage_item(base, cursor), found);
            }
            if (total <= 0 || item.chunks < 0) {
                mbarrier_arrive(full);
            } else {
                mbarrier_arrive_expect(full, S::kLoaded + PrepMap::kGatesBytes);
                bulk_load(gates_of_stage(base, cursor.stage), gates, PrepMap::kGatesBytes, full);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int x = half * GDN_SM90_TILE;
                    tensor_load(stage + S::kK + half * S::kKPitch, &p.k_map, x, k_head, token, item.row, full);
                    tensor_load(stage + S::kQ + half * S::kKPitch, &p.q_map, x, k_head, token, item.row, full);
                    tensor_load(stage + S::kV + half * 8192, &p.v_map, x, item.head, token, item.row, full);
                }
            }
            gates += static_cast<int64_t>(p.num_v_heads) * PrepMap::kGatesBytes;
            token += GDN_SM90_CHUNK;
            cursor.advance();
        }
        if (item.chunks < 0) {
            break;
        }
        mbarrier_arrive(barriers.found_free());
    }
}

} // namespace sm90
} // namespace gdn

#endif
