/* A wave's chunks, and how its sequences are cut into segments. */
#ifndef GDN_CUDA_SM90_WAVE_CUH
#define GDN_CUDA_SM90_WAVE_CUH

#include "../device/element.cuh"
#include "prefill.h"

namespace gdn
{
namespace sm90
{

/* A wave's part of the chunk table. */
struct Wave {
    const gdn_chunk *chunks;
    int slots;
};

__device__ __forceinline__ Wave wave_of(const gdn_sm90_prefill &p)
{
    if (p.wave) {
        return {p.chunks + p.wave->begin, static_cast<int>(p.wave->end - p.wave->begin)};
    }
    return {p.chunks + p.wave_begin, p.wave_slots};
}

/* Tokens, and chunks, of a sequence that has any in the table, so that its bounds have been checked. */
__device__ __forceinline__ int64_t sequence_tokens(const gdn_sm90_prefill &p, int seq)
{
    int64_t length = p.row_length;
    if (p.cu_seqlens) {
        length =
            load_index(p.cu_seqlens, p.cu_seqlens_dtype, seq + 1) - load_index(p.cu_seqlens, p.cu_seqlens_dtype, seq);
    }
    return length;
}

__device__ __forceinline__ int sequence_chunks(const gdn_sm90_prefill &p, int seq)
{
    return static_cast<int>((sequence_tokens(p, seq) + GDN_SM90_CHUNK - 1) / GDN_SM90_CHUNK);
}

/* The chunks of one sequence in a wave. */
struct Run {
    int first; /* slot in the wave; -1: none */
    int count;
    int index; /* of the first chunk in its sequence */
    int token; /* of the first chunk */
    int last_length;
    int last; /* the sequence ends in this wave */
};

__device__ __forceinline__ Run find_run(const gdn_sm90_prefill &p, const Wave &wave, int seq)
{
    Run run = {-1, 0, 0, 0, 0, 0};
    const gdn_sm90_run found = p.runs[seq];
    if (found.first < 0 || found.end <= found.first || found.end > wave.slots) {
        return run;
    }
    const gdn_chunk first = wave.chunks[found.first];
    const gdn_chunk last = wave.chunks[found.end - 1];
    const bool begins = found.first == 0 || wave.chunks[found.first - 1].seq != seq;
    const bool ends = found.end == wave.slots || wave.chunks[found.end].seq != seq;
    if (first.seq != seq || last.seq != seq || !begins || !ends) {
        return run; /* an entry that an earlier wave left */
    }
    run.first = found.first;
    run.count = found.end - found.first;
    run.index = first.index;
    run.token = static_cast<int>(first.token);
    run.last_length = last.length;
    run.last = last.last;
    return run;
}

/* Sequences of a wave, and those skipped between them: first .. first + count. */
struct WaveSequences {
    int first;
    int count;
};

__device__ __forceinline__ WaveSequences sequences_of(const gdn_sm90_prefill &p, const Wave &wave)
{
    if (wave.slots <= 0) {
        return {0, 0};
    }
    const int first = wave.chunks[0].seq;
    const int last = wave.chunks[wave.slots - 1].seq; /* -1: the wave is not full */
    if (first < 0) {
        return {0, 0};
    }
    return {first, (last >= 0 ? last + 1 : p.num_seqs) - first};
}

/* Where a segment's F and E are: the one that starts at `slot` of the wave. */
__device__ __forceinline__ int segment_entry(int slot)
{
    return slot / GDN_SM90_MIN_SEGMENT;
}

} // namespace sm90
} // namespace gdn

#endif
