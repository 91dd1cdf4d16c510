/* Shared memory and barriers of the state_output kernel, and the words its warps pass on. */
#ifndef GDN_CUDA_SM90_STATE_MAP_CUH
#define GDN_CUDA_SM90_STATE_MAP_CUH

#include "dims.cuh"
#include "ptx.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kStages = 3; /* at most */
constexpr int kOutputWords = 4; /* places for Outputs */
constexpr uint32_t kBarrierCount = 2 * kStages + 8; /* struct Barriers */

/* The kernels made of these parts. */
enum class Form {
    kStateOnly, /* a tile of V, no outputs */
    kHalf, /* a tile of V, P by a warpgroup of its own; not both K and V are 128, or checkpoints lie inside chunks */
    kPieces, /* the same of 128 x 128, where several blocks may have a sequence's outputs between them: pieces_kernel.cuh */
    kWhole, /* two tiles of V of K = 256, each one's state warpgroup making its outputs: less work in all */
    kFused /* the same, and prep in a warpgroup beside them: fused_kernel.cuh */
};

template <Form kForm> constexpr bool kHasOutputs = kForm != Form::kStateOnly;
template <Form kForm>
constexpr int kVTiles = kForm == Form::kWhole || kForm == Form::kFused ? 2 : 1; /* of 64 columns of V */

/* P is made in the block, apart from the states, and goes to them through shared memory. */
template <Form kForm, typename D>
constexpr bool kApart = (kForm == Form::kHalf && !D::kPlain) || kForm == Form::kPieces;

/* P is in the record; otherwise the score warpgroup makes it. */
template <typename D> constexpr bool kWithP = D::kPlain;

/* Of state_only: a wave of checkpoints' own chunks. */
template <typename D> __device__ __forceinline__ bool is_checkpoint_pass(const gdn_sm90_prefill &p)
{
    return D::kAny && p.checkpoint_pass;
}

/* One stage: a chunk's operands, from a multiple of 1024 bytes on. Without outputs there is neither Q nor what follows the
 * state's part of the record. */
template <Form kForm, typename D = Usual> struct Stage {
    static constexpr bool kOutput = kHasOutputs<kForm>;
    static constexpr uint32_t kK = 0; /* swizzled tiles of 64 x 64 */
    static constexpr uint32_t kKPitch = 8192; /* from tile to tile */
    static constexpr uint32_t kV = kK + D::kRowBytes; /* a tile, or two */
    static constexpr uint32_t kA = kV + 8192 * kVTiles<kForm>; /* the record */
    static constexpr uint32_t kP = kA + GDN_SM90_RECORD_P; /* with P */
    static constexpr uint32_t kDecayK = kA + GDN_SM90_RECORD_DECAY_K;
    static constexpr uint32_t kDecayEnd = kA + GDN_SM90_RECORD_DECAY_END;
    static constexpr uint32_t kDecayQ = kA + GDN_SM90_RECORD_DECAY_Q;
    static constexpr uint32_t kEnd = kA + GDN_SM90_RECORD_END;
    static constexpr bool kApart = sm90::kApart<kForm, D>;
    static constexpr uint32_t kHead = kApart ? 11264 : 9216; /* of the record, all but P, and the item */
    static constexpr uint32_t kItem = kA + kHead - 64; /* Item, with an item's first chunk */
    static constexpr uint32_t kQ = kA + kHead + (kOutput && !kApart ? 8192 : 0);
    static constexpr uint32_t kBytes = kQ + (kOutput ? D::kRowBytes : 0);
    /* What is loaded, but for the record. */
    static constexpr uint32_t kLoadedQuiet = D::kRowBytes + 8192 * kVTiles<kForm>;
    static constexpr uint32_t kLoaded = kLoadedQuiet + (kOutput ? D::kRowBytes : 0);
};

template <Form kForm, typename D = Usual> struct StateMap {
    static constexpr uint32_t kP = D::kStages * Stage<kForm, D>::kBytes; /* two buffers of P, 64 x 64 */
    static constexpr uint32_t kO =
        kP + (kApart<kForm, D> ? 2 * 8192 : 0); /* two tiles of O, 64 x 64: buffers, or of two tiles of V */
    static constexpr uint32_t kOutputs = kO + (kHasOutputs<kForm> ? 2 * 8192 : 0); /* Output of each of them */
    static constexpr uint32_t kItems = kOutputs + kOutputWords * 16; /* each state warp's current Item */
    static constexpr uint32_t kItemBytes = 64;
    static constexpr uint32_t kFound = kItems + 8 * kItemBytes; /* the copy warp's Items, one a lane */
    static constexpr uint32_t kItemCount = kFound + 32 * kItemBytes; /* the wave's, and their first sequence */
    static constexpr uint32_t kFirstSequence = kItemCount + 4;
    static constexpr uint32_t kBarriers = kItemCount + 8;
    static constexpr uint32_t kBytes = kBarriers + 8 * kBarrierCount;
};

