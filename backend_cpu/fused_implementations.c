/* fused_implementations.h: what one instruction set adds to fused_prefill.c and fused_decode.c is its name, a look at
 * the device, and its table of kernels. */
#include "fused_implementations.h"

#include <stdio.h>

#include "cpu_device.h"
#include "cpu_isa.h"
#include "cpu_parallel.h"
#include "fused_decode.h"
#include "fused_prefill.h"

static bool device_has(const gdn_device *device, gdn_cpu_isa isa, gdn_reason *reason)
{
    const gdn_cpu_isa offered = gdn_cpu_device_of(device)->isa;
    if (isa <= offered) {
        return true;
    }
    snprintf(reason->text, sizeof(reason->text), "the context's instruction set is %s", gdn_cpu_isa_name(offered));
    return false;
}

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

#if defined(__x86_64__)

#if defined(GDN_CPU_HAVE_AMX_BF16) || defined(GDN_CPU_HAVE_AVX512_BF16)

/* Instructions beyond those of the context's instruction set. */
static bool has_extension(bool (*has)(const char **lack), gdn_reason *reason)
{
    const char *lack = "";
    const bool is_there = has(&lack);
    if (!is_there) {
        snprintf(reason->text, sizeof(reason->text), "%s", lack);
    }
    return is_there;
}

#endif

#if defined(GDN_CPU_HAVE_AMX_BF16)

static bool amx_bf16_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX512, reason) &&
           gdn_fused_prefill_supports(&gdn_cpu_kernels_amx_bf16, problem, reason) &&
           has_extension(gdn_cpu_has_amx_bf16, reason);
}
static gdn_status amx_bf16_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                        gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_amx_bf16, device, problem, max_workspace, choice);
}
static gdn_status amx_bf16_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_amx_bf16, device, run);
}

const gdn_implementation gdn_cpu_amx_bf16_prefill = {
    .name = "cpu.amx_bf16.prefill",
    .summary = "fused chunks in cache, AMX bfloat16 products",
    .operation = GDN_OPERATION_PREFILL,
    .supports = amx_bf16_supports_prefill,
    .book = amx_bf16_book_prefill,
    .prefill = amx_bf16_prefill,
};

#endif

#if defined(GDN_CPU_HAVE_AVX512_BF16)

static bool avx512_bf16_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX512, reason) &&
           gdn_fused_prefill_supports(&gdn_cpu_kernels_avx512_bf16, problem, reason) &&
           has_extension(gdn_cpu_has_avx512_bf16, reason);
}
static gdn_status avx512_bf16_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                           gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_avx512_bf16, device, problem, max_workspace, choice);
}
static gdn_status avx512_bf16_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_avx512_bf16, device, run);
}

const gdn_implementation gdn_cpu_avx512_bf16_prefill = {
    .name = "cpu.avx512_bf16.prefill",
    .summary = "fused chunks in cache, AVX512-BF16 bfloat16 products",
    .operation = GDN_OPERATION_PREFILL,
    .supports = avx512_bf16_supports_prefill,
    .book = avx512_bf16_book_prefill,
    .prefill = avx512_bf16_prefill,
};

/* Decode in float32 all the same: what the instructions are good for is rounding states of that type. */
static bool avx512_bf16_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    if (!device_has(device, GDN_CPU_ISA_AVX512, reason) || !gdn_fused_decode_supports(problem, reason)) {
        return false;
    }
    if (problem->state.dtype != GDN_DTYPE_BF16 && problem->final_state.dtype != GDN_DTYPE_BF16) {
        snprintf(reason->text, sizeof(reason->text), "no state is bfloat16, and only their rounding is faster");
        return false;
    }
    return has_extension(gdn_cpu_has_avx512_bf16, reason);
}
static gdn_status avx512_bf16_decode(const gdn_device *device, const gdn_decode_run *run)
{
    return run_decode(&gdn_cpu_kernels_avx512_bf16, device, run);
}

const gdn_implementation gdn_cpu_avx512_bf16_decode = {
    .name = "cpu.avx512_bf16.decode",
    .summary = "one pass over the state, AVX-512 float32, bfloat16 states rounded by AVX512-BF16",
    .operation = GDN_OPERATION_DECODE,
    .supports = avx512_bf16_supports_decode,
    .book = book_decode,
    .decode = avx512_bf16_decode,
};

#endif

static bool avx512_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX512, reason) &&
           gdn_fused_prefill_supports(&gdn_cpu_kernels_avx512, problem, reason);
}
static gdn_status avx512_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                      gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_avx512, device, problem, max_workspace, choice);
}
static gdn_status avx512_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_avx512, device, run);
}
static bool avx512_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX512, reason) && gdn_fused_decode_supports(problem, reason);
}
static gdn_status avx512_decode(const gdn_device *device, const gdn_decode_run *run)
{
    return run_decode(&gdn_cpu_kernels_avx512, device, run);
}

