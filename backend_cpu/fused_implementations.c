/* fused_implementations.h: what one instruction set adds to fused_prefill.c and fused_decode.c is its name, a look at
 * the device, and its table of kernels. */
#include "fused_implementations.h"

#include <stdio.h>

#include "cpu_device.h"
#include "cpu_isa.h"
#include "cpu_parallel.h"
#include "fused_decode.h"
#include "fused_prefill.h"

/* ---------------------------------------------------------------------------------------- Supports */

/* Whether the CPU has instructions beyond those of the context's instruction set; *lack: why not. */
typedef bool (*extension_fn)(const char **lack);

static bool device_has(const gdn_device *device, gdn_cpu_isa isa, gdn_reason *reason)
{
    const gdn_cpu_isa offered = gdn_cpu_device_of(device)->isa;
    if (isa <= offered) {
        return true;
    }
    snprintf(reason->text, sizeof(reason->text), "the context's instruction set is %s", gdn_cpu_isa_name(offered));
    return false;
}

static bool has_extension(extension_fn extension, gdn_reason *reason)
{
    const char *lack = "";
    if (extension == NULL || extension(&lack)) {
        return true;
    }
    snprintf(reason->text, sizeof(reason->text), "%s", lack);
    return false;
}

static bool supports_prefill(const gdn_cpu_kernels *kernels, gdn_cpu_isa isa, extension_fn extension,
                             const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, isa, reason) && gdn_fused_prefill_supports(kernels, problem, reason) &&
           has_extension(extension, reason);
}

/* Decode is in float32 all the same: what an extension is good for is rounding states to bfloat16. */
static bool supports_decode(gdn_cpu_isa isa, extension_fn extension, const gdn_device *device,
                            const gdn_problem *problem, gdn_reason *reason)
{
    if (!device_has(device, isa, reason) || !gdn_fused_decode_supports(problem, reason)) {
        return false;
    }
    if (extension != NULL && problem->state.dtype != GDN_DTYPE_BF16 && problem->final_state.dtype != GDN_DTYPE_BF16) {
        snprintf(reason->text, sizeof(reason->text), "no state is bfloat16, and only their rounding is faster");
        return false;
    }
    return has_extension(extension, reason);
}

/* ------------------------------------------------------------------------------------ Book and run */

/* Nanoseconds on one thread (docs/performance.md): tokens pass over 32 elements of state in each. */
static double state_time(const gdn_problem *problem, double tokens)
{
    return tokens * problem->num_v_heads * problem->head_k_dim * problem->head_v_dim / 32;
}

/* A sequence's state, and the empty rows of its last chunk, take as long as 12 tokens. */
static double prefill_time(const gdn_problem *problem, int64_t seqs, int64_t tokens)
{
    return state_time(problem, (double)tokens + 12 * (double)seqs);
}

/* A row's first token waits for memory, the others find the state in cache. */
static double decode_time(const gdn_problem *problem, int64_t rows)
{
    return state_time(problem, (double)rows * (4 + (double)problem->tokens_per_row));
}

static gdn_status book_prefill(const gdn_cpu_kernels *kernels, const gdn_device *device, const gdn_problem *problem,
                               size_t max_workspace, gdn_choice *choice)
{
    const int threads = gdn_cpu_most_team(device, prefill_time(problem, problem->max_seqs, problem->max_tokens));
    return gdn_fused_prefill_book(kernels, threads, problem, max_workspace, choice);
}

static gdn_status run_prefill(const gdn_cpu_kernels *kernels, const gdn_device *device, const gdn_prefill_run *run)
{
    const gdn_prefill_args *args = run->args;
    const int threads = gdn_cpu_team(device, prefill_time(run->problem, args->num_seqs, args->total_tokens));
    return gdn_fused_prefill_run(kernels, threads, run);
}

static gdn_status book_decode(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                              gdn_choice *choice)
{
    const int threads = gdn_cpu_most_team(device, decode_time(problem, problem->max_seqs));
    return gdn_fused_decode_book(threads, problem, max_workspace, choice);
}

static gdn_status run_decode(const gdn_cpu_kernels *kernels, const gdn_device *device, const gdn_decode_run *run)
{
    return gdn_fused_decode_run(kernels, gdn_cpu_team(device, decode_time(run->problem, run->args->num_rows)), run);
}

