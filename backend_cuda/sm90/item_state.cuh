/* The state that an item starts from and leaves, of one tile of V. */
#ifndef GDN_CUDA_SM90_ITEM_STATE_CUH
#define GDN_CUDA_SM90_ITEM_STATE_CUH

#include "checkpoints.cuh"
#include "state_map.cuh"
#include "state_memory.cuh"

namespace gdn
{
namespace sm90
{

/* Float32 states [slots, num_v_heads, V, K] of this library's own. */
template <typename D> __device__ __forceinline__ gdn_sm90_states own_states(const gdn_sm90_prefill &p, float *data)
{
    const int64_t head = D::v_dim(p) * D::kK;
    return {data, GDN_DTYPE_F32, 1, p.num_v_heads * head, head, D::kK, 1};
}

/* This lane's part of identity^T: element (v, k) of a tile of it. */
template <int kKTiles> __device__ __forceinline__ void set_identity(float (&S)[kKTiles][32], int v_tile)
{
    const int lane = threadIdx.x % 32;
    const int v = v_tile * GDN_SM90_TILE + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32 * kKTiles; ++i) {
        const int k = 64 * (i / 32) + i % 32 / 4 * 8 + 2 * (lane % 4) + i % 2;
        S[i / 32][i % 32] = k == v + 8 * (i % 4 / 2) ? 1.0f : 0.0f;
    }
}

/* Before a cut sequence's first segment is run over: its last one may write the slot that this one read, in another block. */
template <typename D>
__device__ __forceinline__ void keep_initial_state(const gdn_sm90_prefill &p, const Item &item, int v_tile,
                                                   const float (&S)[D::kKTiles][32])
{
    const gdn_sm90_states states = own_states<D>(p, p.segment_E);
    store_state(S, states, state_base(states, item.target_entry, item.head, v_tile * GDN_SM90_TILE));
}

/* Places that a form has no items for are left out of its code. */
template <Form kForm> constexpr bool kHasCarry = kForm != Form::kFused;
template <Form kForm> constexpr bool kShares = kForm == Form::kFused || kForm == Form::kPieces;
template <Form kForm>
constexpr bool kHasSegments = kForm == Form::kStateOnly || kForm == Form::kHalf || kForm == Form::kPieces;

/* Pieces of a sequence all read the state that the last of them may replace: the others' warps count what they have read. The
 * last does not wait for a block that has not begun: its number is the highest, and blocks take numbers as they begin. */
__device__ __forceinline__ void count_read(const gdn_sm90_prefill &p, const Item &item)
{
    if (item.reads >= 0 && item.awaited == 0) {
        __threadfence();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            atomicAdd(&p.reads[item.reads].index, 1);
        }
    }
}

__device__ __forceinline__ void await_reads(const gdn_sm90_prefill &p, const Item &item)
{
    if (item.reads >= 0) {
        while (load_relaxed(&p.reads[item.reads].index) < 4 * item.awaited) {
        }
        __threadfence();
    }
}

/* Two blocks have parts of an item: the threads of the first that have its state say that it has been left, each for itself, which
 * takes the fewest registers. */
__device__ __forceinline__ void count_passed(const gdn_sm90_prefill &p, const Item &item)
{
    if (item.target == kPlacePassed) {
        __threadfence();
        atomicAdd(&p.passed[item.target_entry].index, 1);
    }
}

template <Form kForm> __device__ __forceinline__ void await_passed(const gdn_sm90_prefill &p, const Item &item)
{
    while (load_relaxed(&p.passed[item.source_entry].index) < 128 * kVTiles<kForm>) {
    }
    __threadfence();
}

template <Form kForm, typename D = Usual>
__device__ __forceinline__ void load_item_state(const gdn_sm90_prefill &p, const Item &item, int v_tile,
                                                float (&S)[D::kKTiles][32])
{
    const bool passed = kShares<kForm> && item.source == kPlacePassed;
    gdn_sm90_states states = passed ? p.passed_states : p.initial_state;
    int64_t slot = 0;
    bool there = true;
    if (passed) {
        await_passed<kForm>(p, item);
        slot = item.source_entry;
    }
    switch (kHasCarry<kForm> || passed ? item.source : kPlaceCaller) {
    case kPlacePassed:
        break;
    case kPlaceCaller:
        there = states.data && (!p.has_initial_state || p.has_initial_state[item.seq]);
        if (there) {
            slot = p.read_slots ? load_index(p.read_slots, p.slots_dtype, item.seq) : item.seq;
        }
        break;
    case kPlaceCarry:
        states = own_states<D>(p, const_cast<float *>(p.carry_in));
        break;
    case kPlaceF:
    case kPlaceE:
        if (kHasSegments<kForm>) {
            states = own_states<D>(p, item.source == kPlaceF ? p.segment_F : p.segment_E);
            slot = item.source_entry;
        }
        break;
    case kPlaceIdentity:
        if (kForm == Form::kStateOnly) {
            set_identity(S, v_tile);
        }
        return;
    default:
        there = false;
        break;
    }
    if (there) {
        load_state(S, states, state_base(states, slot, item.head, v_tile * GDN_SM90_TILE));
    } else {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
#pragma unroll
            for (int h = 0; h < D::kKTiles; ++h) {
                S[h][i] = 0.0f;
            }
        }
    }
    if (kForm == Form::kStateOnly && item.source == kPlaceCaller && !is_checkpoint_pass<D>(p)) {
        keep_initial_state<D>(p, item, v_tile, S);
    }
    if (kForm == Form::kPieces) {
        count_read(p, item);
    }
}