const gdn_implementation gdn_cpu_avx512_prefill = {
    .name = "cpu.avx512.prefill",
    .summary = "fused chunks in cache, AVX-512 float32",
    .operation = GDN_OPERATION_PREFILL,
    .supports = avx512_supports_prefill,
    .book = avx512_book_prefill,
    .prefill = avx512_prefill,
};
const gdn_implementation gdn_cpu_avx512_decode = {
    .name = "cpu.avx512.decode",
    .summary = "one pass over the state, AVX-512 float32",
    .operation = GDN_OPERATION_DECODE,
    .supports = avx512_supports_decode,
    .book = book_decode,
    .decode = avx512_decode,
};

static bool avx2_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX2, reason) &&
           gdn_fused_prefill_supports(&gdn_cpu_kernels_avx2, problem, reason);
}
static gdn_status avx2_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                    gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_avx2, device, problem, max_workspace, choice);
}
static gdn_status avx2_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_avx2, device, run);
}
static bool avx2_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_AVX2, reason) && gdn_fused_decode_supports(problem, reason);
}
static gdn_status avx2_decode(const gdn_device *device, const gdn_decode_run *run)
{
    return run_decode(&gdn_cpu_kernels_avx2, device, run);
}

const gdn_implementation gdn_cpu_avx2_prefill = {
    .name = "cpu.avx2.prefill",
    .summary = "fused chunks in cache, AVX2 float32",
    .operation = GDN_OPERATION_PREFILL,
    .supports = avx2_supports_prefill,
    .book = avx2_book_prefill,
    .prefill = avx2_prefill,
};
const gdn_implementation gdn_cpu_avx2_decode = {
    .name = "cpu.avx2.decode",
    .summary = "one pass over the state, AVX2 float32",
    .operation = GDN_OPERATION_DECODE,
    .supports = avx2_supports_decode,
    .book = book_decode,
    .decode = avx2_decode,
};

#elif defined(__aarch64__)

static bool neon_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_NEON, reason) &&
           gdn_fused_prefill_supports(&gdn_cpu_kernels_neon, problem, reason);
}
static gdn_status neon_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                    gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_neon, device, problem, max_workspace, choice);
}
static gdn_status neon_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_neon, device, run);
}
static bool neon_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    return device_has(device, GDN_CPU_ISA_NEON, reason) && gdn_fused_decode_supports(problem, reason);
}
static gdn_status neon_decode(const gdn_device *device, const gdn_decode_run *run)
{
    return run_decode(&gdn_cpu_kernels_neon, device, run);
}

const gdn_implementation gdn_cpu_neon_prefill = {
    .name = "cpu.neon.prefill",
    .summary = "fused chunks in cache, NEON float32",
    .operation = GDN_OPERATION_PREFILL,
    .supports = neon_supports_prefill,
    .book = neon_book_prefill,
    .prefill = neon_prefill,
};
const gdn_implementation gdn_cpu_neon_decode = {
    .name = "cpu.neon.decode",
    .summary = "one pass over the state, NEON float32",
    .operation = GDN_OPERATION_DECODE,
    .supports = neon_supports_decode,
    .book = book_decode,
    .decode = neon_decode,
};

#endif

static bool scalar_supports_prefill(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    (void)device;
    return gdn_fused_prefill_supports(&gdn_cpu_kernels_scalar, problem, reason);
}
static gdn_status scalar_book_prefill(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                      gdn_choice *choice)
{
    return book_prefill(&gdn_cpu_kernels_scalar, device, problem, max_workspace, choice);
}
static gdn_status scalar_prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(&gdn_cpu_kernels_scalar, device, run);
}
static bool scalar_supports_decode(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    (void)device;
    return gdn_fused_decode_supports(problem, reason);
}
static gdn_status scalar_decode(const gdn_device *device, const gdn_decode_run *run)
{
    return run_decode(&gdn_cpu_kernels_scalar, device, run);
}

const gdn_implementation gdn_cpu_scalar_prefill = {
    .name = "cpu.scalar.prefill",
    .summary = "fused chunks in cache, plain C",
    .operation = GDN_OPERATION_PREFILL,
    .supports = scalar_supports_prefill,
    .book = scalar_book_prefill,
    .prefill = scalar_prefill,
};
const gdn_implementation gdn_cpu_scalar_decode = {
    .name = "cpu.scalar.decode",
    .summary = "one pass over the state, plain C",
    .operation = GDN_OPERATION_DECODE,
    .supports = scalar_supports_decode,
    .book = book_decode,
    .decode = scalar_decode,
};
