/* One token a row, the state going nowhere but to final_state: what most calls of decode are. The kernels are decode.cu's, cut short.
 *
 * With few rows a call is as long as one warp's way through it, where an instruction takes about a nanosecond. So the token is asked for
 * before the slots are there, addresses are short sums, and parameters are few. With many rows all depends on memory, and there is
 * a kernel of its own (kStateFirst).
 */
#include "decode_token.cuh"

namespace gdn
{
namespace
{

struct OneParams {
    const void *read_slots, *write_slots; /* write_slots: only where it is another array */
    const uint8_t *has_initial_state;
    uint32_t num_slots;
    int8_t slot_words; /* of 32 bits: 1 or 2 */
    ColumnParams c;
    const gdn_metadata_fault *checked; /* not NULL: if checks before the kernel have found something, nothing is done */
    bool early; /* the kernel after this one may begin at once, not when the states are there */
    bool keep; /* the L2 is to keep the states that are read */
};

/* As many as there can be: with 32 blocks that have 4 KiB each to load, 8 rows of 32 heads are at work at once. */
template <typename Map>
constexpr int kResident = resident(kState<Map> > 32                     ? 16
                                   : Map::kPieces > 1 || Map::kStep > 1 ? 24
                                                                        : 32);

/* kStateFirst, where the blocks are as many as there is room for: the state is asked for before the token. Loads come back in the order in
 * which they were asked for. With fewer blocks gates and norms are to be had while the state is on its way; with more, memory is
 * to have as much to do as early as can be. */
template <typename Map, bool k16Bit, bool kStateFirst>
__global__ void __launch_bounds__(32, kResident<Map>)
    decode_one_kernel(const __grid_constant__ OneParams a, const __grid_constant__ gdn_decode_params p)
{
    if (blockIdx.x == 0) {
        wait_for_kernel_before();
        let_kernel_after_begin();
        if (!a.checked) {
            report_rows(p);
        }
        return;
    }
    const ColumnPlace at = column_place<Map, k16Bit>(a.c);
    wait_for_kernel_before();
    if (kStateFirst || a.early) {
        let_kernel_after_begin();
    }
    uint2 read = make_uint2(at.row, 0), write = make_uint2(0, 0);
    uint8_t has = 1;
    if (a.read_slots) {
        read = load_words(a.read_slots, a.slot_words, at.row);
    }
    if (a.write_slots) {
        write = load_words(a.write_slots, a.slot_words, at.row);
    }
    if (a.has_initial_state) {
        has = a.has_initial_state[at.row];
    }
    __syncwarp(); /* so that these loads are the first */
    RawToken<Map, k16Bit> raw_token;
    RawGates raw_gates;
    const auto ask_for_token = [&] {
        raw_token.load(at.k, at.q, at.v, at.has_own);
        raw_gates.load(a.c.forms, at.gate, at.beta);
        raw_gates.load_head(a.c.A_log, a.c.dt_bias, at.head);
    };
    if (!kStateFirst) {
        ask_for_token();
    }

    if (!a.write_slots) {
        write = read;
    }
    /* As unsigned numbers, negative ones are too large as well. */
    if (a.read_slots && (read.x >= a.num_slots || write.x >= a.num_slots || (read.y | write.y) != 0)) {
        return;
    }
    if (a.checked && a.checked->code != GDN_FAULT_NONE) {
        return;
    }
    RawColumns<Map> raw;
    raw.clear();
    if (a.c.initial_state.data && has) {
        const unsigned char *const from = a.c.initial_state.at<Map>(read.x, at.head, at.v0);
        if (kStateFirst && a.keep) {
            raw.template load<true>(from, a.c.initial_state.line, at.columns);
        } else {
            raw.template load<false>(from, a.c.initial_state.line, at.columns);
        }
    }
    if (kStateFirst) {
        ask_for_token();
    }
    Gates gates;
    gates.take(a.c.forms, raw_gates);
    Token<Map, k16Bit> token;
    token.take(a.c.forms, raw_token, gates);
    Columns<Map> state;
    raw.unpack(state.s);
    const float o = token.step(state, a.c.scale);
    if (!kStateFirst && !a.early) {
        let_kernel_after_begin();
    }
    if (at.has_own && is_owner<Map>()) {
        store_element(a.c.o.at(at.row, at.head) + at.own,
                      k16Bit ? (a.c.forms.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16) : GDN_DTYPE_F32, 0, o);
    }
    if (a.c.final_state.data) {
        raw.pack(state.s);
        raw.store(a.c.final_state.at<Map>(write.x, at.head, at.v0), a.c.final_state.line, at.columns);
    }
}

/* About as many blocks as there is room for, or more. */
template <typename Map> bool fills_device(const gdn_decode_params &p)
{
    return num_blocks(p, Map::kColumns) >= static_cast<int64_t>(p.num_sms) * kResident<Map> / 8 * 7;
}

/* Blocks of the kernel after this one fill what room is left, and not evenly. That does no harm where both kernels are small or this
 * one is large; in between the other's last blocks crowd on a few multiprocessors (four rows of 32 heads take 7.5 us
 * for 6.5), so that it has to wait until these blocks have what they came for. */
template <typename Map> bool may_begin_early(const gdn_decode_params &p)
{
    return num_blocks(p, Map::kColumns) <= static_cast<int64_t>(p.num_sms) * kResident<Map> / 4 || fills_device<Map>(p);
}

/* Memory is 1 to 3% faster where the L2 keeps the states that were read and gives up those that were written, though as much is read and
 * written as before. Calls that read little more than the L2 holds are up to 10% slower. */
template <typename Map> bool reads_far_more_than_l2(const gdn_decode_params &p)
{
    return p.num_rows * p.num_v_heads * p.head_v_dim * Map::K * static_cast<int64_t>(sizeof(typename Map::Type)) >=
           3 * p.l2_bytes;
}

template <typename Map, bool k16Bit> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    OneParams a = {};
    a.read_slots = p.read_slots;
    a.write_slots = p.write_slots != p.read_slots ? p.write_slots : nullptr;
    a.has_initial_state = p.has_initial_state;
    a.slot_words = p.slots_dtype == GDN_DTYPE_I64 ? 2 : 1;
    /* One word holds no slot from 2^31 on: those are negative. */
    a.num_slots = static_cast<uint32_t>(a.slot_words == 1 && p.num_slots > INT32_MAX ? INT64_C(1) << 31 : p.num_slots);
    a.c = column_params(p, Map::kColumns);
    a.checked = p.checked ? p.fault : nullptr;
    a.early = may_begin_early<Map>(p);
    a.keep = reads_far_more_than_l2<Map>(p);
    return launch_columns(fills_device<Map>(p) ? decode_one_kernel<Map, k16Bit, true>
                                               : decode_one_kernel<Map, k16Bit, false>,
                          p, Map::kColumns, stream, a, p);
}

} // namespace
} // namespace gdn

int gdn_decode_one_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    return gdn::with_map(*decode, [&](auto map, auto is_16_bit) {
        return gdn::launch<decltype(map), decltype(is_16_bit)::value>(*decode, stream);
    });
}
