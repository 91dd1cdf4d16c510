/* States into lanes, across a chunk, and back: every layout and type, carries, flags, and states that only pass. */
#include "cpu_fixture.h"

#include "cpu_state_io.h"
#include "numeric.h"

enum { H = 1, HV = 2, K = 19, V = 37, C = 16 };

typedef struct storage {
    gdn_state_layout layout;
    int64_t elements;
} storage;

/* Layouts of `slots` states: [V, K] or [K, V], dense or with gaps everywhere. */
static storage storage_of(int form, gdn_dtype dtype, int64_t slots)
{
    const bool by_v = form & 1;
    const int64_t gap = form & 2 ? 3 : 0;
    storage s = {.layout = {.dtype = dtype}};
    s.layout.k_stride = by_v ? V + gap : 1;
    s.layout.v_stride = by_v ? 1 : K + gap;
    s.layout.head_stride = (by_v ? K * (V + gap) : V * (K + gap)) + gap;
    s.layout.slot_stride = HV * s.layout.head_stride + gap;
    s.elements = slots * s.layout.slot_stride;
    return s;
}

static int64_t place(const gdn_state_layout *layout, int64_t slot, int64_t head, int64_t k, int64_t v)
{
    return slot * layout->slot_stride + head * layout->head_stride + v * layout->v_stride + k * layout->k_stride;
}

static void every_layout_loads_and_stores(void **unused)
{
    (void)unused;
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    test_random random = random_stream(11, 1);
    for (size_t t = 0; t < COUNT_OF(dtypes); t++) {
        for (int form = 0; form < 4; form++) {
            const storage s = storage_of(form, dtypes[t], 2);
            const size_t bytes = (size_t)s.elements * gdn_dtype_size(dtypes[t]);
            unsigned char *const data = malloc(bytes), *const want = malloc(bytes);
            REQUIRE(data != NULL && want != NULL);
            memset(data, 0xab, bytes);
            memset(want, 0xab, bytes);
            float *const S = fixture_normal(&random, K * V);
            float *const back = fixture_poisoned(K * V);
            const int64_t at = gdn_cpu_state_offset(&s.layout, 1, 1);
            assert_int_equal(at, place(&s.layout, 1, 1, 0, 0));
            gdn_cpu_state_store(data, &s.layout, at, K, V, S);
            for (int32_t k = 0; k < K; k++) {
                for (int32_t v = 0; v < V; v++) {
                    gdn_store_element(want, dtypes[t], place(&s.layout, 1, 1, k, v), S[k * V + v]);
                }
            }
            assert_memory_equal(data, want, bytes);
            gdn_cpu_state_load(data, &s.layout, at, K, V, back);
            for (int32_t i = 0; i < K * V; i++) {
                assert_true(back[i] == gdn_load_element(want, dtypes[t], place(&s.layout, 1, 1, i / V, i % V)));
            }
            free(data);
            free(want);
            free(S);
            free(back);
        }
    }
}

/* Bits that arithmetic would change: a signalling NaN, a subnormal, a negative zero. */
static void copies_keep_bits_where_types_agree(void **unused)
{
    (void)unused;
    static const uint32_t patterns[] = {0x7fa00001u, 0x00000001u, 0x80000000u, 0xff812345u, 0x3f800000u};
    for (int form = 0; form < 16; form++) {
        const storage from = storage_of(form & 3, GDN_DTYPE_F32, 1), to = storage_of(form >> 2, GDN_DTYPE_F32, 1);
        float *const src = fixture_poisoned(from.elements), *const dst = fixture_poisoned(to.elements);
        for (int64_t i = 0; i < from.elements; i++) {
            memcpy(&src[i], &patterns[i % 5], 4);
        }
        gdn_cpu_state_copy(dst, &to.layout, 0, src, &from.layout, 0, K, V);
        for (int32_t k = 0; k < K; k++) {
            for (int32_t v = 0; v < V; v++) {
                assert_memory_equal(&dst[place(&to.layout, 0, 0, k, v)], &src[place(&from.layout, 0, 0, k, v)], 4);
            }
        }
        free(src);
        free(dst);
    }
    uint16_t halves[K * V], copy[K * V];
    const gdn_state_layout bf16 = {.dtype = GDN_DTYPE_BF16, .v_stride = K, .k_stride = 1};
    const gdn_state_layout f32 = {.dtype = GDN_DTYPE_F32, .v_stride = K, .k_stride = 1};
    for (int i = 0; i < K * V; i++) {
        halves[i] = (uint16_t)(i * 257 + 0x7f80);
    }
    gdn_cpu_state_copy(copy, &bf16, 0, halves, &bf16, 0, K, V);
    assert_memory_equal(copy, halves, sizeof(copy));
    float wide[K * V];
    for (int i = 0; i < K * V; i++) {
        wide[i] = 1.0f + (float)i * 0x1p-9f;
    }
    gdn_cpu_state_copy(copy, &bf16, 0, wide, &f32, 0, K, V);
    for (int i = 0; i < K * V; i++) {
        assert_int_equal(copy[i], gdn_bf16_from_float(wide[i]));
    }
    gdn_cpu_state_copy(copy, &bf16, 0, NULL, &f32, 0, K, V);
    for (int i = 0; i < K * V; i++) {
        assert_int_equal(copy[i], 0);
    }
}