template <Form kForm, typename D> constexpr bool kStageFits()
{
    using S = Stage<kForm, D>;
    static_assert(S::kBytes % 1024 == 0 && S::kA % 1024 == 0 && S::kQ % 1024 == 0, "tiles are swizzled by address");
    static_assert(S::kItem % 16 == 0 &&
                      S::kItem >= S::kA + (S::kApart ? GDN_SM90_RECORD_USED : GDN_SM90_RECORD_STATE_BYTES),
                  "the copy engine leaves the item alone");
    return StateMap<kForm, D>::kBytes + 1024 <= 232448; /* what a block of sm_90 may have */
}
static_assert(2 * (StateMap<Form::kStateOnly>::kBytes + 1024 + 1024) <= 228 * 1024, "two blocks a multiprocessor");

/* Lanes that arrive for their warp. Lane 0 does, once all of them are there (__syncwarp, or an aligned instruction), and for
 * the accesses of all. racecheck of compute-sanitizer takes an arrival for those of its own thread alone: in a build for
 * it, every lane arrives for itself, and it must find nothing. */
#ifdef GDN_SM90_RACECHECK
constexpr uint32_t kArrivingLanes = 32;
#else
constexpr uint32_t kArrivingLanes = 1;
#endif

/* A warp arrives. */
__device__ __forceinline__ void warp_arrive(uint32_t barrier, int lane)
{
    if (kArrivingLanes == 32 || lane == 0) {
        mbarrier_arrive(barrier);
    }
}

/* Arrivals are one a warp, except the copy thread's own. Numbers count chunks (stages: stage uses), from 0. */
struct Barriers {
    uint32_t base;

    /* A stage's operands are there; 1 and the bytes. */
    __device__ __forceinline__ uint32_t full(int stage) const
    {
        return base + 8 * stage;
    }
    /* The consumers are done with a stage; 4 a warpgroup of them. */
    __device__ __forceinline__ uint32_t empty(int stage) const
    {
        return base + 8 * (kStages + stage);
    }
    /* O of a chunk is in shared memory, in a buffer or of a tile of V; 4. */
    __device__ __forceinline__ uint32_t output(int buffer) const
    {
        return base + 8 * (2 * kStages + buffer);
    }
    /* O of a chunk has left it; 1. */
    __device__ __forceinline__ uint32_t output_free(int buffer) const
    {
        return base + 8 * (2 * kStages + 2 + buffer);
    }

    /* P of a chunk is in shared memory, and so is its Output; 4. */
    __device__ __forceinline__ uint32_t scores(int buffer) const
    {
        return base + 8 * (2 * kStages + 4 + buffer);
    }
    /* P of a chunk has been read, and the O of two chunks before has left; 4. */
    __device__ __forceinline__ uint32_t scores_free(int buffer) const
    {
        return base + 8 * (2 * kStages + 6 + buffer);
    }

    /* One thread; `consumers` are warps. */
    __device__ __forceinline__ void init(int consumers) const
    {
        for (int stage = 0; stage < kStages; ++stage) {
            mbarrier_init(full(stage), 1);
            mbarrier_init(empty(stage), consumers * kArrivingLanes);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(output(buffer), 4 * kArrivingLanes);
            mbarrier_init(output_free(buffer), kArrivingLanes);
            mbarrier_init(scores(buffer), 4 * kArrivingLanes);
            mbarrier_init(scores_free(buffer), 4 * kArrivingLanes);
        }
        fence_mbarrier_init();
    }
};

/* The next stage of the ring and the parity of its use. */
struct StageCursor {
    int stage = 0;
    uint32_t parity = 0;

