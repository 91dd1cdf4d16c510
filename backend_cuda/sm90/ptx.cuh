/* One PTX instruction of Hopper (sm_90a) a function, nothing else: mbarrier, bulk and tensor copies, wgmma, setmaxnreg.
 * Shared memory is addressed by 32-bit addresses (smem_address). ../device/ptx.cuh has what other chips know, too.
 *
 * wgmma m64n64k16: D 64 x 64 in float32, A 64 x 16 from registers or shared memory, B 16 x 64 from shared memory.
 * Warp w of the warpgroup has rows 16 w..; with g = lane / 4, t = lane % 4,
 *   d[4 n + 0, 1] = (16 w + g, 8 n + 2t + 0, 1)    d[4 n + 2, 3] = the same of row 16 w + g + 8
 *   a[0] = (g, 2t..)  a[1] = (g + 8, 2t..)  a[2] = (g, 8 + 2t..)  a[3] = (g + 8, 8 + 2t..)
 * so the accumulators of eight columns pairs, packed to 16 bits, are A operands of a next product as they lie. With 32 or
 * 128 columns of B and D they are numbered alike.
 */
#ifndef GDN_CUDA_SM90_PTX_CUH
#define GDN_CUDA_SM90_PTX_CUH

#include "../device/ptx.cuh"

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>
#include <type_traits>

/* Defined where these instructions exist. Kernels are empty elsewhere: a build for several architectures compiles them for
 * each, and supports() lets none but compute capability 9.0 come here. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GDN_SM90_HAS_CODE
#endif

namespace gdn
{
namespace sm90
{

/* ---- Barriers */

static __device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
static __device__ __forceinline__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and has the phase wait for `bytes` of copies as well. */
static __device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase of this parity is complete. */
static __device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 " .reg .pred done;\n"
                 "again:\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 " @done bra.uni over;\n"
                 " bra.uni again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Orders this thread's ordinary writes to shared memory before later reads of the tensor cores and the copy engine. */
static __device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Copies */

/* A box of a tensor to shared memory, counted by `barrier`. */
static __device__ __forceinline__ void tensor_load(uint32_t dst, const CUtensorMap *map, int x, int head, int token,
                                                   int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(dst),
                 "l"(map), "r"(x), "r"(head), "r"(token), "r"(row), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void tensor_store(const CUtensorMap *map, int x, int head, int token, int row,
                                                    uint32_t src)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(x), "r"(head), "r"(token), "r"(row), "r"(src)
                 : "memory");
}

/* `bytes` (a multiple of 16) to shared memory, counted by `barrier`. */
static __device__ __forceinline__ void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until this thread's stores have read shared memory. */
static __device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Waits until this thread's stores are done. */
static __device__ __forceinline__ void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- Registers, and where shared memory starts */

template <int kRegisters> static __device__ __forceinline__ void registers_release()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> static __device__ __forceinline__ void registers_claim()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/* The block's dynamic shared memory from its first multiple of 1024 bytes on. */
static __device__ __forceinline__ uint32_t shared_memory_base()
{
    extern __shared__ unsigned char dynamic_shared_memory[];
    return (smem_address(dynamic_shared_memory) + 1023u) & ~1023u;
}

/* ---- wgmma */

/* Piece (16 bytes) `piece` of row `row` of a tile of 128-byte rows that starts at a multiple of 1024 bytes. */
static __device__ __forceinline__ uint32_t swizzled(int row, int piece)
{
    return static_cast<uint32_t>(row * 128 + ((piece ^ (row & 7)) << 4));
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/* An operand in shared memory: 128-byte swizzled rows of 64 elements (see swizzled()); groups of eight rows are 1024 bytes
 * apart. What the instruction takes has 64 bits, of which the upper 32 are the same for all such tiles; the lower ones are
 * the address in units of 16 bytes and, above it, a distance: of a transposed operand of 128 columns, which is two tiles, from
 * the one to the other. A single tile does not use it, where it is given as is customary.
 * Operands of one tile are its first one and an offset, so that each costs one addition: a step of 16 along the rows is
 * wgmma_offset(32), a step of 16 rows, for a transposed operand, wgmma_offset(2048). */
static __device__ __forceinline__ uint32_t wgmma_operand(uint32_t tile)
{
    return tile >> 4 | (16 >> 4) << 16;
}

static __device__ __forceinline__ uint32_t wgmma_operand_transposed(uint32_t tile, uint32_t pitch = 8192)
{
    return tile >> 4 | (pitch >> 4) << 16;
}

static __device__ __forceinline__ constexpr uint32_t wgmma_offset(uint32_t bytes)
{
    return bytes >> 4;
}

/* clang-format off */
#define GDN_SM90_ACCUMULATORS(d) \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
    "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
    "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GDN_SM90_D32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GDN_SM90_D64 \
    GDN_SM90_D32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* The upper word of an operand: swizzled rows of 128 bytes, eight of them 1024 bytes. */
#define GDN_SM90_OPERAND "0x40000040"
#define GDN_SM90_WGMMA_RS(type, d, a, b, accumulate, transposed) \
    asm volatile("{\n .reg .pred add;\n .reg .b64 b;\n setp.ne.b32 add, %37, 0;\n" \
                 " mov.b64 b, {%36, " GDN_SM90_OPERAND "};\n" \
                 " wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" GDN_SM90_D32 \
                 "}, {%32, %33, %34, %35}, b, add, 1, 1, %38;\n}" \
                 : GDN_SM90_ACCUMULATORS(d) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate), "n"(transposed))