typedef struct lanes {
    fixture_wave f;
    gdn_device *device;
    float *pool, *before, *S, *carry;
    int64_t read_slots[4], write_slots[4];
    int64_t pool_elements;
} lanes;

static const int64_t lengths[] = {40, 16, 0, 5};
enum { SLOTS = 9 };

static void open_lanes(lanes *l)
{
    memset(l, 0, sizeof(*l));
    fixture_wave_open(&l->f, H, HV, K, V, C, COUNT_OF(lengths), lengths);
    const storage s = storage_of(0, GDN_DTYPE_F32, SLOTS);
    l->f.problem.state = s.layout;
    l->f.problem.state_form = GDN_STATE_POOL;
    l->pool_elements = s.elements;
    test_random random = random_stream(12, 1);
    l->pool = fixture_normal(&random, s.elements);
    l->before = fixture_poisoned(s.elements);
    memcpy(l->before, l->pool, (size_t)s.elements * sizeof(float));
    for (int n = 0; n < 4; n++) {
        l->read_slots[n] = 2 * n;
        l->write_slots[n] = 2 * n + 1;
    }
    l->f.args.state = l->pool;
    l->f.args.num_slots = SLOTS;
    l->f.args.read_slots = l->read_slots;
    l->f.args.write_slots = l->write_slots;
    l->S = fixture_poisoned((int64_t)l->f.wave.num_lanes * HV * K * V);
    l->carry = fixture_normal(&random, (int64_t)HV * K * V);
    l->device = fixture_open(2, GDN_BLAS_OFF);
}

static void close_lanes(lanes *l)
{
    fixture_wave_close(&l->f);
    free(l->pool);
    free(l->before);
    free(l->S);
    free(l->carry);
    fixture_close(l->device);
}

/* S of a lane equals the state of a slot (times nothing). */
static bool lane_is_slot(const lanes *l, int32_t lane, const float *pool, int64_t slot)
{
    for (int32_t i = 0; i < HV * K * V; i++) {
        const int32_t h = i / (K * V), k = i / V % K, v = i % V;
        if (l->S[lane * HV * K * V + i] != pool[place(&l->f.problem.state, slot, h, k, v)]) {
            return false;
        }
    }
    return true;
}

static void lanes_start_from_slots_zeros_or_the_carry(void **unused)
{
    (void)unused;
    lanes l;
    open_lanes(&l);
    assert_int_equal(l.f.wave.num_lanes, 4);
    const uint8_t flags[] = {1, 0, 255, 1};
    l.f.args.has_initial_state = flags;
    REQUIRE_OK(gdn_cpu_load_states(l.device, &l.f.run, &l.f.wave, l.S, l.carry));
    assert_true(lane_is_slot(&l, 0, l.pool, 0));
    assert_true(lane_is_slot(&l, 2, l.pool, 4));
    assert_true(lane_is_slot(&l, 3, l.pool, 6));
    for (int i = 0; i < HV * K * V; i++) {
        assert_true(l.S[HV * K * V + i] == 0.0f);
    }
    /* A later wave: the first lane goes on. */
    l.f.wave.chunks += 1;
    l.f.wave.num_slots -= 1;
    gdn_schedule_wave(&l.f.wave);
    REQUIRE_OK(gdn_cpu_load_states(l.device, &l.f.run, &l.f.wave, l.S, l.carry));
    assert_memory_equal(l.S, l.carry, HV * K * V * sizeof(float));
    assert_true(lane_is_slot(&l, 2, l.pool, 4));
    close_lanes(&l);
}

static void lanes_end_in_slots_or_the_carry(void **unused)
{
    (void)unused;
    lanes l;
    open_lanes(&l);
    /* The first two chunks of the first sequence: it goes on, nothing is stored. */
    gdn_wave wave = l.f.wave;
    wave.num_slots = 2;
    gdn_schedule_wave(&wave);
    test_random random = random_stream(13, 1);
    for (int i = 0; i < l.f.wave.num_lanes * HV * K * V; i++) {
        l.S[i] = (float)random_normal(&random);
    }
    REQUIRE_OK(gdn_cpu_store_states(l.device, &l.f.run, &wave, l.S, l.carry));
    assert_memory_equal(l.carry, l.S, HV * K * V * sizeof(float));
    assert_memory_equal(l.pool, l.before, (size_t)l.pool_elements * sizeof(float));

    gdn_schedule_wave(&l.f.wave);
    REQUIRE_OK(gdn_cpu_store_states(l.device, &l.f.run, &l.f.wave, l.S, l.carry));
    assert_true(lane_is_slot(&l, 0, l.pool, 1));
    assert_true(lane_is_slot(&l, 1, l.pool, 3));
    assert_true(lane_is_slot(&l, 3, l.pool, 7));
    /* The empty sequence: its read slot, whatever its lane holds. */
    for (int i = 0; i < HV * K * V; i++) {
        const int32_t h = i / (K * V), k = i / V % K, v = i % V;
        assert_true(l.pool[place(&l.f.problem.state, 5, h, k, v)] == l.before[place(&l.f.problem.state, 4, h, k, v)]);
    }
    for (int64_t slot = 0; slot < SLOTS; slot += 2) {
        const int64_t at = slot * l.f.problem.state.slot_stride;
        assert_memory_equal(l.pool + at, l.before + at, (size_t)l.f.problem.state.slot_stride * sizeof(float));
    }
    close_lanes(&l);
}