template <Form kForm, typename D = Usual>
__device__ __forceinline__ void store_item_state(const gdn_sm90_prefill &p, const Item &item, int v_tile,
                                                 const float (&S)[D::kKTiles][32])
{
    const bool passed = kShares<kForm> && item.target == kPlacePassed;
    gdn_sm90_states states = passed ? p.passed_states : p.final_state;
    int64_t slot = item.target_entry;
    switch (kHasCarry<kForm> || passed ? item.target : kPlaceCaller) {
    case kPlacePassed:
        break;
    case kPlaceCaller:
        slot = p.write_slots ? load_index(p.write_slots, p.slots_dtype, item.seq) : item.seq;
        break;
    case kPlaceCarry:
        states = own_states<D>(p, p.carry_out);
        slot = 0;
        break;
    case kPlaceF:
    case kPlaceE:
        if (kForm == Form::kStateOnly) {
            states = own_states<D>(p, item.target == kPlaceF ? p.segment_F : p.segment_E);
        }
        break;
    default:
        return;
    }
    if (kForm == Form::kPieces) {
        await_reads(p, item);
    }
    if (states.data) {
        store_state(S, states, state_base(states, slot, item.head, v_tile * GDN_SM90_TILE));
    }
    if (kShares<kForm>) {
        count_passed(p, item);
    }
}

/* Full chunks until the state is wanted, of at most `rest`, from chunk `index` of the sequence on. */
template <Form kForm, typename D>
__device__ __forceinline__ int chunks_to_stop(const gdn_sm90_prefill &p, uint32_t item, int index, int rest)
{
    if (D::kAny) {
        return kHasOutputs<kForm> ? chunks_to_checkpoint(p, read_item(item).seq, index, rest) : rest;
    }
    return p.checkpoint_chunks > 0 ? min(rest, p.checkpoint_chunks - index % p.checkpoint_chunks) : rest;
}

/* After `done` chunks of the item, and before any: the state, for checkpoints there and those inside the next chunk. */
template <typename D>
__device__ __forceinline__ void store_checkpoints(const gdn_sm90_prefill &p, const Item &item, int v_tile, int done,
                                                  const float (&S)[D::kKTiles][32])
{
    if (!p.checkpoints.data) {
        return;
    }
    const Checkpoints all = checkpoints_of(p, item.seq);
    const int64_t token = static_cast<int64_t>(item.index + done) * GDN_SM90_CHUNK;
    for (int64_t i = first_from(p, all, token); i < all.count; ++i) {
        const int64_t position = position_of(p, all, i);
        if (position >= token + GDN_SM90_CHUNK) {
            break;
        }
        if ((position == token ? done > 0 : done < item.total()) && all.first + i < p.num_checkpoints) {
            store_state(S, p.checkpoints, state_base(p.checkpoints, all.first + i, item.head, v_tile * GDN_SM90_TILE));
        }
    }
}

/* After `done` chunks of the item: the state, if it is wanted there. */
template <typename D = Usual>
__device__ __forceinline__ void store_checkpoint(const gdn_sm90_prefill &p, const Item &item, int v_tile, int done,
                                                 const float (&S)[D::kKTiles][32])
{
    const int consumed = item.index + done;
    if (p.checkpoint_chunks > 0 && consumed % p.checkpoint_chunks == 0) {
        const int64_t entry = p.checkpoint_bases[item.seq] + consumed / p.checkpoint_chunks - 1;
        if (entry < p.num_checkpoints) {
            store_state(S, p.checkpoints, state_base(p.checkpoints, entry, item.head, v_tile * GDN_SM90_TILE));
        }
    }
}

} // namespace sm90
} // namespace gdn

#endif