#define GDN_SM90_WGMMA_RS_32(type, d, a, b, accumulate) \
    asm volatile("{\n .reg .pred add;\n .reg .b64 b;\n setp.ne.b32 add, %21, 0;\n" \
                 " mov.b64 b, {%20, " GDN_SM90_OPERAND "};\n" \
                 " wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}" \
                 ", {%16, %17, %18, %19}, b, add, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), \
                   "+f"(d[15]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define GDN_SM90_WGMMA_RS_128(type, d, a, b, accumulate, transposed) \
    asm volatile("{\n .reg .pred add;\n .reg .b64 b;\n setp.ne.b32 add, %69, 0;\n" \
                 " mov.b64 b, {%68, " GDN_SM90_OPERAND "};\n" \
                 " wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" GDN_SM90_D64 \
                 "}, {%64, %65, %66, %67}, b, add, 1, 1, %70;\n}" \
                 : GDN_SM90_ACCUMULATORS(d[0]), GDN_SM90_ACCUMULATORS(d[1]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate), "n"(transposed))
#define GDN_SM90_WGMMA_SS(type, d, a, b, accumulate) \
    asm volatile("{\n .reg .pred add;\n .reg .b64 a, b;\n setp.ne.b32 add, %34, 0;\n" \
                 " mov.b64 a, {%32, " GDN_SM90_OPERAND "};\n mov.b64 b, {%33, " GDN_SM90_OPERAND "};\n" \
                 " wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" GDN_SM90_D32 \
                 "}, a, b, add, 1, 1, 0, 0;\n}" \
                 : GDN_SM90_ACCUMULATORS(d) \
                 : "r"(a), "r"(b), "r"(accumulate))
#define GDN_SM90_WGMMA_SS_128(type, d, a, b, accumulate) \
    asm volatile("{\n .reg .pred add;\n .reg .b64 a, b;\n setp.ne.b32 add, %66, 0;\n" \
                 " mov.b64 a, {%64, " GDN_SM90_OPERAND "};\n mov.b64 b, {%65, " GDN_SM90_OPERAND "};\n" \
                 " wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" GDN_SM90_D64 \
                 "}, a, b, add, 1, 1, 0, 0;\n}" \
                 : GDN_SM90_ACCUMULATORS(d[0]), GDN_SM90_ACCUMULATORS(d[1]) \
                 : "r"(a), "r"(b), "r"(accumulate))
/* clang-format on */

/* d (+)= a b, A in registers. kTransposed: the rows of B's tile are its 16 rows of k, else its 64 columns. */
template <typename T, bool kTransposed>
static __device__ __forceinline__ void wgmma_rs(float (&d)[32], const uint32_t (&a)[4], uint32_t b, bool accumulate)
{
    const int add = accumulate;
    constexpr int kTrans = kTransposed ? 1 : 0;
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        GDN_SM90_WGMMA_RS("bf16", d, a, b, add, kTrans);
    } else {
        GDN_SM90_WGMMA_RS("f16", d, a, b, add, kTrans);
    }
}

/* The same for 128 columns: two tiles, or one of 128 rows. */
template <typename T, bool kTransposed>
static __device__ __forceinline__ void wgmma_rs(float (&d)[2][32], const uint32_t (&a)[4], uint32_t b, bool accumulate)
{
    const int add = accumulate;
    constexpr int kTrans = kTransposed ? 1 : 0;
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        GDN_SM90_WGMMA_RS_128("bf16", d, a, b, add, kTrans);
    } else {
        GDN_SM90_WGMMA_RS_128("f16", d, a, b, add, kTrans);
    }
}

/* The same for 32 columns, not transposed. */
template <typename T>
static __device__ __forceinline__ void wgmma_rs(float (&d)[16], const uint32_t (&a)[4], uint32_t b, bool accumulate)
{
    const int add = accumulate;
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        GDN_SM90_WGMMA_RS_32("bf16", d, a, b, add);
    } else {
        GDN_SM90_WGMMA_RS_32("f16", d, a, b, add);
    }
}

/* d (+)= a b, both in shared memory, rows along k. */
template <typename T>
static __device__ __forceinline__ void wgmma_ss(float (&d)[32], uint32_t a, uint32_t b, bool accumulate)
{
    const int add = accumulate;
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        GDN_SM90_WGMMA_SS("bf16", d, a, b, add);
    } else {
        GDN_SM90_WGMMA_SS("f16", d, a, b, add);
    }
}

/* The same for B of 128 rows. */
template <typename T>
static __device__ __forceinline__ void wgmma_ss(float (&d)[2][32], uint32_t a, uint32_t b, bool accumulate)
{
    const int add = accumulate;
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        GDN_SM90_WGMMA_SS_128("bf16", d, a, b, add);
    } else {
        GDN_SM90_WGMMA_SS_128("f16", d, a, b, add);
    }
}

#undef GDN_SM90_WGMMA_SS_128
#undef GDN_SM90_WGMMA_SS
#undef GDN_SM90_WGMMA_RS_128
#undef GDN_SM90_WGMMA_RS_32
#undef GDN_SM90_WGMMA_RS
#undef GDN_SM90_OPERAND
#undef GDN_SM90_D64
#undef GDN_SM90_D32
#undef GDN_SM90_ACCUMULATORS

} // namespace sm90
} // namespace gdn

#endif