/* --------------------------------------------------------------------------------- Implementations */

/* An implementation's functions are those above, given what it is of: cpu.NAME.prefill and cpu.NAME.decode for the kernels
 * gdn_cpu_kernels_NAME, on a device that has ISA and, where it is not NULL, EXTENSION. */
#define PREFILL(NAME, ISA, EXTENSION, SUMMARY)                                                                        \
    static bool NAME##_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)     \
    {                                                                                                                 \
        return supports_prefill(&gdn_cpu_kernels_##NAME, ISA, EXTENSION, device, problem, reason);                    \
    }                                                                                                                 \
    static gdn_status NAME##_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, \
                                          gdn_choice *choice)                                                         \
    {                                                                                                                 \
        return book_prefill(&gdn_cpu_kernels_##NAME, device, problem, max_workspace, choice);                         \
    }                                                                                                                 \
    static gdn_status NAME##_prefill(const gdn_device *device, const gdn_prefill_run *run)                            \
    {                                                                                                                 \
        return run_prefill(&gdn_cpu_kernels_##NAME, device, run);                                                     \
    }                                                                                                                 \
    const gdn_implementation gdn_cpu_##NAME##_prefill = {                                                             \
        .name = "cpu." #NAME ".prefill",                                                                              \
        .summary = SUMMARY,                                                                                           \
        .operation = GDN_OPERATION_PREFILL,                                                                           \
        .supports = NAME##_supports_prefill,                                                                          \
        .book = NAME##_book_prefill,                                                                                  \
        .prefill = NAME##_prefill,                                                                                    \
    }

#define DECODE(NAME, ISA, EXTENSION, SUMMARY)                                                                    \
    static bool NAME##_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason) \
    {                                                                                                            \
        return supports_decode(ISA, EXTENSION, device, problem, reason);                                         \
    }                                                                                                            \
    static gdn_status NAME##_decode(const gdn_device *device, const gdn_decode_run *run)                         \
    {                                                                                                            \
        return run_decode(&gdn_cpu_kernels_##NAME, device, run);                                                 \
    }                                                                                                            \
    const gdn_implementation gdn_cpu_##NAME##_decode = {                                                         \
        .name = "cpu." #NAME ".decode",                                                                          \
        .summary = SUMMARY,                                                                                      \
        .operation = GDN_OPERATION_DECODE,                                                                       \
        .supports = NAME##_supports_decode,                                                                      \
        .book = book_decode,                                                                                     \
        .decode = NAME##_decode,                                                                                 \
    }

#if defined(__x86_64__)
#if defined(GDN_CPU_HAVE_AMX_BF16)
PREFILL(amx_bf16, GDN_CPU_ISA_AVX512, gdn_cpu_has_amx_bf16, "fused chunks in cache, AMX bfloat16 products");
#endif
#if defined(GDN_CPU_HAVE_AVX512_BF16)
PREFILL(avx512_bf16, GDN_CPU_ISA_AVX512, gdn_cpu_has_avx512_bf16,
        "fused chunks in cache, AVX512-BF16 bfloat16 products");
DECODE(avx512_bf16, GDN_CPU_ISA_AVX512, gdn_cpu_has_avx512_bf16,
       "one pass over the state, AVX-512 float32, bfloat16 states rounded by AVX512-BF16");
#endif
PREFILL(avx512, GDN_CPU_ISA_AVX512, NULL, "fused chunks in cache, AVX-512 float32");
DECODE(avx512, GDN_CPU_ISA_AVX512, NULL, "one pass over the state, AVX-512 float32");
PREFILL(avx2, GDN_CPU_ISA_AVX2, NULL, "fused chunks in cache, AVX2 float32");
DECODE(avx2, GDN_CPU_ISA_AVX2, NULL, "one pass over the state, AVX2 float32");
#elif defined(__aarch64__)
PREFILL(neon, GDN_CPU_ISA_NEON, NULL, "fused chunks in cache, NEON float32");
DECODE(neon, GDN_CPU_ISA_NEON, NULL, "one pass over the state, NEON float32");
#endif
PREFILL(scalar, GDN_CPU_ISA_SCALAR, NULL, "fused chunks in cache, plain C");
DECODE(scalar, GDN_CPU_ISA_SCALAR, NULL, "one pass over the state, plain C");