static void without_write_slots_nothing_is_stored(void **unused)
{
    (void)unused;
    lanes l;
    open_lanes(&l);
    l.f.args.write_slots = NULL;
    REQUIRE_OK(gdn_cpu_store_states(l.device, &l.f.run, &l.f.wave, l.S, l.carry));
    assert_memory_equal(l.pool, l.before, (size_t)l.pool_elements * sizeof(float));
    close_lanes(&l);
}

/* tail = exp(G_end - G_i) k_i and dst = exp(G_end) src, with ends of the chunks or given. */
static void decay_follows_the_chunks_end(void **unused)
{
    (void)unused;
    lanes l;
    open_lanes(&l);
    const int32_t num_lanes = l.f.wave.num_lanes;
    test_random random = random_stream(14, 1);
    float *const G = fixture_poisoned((int64_t)l.f.wave.num_slots * HV * 2 * C);
    float *const k = fixture_normal(&random, (int64_t)l.f.wave.num_slots * H * C * K);
    float *const src = fixture_normal(&random, (int64_t)num_lanes * HV * K * V);
    float *const tail = fixture_poisoned((int64_t)num_lanes * HV * C * K);
    float *const dst = fixture_poisoned((int64_t)num_lanes * HV * K * V);
    for (int64_t i = 0; i < (int64_t)l.f.wave.num_slots * HV; i++) {
        double sum = 0;
        for (int c = 0; c < C; c++) {
            sum -= random_uniform(&random);
            G[i * 2 * C + c] = (float)sum;
            G[i * 2 * C + C + c] = (float)(sum - (double)(float)sum);
        }
    }
    const int32_t given[] = {7, 0, 0, 3};
    for (int use_given = 0; use_given < 2; use_given++) {
        memset(tail, 0xff, (size_t)(num_lanes * HV * C * K) * sizeof(float));
        memset(dst, 0xff, (size_t)(num_lanes * HV * K * V) * sizeof(float));
        REQUIRE_OK(
            gdn_cpu_decay_state(l.device, &l.f.run, &l.f.wave, 0, use_given ? given : NULL, G, k, src, tail, dst));
        for (int32_t lane = 0; lane < num_lanes; lane++) {
            const int32_t slot = l.f.wave.lane_slot[lane];
            const int32_t end = use_given ? given[lane] : l.f.wave.chunks[slot].length;
            for (int32_t hv = 0; hv < HV; hv++) {
                const float *const high = G + ((int64_t)slot * HV + hv) * 2 * C;
                const double last = end > 0 ? (double)high[end - 1] + (double)high[C + end - 1] : 0;
                for (int32_t i = 0; i < C; i++) {
                    for (int32_t d = 0; d < K; d++) {
                        const double want = i < end ? exp(last - (double)high[i] - (double)high[C + i]) *
                                                          (double)k[(slot * C + i) * K + d]
                                                    : 0;
                        const double got = (double)tail[((lane * HV + hv) * C + i) * K + d];
                        assert_true(fabs(got - want) <= 1e-6 * fabs(want));
                    }
                }
                for (int32_t i = 0; i < K * V; i++) {
                    const float got = dst[(lane * HV + hv) * K * V + i];
                    const double want = exp(last) * (double)src[(lane * HV + hv) * K * V + i];
                    assert_true(end > 0 ? fabs((double)got - want) <= 1e-6 * fabs(want) : isnan(got));
                }
            }
        }
    }
    /* The second step: only the first sequence has a chunk, the other lanes are left alone. */
    memset(dst, 0xff, (size_t)(num_lanes * HV * K * V) * sizeof(float));
    REQUIRE_OK(gdn_cpu_decay_state(l.device, &l.f.run, &l.f.wave, 1, NULL, G, k, src, tail, dst));
    assert_false(isnan(dst[0]));
    assert_true(isnan(dst[HV * K * V]));
    free(G);
    free(k);
    free(src);
    free(tail);
    free(dst);
    close_lanes(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_loads_and_stores),
        cmocka_unit_test(copies_keep_bits_where_types_agree),
        cmocka_unit_test(lanes_start_from_slots_zeros_or_the_carry),
        cmocka_unit_test(lanes_end_in_slots_or_the_carry),
        cmocka_unit_test(without_write_slots_nothing_is_stored),
        cmocka_unit_test(decay_follows_the_chunks_end),
    };
    return cmocka_run_group_tests_name("cpu_state", tests, NULL, NULL);
}