    template <typename D = Usual> __device__ __forceinline__ void advance()
    {
        ++stage;
        if (stage == D::kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
    template <Form kForm, typename D = Usual> __device__ __forceinline__ uint32_t address(uint32_t base) const
    {
        return base + stage * Stage<kForm, D>::kBytes;
    }
};

/* Where a state comes from and goes to. */
enum StatePlace : int {
    kPlaceNone, /* to nowhere */
    kPlaceZero,
    kPlaceIdentity,
    kPlaceCaller, /* the initial or the final state */
    kPlaceCarry, /* between waves */
    kPlacePassed, /* between two blocks that have parts of an item */
    kPlaceF, /* between segments */
    kPlaceE /* a segment's E; for a sequence's first segment, which has none, its initial state */
};

/* One (segment, value head, one or two tiles of V) of the wave; where a sequence is not cut, all its chunks there are the
 * segment. The copy warp writes it into the item's first stage. */
struct Item {
    int chunks; /* full ones; -1: no more items */
    int tail; /* tokens of a last, shorter chunk; 0: none. An empty sequence has neither */
    int seq;
    int head;
    int v_tile; /* the first */
    int token, row; /* tensor map coordinates of the first token */
    int source; /* a StatePlace */
    int source_entry; /* of a segment, for kPlaceF and kPlaceE, or in passed_states */
    int target;
    int target_entry;
    int first_slot; /* of the wave; -1 where there is no such item */
    int index; /* which chunk of its sequence the first one is */
    int quiet; /* of a piece: its first chunks, whose outputs others have */
    int reads; /* of a piece: place in gdn_sm90_prefill's; -1: none */
    int awaited; /* of a piece: others that read the initial state before this one's state takes its place */

    __device__ __forceinline__ int total() const
    {
        return chunks + (tail > 0);
    }
};

static_assert(sizeof(Item) == 16 * 4, "the words of an item in shared memory, in this order");
constexpr size_t kItemSegment =
    13 * 4; /* in place of `quiet` while it is looked for: its segment's number in the wave */

__device__ __forceinline__ void store_item(uint32_t address, const Item &item)
{
    store_shared_16(address, make_uint4(item.chunks, item.tail, item.seq, item.head));
    store_shared_16(address + 16, make_uint4(item.v_tile, item.token, item.row, item.source));
    store_shared_16(address + 32, make_uint4(item.source_entry, item.target, item.target_entry, item.first_slot));
    store_shared_16(address + 48, make_uint4(item.index, 0, 0, 0));
}

/* The same, and what only a piece has. */
__device__ __forceinline__ void store_piece(uint32_t address, const Item &item)
{
    store_item(address, item);
    store_shared_16(address + 48, make_uint4(item.index, item.quiet, item.reads, item.awaited));
}

__device__ __forceinline__ Item read_item(uint32_t address)
{
    const uint4 a = load_shared_16(address);
    const uint4 b = load_shared_16(address + 16);
    const uint4 c = load_shared_16(address + 32);
    Item item;
    item.chunks = static_cast<int>(a.x);
    item.tail = static_cast<int>(a.y);
    item.seq = static_cast<int>(a.z);
    item.head = static_cast<int>(a.w);
    item.v_tile = static_cast<int>(b.x);
    item.token = static_cast<int>(b.y);
    item.row = static_cast<int>(b.z);
    item.source = static_cast<int>(b.w);
    item.source_entry = static_cast<int>(c.x);
    item.target = static_cast<int>(c.y);
    item.target_entry = static_cast<int>(c.z);
    item.first_slot = static_cast<int>(c.w);
    const uint4 d = load_shared_16(address + 48);
    item.index = static_cast<int>(d.x);
    item.quiet = static_cast<int>(d.y);
    item.reads = static_cast<int>(d.z);
    item.awaited = static_cast<int>(d.w);
    return item;
}

/* An item's counts, equal in all lanes; the shuffle lets the compiler know. */
struct ItemCounts {
    int chunks, tail, index;

    __device__ __forceinline__ int total() const
    {
        return chunks + (tail > 0);
    }
};

__device__ __forceinline__ ItemCounts read_counts(uint32_t address)
{
    const uint4 a = load_shared_16(address);
    const uint4 d = load_shared_16(address + 48);
    return {__shfl_sync(0xffffffffu, static_cast<int>(a.x), 0), __shfl_sync(0xffffffffu, static_cast<int>(a.y), 0),
            __shfl_sync(0xffffffffu, static_cast<int>(d.x), 0)};
}

__device__ __forceinline__ int read_quiet(uint32_t address)
{
    return __shfl_sync(0xffffffffu, static_cast<int>(load_shared_16(address + 48).y), 0);
}

/* One thread; a word after the other, since copy warps have few registers. */
__device__ __forceinline__ void copy_item(uint32_t to, uint32_t from)
{
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        store_shared_16(to + 16 * i, load_shared_16(from + 16 * i));
    }
}

/* What the storing warp must know of the tile in an O buffer: 16 bytes. */
struct Output {
    int tile; /* of V, counted over all heads */
    int token, row;
    int length; /* rows to write; -1: no more tiles */
};

__device__ __forceinline__ void store_output(uint32_t address, const Output &output)
{
    store_shared_16(address, make_uint4(output.tile, output.token, output.row, output.length));
}

__device__ __forceinline__ Output load_output(uint32_t address)
{
    const uint4 x = load_shared_16(address);
    return {static_cast<int>(x.x), static_cast<int>(x.y), static_cast<int>(x.z), static_cast<int>(x.w)};
}

} // namespace sm90
} // namespace gdn

#endif
