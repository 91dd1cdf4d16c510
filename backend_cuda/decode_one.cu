/* One token a row, the state going nowhere but to final_state: what most calls of decode are. The kernel is decode.cu's, cut short.
 *
 * With few rows a call is as long as one warp's way through it, where an instruction takes about a nanosecond. So this kernel asks for the
 * token before the slots are there, addresses are short sums, and parameters are few.
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
};

/* As many as there can be: with 32 blocks that have 4 KiB each to load, 8 rows of 32 heads are at work at once. */
template <typename Map>
constexpr int kResident = resident(kState<Map> > 32                     ? 16
                                   : Map::kPieces > 1 || Map::kStep > 1 ? 24
                                                                        : 32);

template <typename Map, bool k16Bit>
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
    const Place place = place_of(a.c.grid);
    const uint32_t n = static_cast<uint32_t>(place.row), head = place.head, v0 = place.v0;
    const int columns = static_cast<int>(a.c.head_v_dim - v0 - Map::first_column());
    const uint32_t own = own_column<Map>() * Map::kApart; /* the lane's own column, from its first */
    const bool has_own = static_cast<int>(own) < columns;
    const uint32_t own_at = (v0 + Map::first_column() + own) * (k16Bit ? 2 : 4);
    const unsigned char *const k_at = a.c.k.at(n, place.k_head), *const q_at = a.c.q.at(n, place.k_head);
    const unsigned char *const v_at = a.c.v.at(n, head) + own_at;
    const unsigned char *const gate_at = a.c.gate.at(n, head), *const beta_at = a.c.beta.at(n, head);

    wait_for_kernel_before();
    if (a.early) {
        let_kernel_after_begin();
    }
    uint2 read = make_uint2(n, 0), write = make_uint2(0, 0);
    uint8_t has = 1;
    if (a.read_slots) {
        read = load_words(a.read_slots, a.slot_words, n);
    }
    if (a.write_slots) {
        write = load_words(a.write_slots, a.slot_words, n);
    }
    if (a.has_initial_state) {
        has = a.has_initial_state[n];
    }
    __syncwarp(); /* so that these loads are the first */
    RawToken<Map, k16Bit> raw_token;
    RawGates raw_gates;
    raw_token.load(k_at, q_at, v_at, has_own);
    raw_gates.load(a.c.forms, gate_at, beta_at);
    raw_gates.load_head(a.c.A_log, a.c.dt_bias, head);

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
        raw.load(a.c.initial_state.at<Map>(read.x, head, v0), a.c.initial_state.line, columns);
    }
    Gates gates;
    gates.take(a.c.forms, raw_gates);
    Token<Map, k16Bit> token;
    token.take(a.c.forms, raw_token, gates);
    Columns<Map> state;
    raw.unpack(state.s);
    const float o = token.step(state, a.c.scale);
    if (!a.early) {
        let_kernel_after_begin();
    }
    if (has_own && is_owner<Map>()) {
        store_element(a.c.o.at(n, head) + own_at,
                      k16Bit ? (a.c.forms.bf16 ? GDN_DTYPE_BF16 : GDN_DTYPE_F16) : GDN_DTYPE_F32, 0, o);
    }
    if (a.c.final_state.data) {
        raw.pack(state.s);
        raw.store(a.c.final_state.at<Map>(write.x, head, v0), a.c.final_state.line, columns);
    }
}

/* Blocks of the kernel after this one fill what room is left, and not evenly. That does no harm where both kernels are small or this
 * one is large; in between the other's last blocks crowd on a few multiprocessors (four rows of 32 heads take 7.5 us
 * for 6.5), so that it has to wait until these blocks have what they came for. */
template <typename Map> bool may_begin_early(const gdn_decode_params &p)
{
    const int64_t room = static_cast<int64_t>(p.num_sms) * kResident<Map>;
    const int64_t blocks = num_blocks(p, Map::kColumns);
    return blocks <= room / 4 || blocks >= room / 8 * 7;
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
    return launch_columns(decode_one_kernel<Map, k16Bit>, p, Map::kColumns, stream, a, p);
}

} // namespace
} // namespace gdn

int gdn_decode_one_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    return gdn::with_map(*decode, [&](auto map, auto is_16_bit) {
        return gdn::launch<decltype(map), decltype(is_16_bit)::value>(*decode, stream);
    });
}
