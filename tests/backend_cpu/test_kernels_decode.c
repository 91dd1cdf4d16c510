/* One decode step of every instruction set this machine has, against the plain twin. */
#include "kernel_tables.h"

static float a[BIG], out[BIG], wanted[BIG];

static void decode_steps(void **state)
{
    (void)state;
    for (int t = 0; t < num_tables; t++) {
        for (int K = 16; K <= 144; K += 32) {
            for (int kv = 0; kv < 2; kv++) {
                for (int count = 16; count <= (kv ? 64 : 16); count += 16) {
                    const int rows = kv ? K : count, cols = kv ? count : K;
                    float k[144], q[144], v[64], o[64], o_wanted[64];
                    fill(k, K);
                    fill(q, K);
                    fill(v, count);
                    fill(a, BIG);
                    gdn_decode_step s = {
                        .count = count,
                        .head_k_dim = K,
                        .k = k,
                        .q = q,
                        .alpha = 0.875f,
                        .beta = 0.4f,
                        .qk = twin->dot(K, q, k),
                        .scale = 0.3f,
                        .v = v,
                        .o = o,
                        .src = a,
                        .src_stride = cols + 3,
                        .dst = out,
                        .dst_stride = cols + 5,
                    };
                    memset(out, 0xff, sizeof(out));
                    memset(wanted, 0xff, sizeof(wanted));
                    (kv ? tables[t]->decode_kv : tables[t]->decode_vk)(&s);
                    s.dst = wanted;
                    s.o = o_wanted;
                    (kv ? twin->decode_kv : twin->decode_vk)(&s);
                    require_close("decode o", tables[t], o, o_wanted, count, 2e-6);
                    for (int r = 0; r < rows; r++) {
                        require_close("decode", tables[t], out + r * s.dst_stride, wanted + r * s.dst_stride, cols,
                                      2e-6);
                        require_same("decode", tables[t], out + r * s.dst_stride + cols,
                                     wanted + r * s.dst_stride + cols, 5 * sizeof(float));
                    }
                    /* in place is the same */
                    s.dst = a;
                    s.dst_stride = s.src_stride;
                    (kv ? tables[t]->decode_kv : tables[t]->decode_vk)(&s);
                    for (int r = 0; r < rows; r++) {
                        require_same("decode in place", tables[t], a + r * (cols + 3), out + r * (cols + 5),
                                     (size_t)cols * sizeof(float));
                    }
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_steps),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
