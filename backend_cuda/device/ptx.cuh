/* One PTX instruction a function, nothing else. sm_80 and later unless a function says otherwise.
 *
 * Fragment layouts, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *   accumulator 16 x 8   c0, c1 = (g, 2t), (g, 2t + 1)      c2, c3 = the same of row g + 8
 *   A 16 x 16 (16-bit)   a0 = (g, 2t..)  a1 = (g + 8, 2t..)  a2 = (g, 8 + 2t..)  a3 = (g + 8, 8 + 2t..)
 *   B 16 x 8  (16-bit)   b0 = (2t.., g)  b1 = (8 + 2t.., g)
 * so two accumulators side by side are, once packed to 16 bits, the A operand of a next product, and an
 * 8 x 8 block that ldmatrix reads from row-major memory is a quarter of A, or B of the transposed block.
 */
#ifndef GDN_CUDA_DEVICE_PTX_CUH
#define GDN_CUDA_DEVICE_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace gdn
{

static __device__ __forceinline__ uint32_t smem_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/* 16 bytes to shared memory; with `valid` false, 16 zero bytes and nothing is read. */
static __device__ __forceinline__ void cp_async_16(uint32_t dst, const void *src, bool valid)
{
    const int src_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(src_bytes) : "memory");
}

/* The same of 4 bytes. */
static __device__ __forceinline__ void cp_async_4(uint32_t dst, const void *src, bool valid)
{
    const int src_bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(src_bytes) : "memory");
}

static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending> static __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/* Programmatic dependent launch, which devices before 9.0 do not have. A kernel launched with that attribute may begin while the
 * kernel before it in the stream still runs: it may touch global memory once the wait is over, and every thread has to
 * wait, since the kernel after it waits for this one alone. Launched without, it waits for nothing. */
static __device__ __forceinline__ void wait_for_kernel_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets a kernel launched so begin as soon as all blocks of this one have. */
static __device__ __forceinline__ void let_kernel_after_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* 16 bytes of global memory in one access, whatever registers the compiler would rather have them in. */
static __device__ __forceinline__ uint4 load_global_16(const void *from)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

/* The same, asking for the whole line of 128 bytes that they are in. */
static __device__ __forceinline__ uint4 load_global_16_of_line(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

/* An L2 policy: these lines are to be kept longer than others. */
static __device__ __forceinline__ uint64_t policy_to_keep()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Both loads, with lines that the L2 is to keep. */
static __device__ __forceinline__ uint4 load_global_16_kept(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from), "l"(policy_to_keep())
                 : "memory");
    return v;
}

static __device__ __forceinline__ uint4 load_global_16_of_line_kept(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L2::cache_hint.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from), "l"(policy_to_keep())
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store_global_16(void *to, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* A word that other blocks write. */
static __device__ __forceinline__ int32_t load_relaxed(const int32_t *word)
{
    int32_t x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    return x;
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same of one 8 x 8 block; lanes 0..7 give the addresses of its rows. */
static __device__ __forceinline__ uint32_t ldmatrix_x1(uint32_t address)
{
    uint32_t r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}

static __device__ __forceinline__ uint32_t ldmatrix_x1_trans(uint32_t address)
{
    uint32_t r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}

/* Transposes an 8 x 8 block of 16-bit elements held as (g, 2t..). */
static __device__ __forceinline__ uint32_t movmatrix_trans(uint32_t r)
{
    uint32_t transposed;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(r));
    return transposed;
}

/* sm_90 and later. Stores four 8 x 8 blocks held as (g, 2t..); lane 8 i + r gives the address of row r of block i. */
static __device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The same of their transposes. */
static __device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The same of one block; lanes 0..7 give the addresses of its rows. */
static __device__ __forceinline__ void stmatrix_x1_trans(uint32_t address, uint32_t r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(r) : "memory");
}

/* Barrier `id` (1..15; 0 is __syncthreads) of `threads` threads, whole warps, some of which wait for it and some only
 * arrive. What a thread wrote before either is seen by those that waited. */
static __device__ __forceinline__ void barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ uint4 load_shared_16(uint32_t address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

static __device__ __forceinline__ float2 load_shared_float2(uint32_t address)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}

static __device__ __forceinline__ float load_shared_float(uint32_t address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

static __device__ __forceinline__ uint32_t load_shared_u32(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

static __device__ __forceinline__ uint32_t load_shared_u16(uint32_t address)
{
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ void store_shared_u32(uint32_t address, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

static __device__ __forceinline__ void store_shared_u16(uint32_t address, uint16_t v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(v) : "memory");
}

static __device__ __forceinline__ void store_shared_float(uint32_t address, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

static __device__ __forceinline__ void store_shared_float2(uint32_t address, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

static __device__ __forceinline__ void store_shared_16(uint32_t address, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* d += a b, m16n8k16, operands of type T, float32 accumulation. */
template <typename T>
static __device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma_16816<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                         uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_16816<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d += a b, m16n8k8, operands rounded to TF32 (round_tf32), float32 accumulation. */
static __device__ __forceinline__ void mma_1688_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The float32 with the 10-bit mantissa of TF32 nearest to x. */
static __device__ __forceinline__ uint32_t round_tf32(float x)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

/* 2^x; subnormal results become 0. */
static __device__ __forceinline__ float exp2_approx(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* The same value, which the compiler must take for another one: what is computed from it stays inside a loop, where it would
 * otherwise be kept in registers from outside. */
template <typename T> static __device__ __forceinline__ T opaque(T x)
{
    asm volatile("" : "+r"(x));
    return x;
}

} // namespace gdn

#endif
