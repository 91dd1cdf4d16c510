/* Shared memory and barriers of the fused kernel, from a multiple of 1024 bytes on:
 *
 *     0         3 x 49,152            2 x 17,408       16,384   20,480                     3 x 1008 1,536
 *     | stages: 2 x (K 8192 Q 8192) V 16384 | records: A' P decays | O | diagonal lower inverse | gates | row factors | words
 */
#ifndef GDN_CUDA_SM90_FUSED_MAP_CUH
#define GDN_CUDA_SM90_FUSED_MAP_CUH

#include "prep_job.cuh"
#include "state_map.cuh"

namespace gdn
{
namespace sm90
{

template <> struct Stage<Form::kFused> {
    /* Halves of 64 columns, of K and of Q in turn, so that K and Q together are a tile of 128 rows, too. */
    static constexpr uint32_t kK = 0;
    static constexpr uint32_t kQ = kK + 8192;
    static constexpr uint32_t kKPitch = 16384;
    static constexpr uint32_t kV = 2 * kKPitch; /* two 64 x 64 tiles */
    static constexpr uint32_t kBytes = kV + 16384;
    static constexpr uint32_t kLoaded = kBytes;
};

constexpr int kRecordBuffers = 2;
constexpr int kMostSorted = 512; /* sequences that a block sorts by length */

template <> struct StateMap<Form::kFused> {
    static constexpr uint32_t kRecords = kStages * Stage<Form::kFused>::kBytes;
    static constexpr uint32_t kO = kRecords + kRecordBuffers * GDN_SM90_RECORD_BYTES_WITH_P; /* a tile a half of V */
    static constexpr uint32_t kScratch = kO + 2 * 8192; /* PrepMap's, from kDiagonal to kGates */
    static constexpr uint32_t kGates = kScratch + PrepMap::kGates - PrepMap::kDiagonal;
    static constexpr uint32_t kFactors = kGates + kStages * PrepMap::kGatesBytes; /* of two chunks */
    static constexpr uint32_t kFactorsBytes = PrepMap::kBarrier - PrepMap::kKFactor;
    static constexpr uint32_t kItemBytes = 64;
    static constexpr uint32_t kStageItems = kFactors + 2 * kFactorsBytes; /* Item, with an item's first chunk */
    static constexpr uint32_t kItems = kStageItems + kStages * kItemBytes; /* each state warp's current Item */
    static constexpr uint32_t kFound = kItems + 8 * kItemBytes; /* the Item on its way to the loading warp */
    static constexpr uint32_t kOutputs = kFound + kItemBytes; /* Output of each O tile */
    static constexpr uint32_t kOrder = kOutputs + 2 * 16; /* sequences, the longest first: int[kMostSorted] */
    static constexpr uint32_t kBarriers = kOrder + 4 * kMostSorted;
    static constexpr uint32_t kBytes = kBarriers + 8 * (kBarrierCount + kRecordBuffers + 2);
};

/* The Item that comes with an item's first chunk. */
__device__ __forceinline__ uint32_t stage_item(uint32_t base, const StageCursor &cursor)
{
    return base + StateMap<Form::kFused>::kStageItems + cursor.stage * StateMap<Form::kFused>::kItemBytes;
}

/* HeadGates of the chunk in a stage. */
__device__ __forceinline__ uint32_t gates_of_stage(uint32_t base, int stage)
{
    return base + StateMap<Form::kFused>::kGates + stage * PrepMap::kGatesBytes;
}

static_assert(StateMap<Form::kFused>::kScratch % 1024 == 0 && StateMap<Form::kFused>::kRecords % 1024 == 0, "tiles");
static_assert(StateMap<Form::kFused>::kStageItems % 16 == 0 && StateMap<Form::kFused>::kBarriers % 8 == 0, "words");
static_assert(StateMap<Form::kFused>::kBytes + 1024 <= 232448, "what a block of sm_90 may have");

/* Those of the other forms and, numbered like stage uses, those of records. A record of stage use n is in buffer n mod 2;
 * it is free again when the stage of use n - 2 is. */
struct FusedBarriers : Barriers {
    /* A record is there, and so are its chunk's tiles; 4. */
    __device__ __forceinline__ uint32_t record(int buffer) const
    {
        return base + 8 * (kBarrierCount + buffer);
    }
    /* The next item is found; 1. */
    __device__ __forceinline__ uint32_t found() const
    {
        return base + 8 * (kBarrierCount + kRecordBuffers);
    }
    /* All of its chunks have been asked for; 1. */
    __device__ __forceinline__ uint32_t found_free() const
    {
        return base + 8 * (kBarrierCount + kRecordBuffers + 1);
    }

    /* One thread. */
    __device__ __forceinline__ void init() const
    {
        for (int buffer = 0; buffer < kRecordBuffers; ++buffer) {
            mbarrier_init(record(buffer), 4 * kArrivingLanes);
        }
        mbarrier_init(found(), 1);
        mbarrier_init(found_free(), 1);
        Barriers::init(8);
    }
};

} // namespace sm90
} // namespace gdn

#endif
