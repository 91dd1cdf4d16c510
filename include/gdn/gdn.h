/* libgdn: Gated DeltaNet prefill and decode on a CPU or a GPU.
 *
 * One head's token recurrence, which every entry point computes (row vectors; S is [K, V]):
 *
 *     S_t = alpha_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t
 *     o_t = scale * q_t S_t                                   alpha_t = exp(log_decay_t)
 *
 * (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", equation 10). docs/algorithm.md derives the
 * chunked form from it. The state is kept in float32 inside every call.
 *
 * Conventions of this header
 *   Shapes    are written outermost first; strides count elements, not bytes.
 *   Memory    is the caller's, always. "Backend memory" is host memory for a CPU context and the
 *             context's device memory for a CUDA context; q, k, v, o, gates, states, cu_seqlens,
 *             slots and the workspace all live there. Argument structs are host memory.
 *   Errors    every function that can fail returns a gdn_status; gdn_last_error() then names the
 *             argument, its value and what is allowed. A call that fails on its arguments has
 *             written nothing. Invalid enums, sizes and pointers are errors, not undefined behaviour.
 *             The comments below name statuses without their prefix GDN_ERROR_.
 *   Structs   start with struct_size and grow at their end. Fill them with their _init function,
 *             which writes the defaults, then change fields. (_init passes sizeof to _init_sized,
 *             which is what a binding for another language calls.)
 *   Threads   a context, and the plans made from it, may be used from several threads at once if
 *             each call has a workspace of its own. Destroy them only when no other thread uses them.
 *   Forks     a child may use CPU contexts of before the fork (on how many threads: docs/environment.md),
 *             but no CUDA context, nor CUDA at all where the parent has used it.
 *   Stack     on a CPU a call takes less than 32 KiB of the calling thread's stack, and as much of that
 *             of each thread that OpenMP gives it. What OpenMP and a BLAS library take is their own: libgomp
 *             takes 128 bytes of the caller's for each thread.
 *   Streams   `stream` is a cudaStream_t for a CUDA context (NULL: the default stream) and ignored
 *             by a CPU context. CUDA calls return when the work is queued.
 */
#ifndef GDN_GDN_H
#define GDN_GDN_H

#include <stddef.h>
#include <stdint.h>

#if defined(GDN_STATIC)
#define GDN_API
#elif defined(__GNUC__)
#define GDN_API __attribute__((visibility("default")))
#else
#define GDN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. The library's own is gdn_version(). */
#define GDN_VERSION_MAJOR 0
#define GDN_VERSION_MINOR 1
#define GDN_VERSION_PATCH 0
#define GDN_VERSION_NUMBER (GDN_VERSION_MAJOR * 10000 + GDN_VERSION_MINOR * 100 + GDN_VERSION_PATCH)

/* Alignment, in bytes, that a workspace pointer must have on every backend. */
#define GDN_WORKSPACE_ALIGNMENT 256

/* Most tokens of one row of a decode call. */
#define GDN_MAX_DECODE_TOKENS 16

/* ---------------------------------------------------------------------------------- Statuses */

typedef enum gdn_status {
    GDN_OK = 0,
    GDN_ERROR_INVALID_ARGUMENT = 1, /* an argument is wrong; the message names it */
    GDN_ERROR_UNSUPPORTED = 2, /* valid, but nothing in this build or on this device does it */
    GDN_ERROR_SLOT_CONFLICT = 3, /* a slot written by one row is read or written by another */
    GDN_ERROR_WORKSPACE_TOO_SMALL = 4, /* workspace_size is below gdn_plan_workspace_size */
    GDN_ERROR_OUT_OF_MEMORY = 5, /* the allocator or the device had no memory */
    GDN_ERROR_BACKEND_UNAVAILABLE = 6, /* the backend is not built, not found, of another version or has no device */
    GDN_ERROR_DEVICE = 7, /* the device or its driver reported an error; the message names it */
    GDN_ERROR_VERSION_MISMATCH = 8, /* a struct_size that this version of the library cannot read */
    GDN_ERROR_INTERNAL = 9 /* a fault of the library; please report it */
} gdn_status;

/* The constant's name, such as "GDN_ERROR_DEVICE"; "unknown gdn_status" for any other value. A static string. */
GDN_API const char *gdn_status_string(gdn_status status);

/* The message of the calling thread's last failing call, one line without a newline; "" before any.
 * Valid until that thread's next failing call. */
GDN_API const char *gdn_last_error(void);

/* The library's version, as a GDN_VERSION_NUMBER and as "0.1.0"; and what it was built with, as words
 * separated by spaces, such as "cpu openmp openblas". Static strings. */
GDN_API int32_t gdn_version(void);
GDN_API const char *gdn_version_string(void);
GDN_API const char *gdn_features(void);

/* ------------------------------------------------------------------------- Element types, tensors */

typedef enum gdn_dtype {
    GDN_DTYPE_NONE = 0,
    GDN_DTYPE_F32 = 1,
    GDN_DTYPE_BF16 = 2,
    GDN_DTYPE_F16 = 3,
    GDN_DTYPE_I32 = 4,
    GDN_DTYPE_I64 = 5,
    GDN_DTYPE_U8 = 6
} gdn_dtype;

/* Bytes of one element, 0 for NONE and for unknown values; and the name, such as "bf16", "none" or "unknown". */
GDN_API size_t gdn_dtype_size(gdn_dtype dtype);
GDN_API const char *gdn_dtype_name(gdn_dtype dtype);

/* Converts `count` elements between float32, bfloat16 and float16 in host memory. Narrowing rounds
 * to nearest, ties to even; NaN stays NaN; overflow gives infinity.
 * Returns INVALID_ARGUMENT for any other dtype, a NULL or unaligned pointer, a negative or impossible count, or arrays
 * that overlap. With a count of 0 both pointers may be NULL. */
GDN_API gdn_status gdn_convert(void *dst, gdn_dtype dst_dtype, const void *src, gdn_dtype src_dtype, int64_t count);

/* A borrowed view: element (i0, i1, ...) lies i0 * stride[0] + i1 * stride[1] + ... elements past data. */
#define GDN_MAX_RANK 5
typedef struct gdn_tensor {
    void *data;
    gdn_dtype dtype;
    int32_t rank;
    int64_t size[GDN_MAX_RANK];
    int64_t stride[GDN_MAX_RANK];
} gdn_tensor;

/* A dense row-major view of `data` with size[0..rank-1], each >= 0. With a rank outside 1..GDN_MAX_RANK or
 * size NULL the result has rank 0, which every call refuses by name. */
GDN_API gdn_tensor gdn_tensor_dense(void *data, gdn_dtype dtype, int32_t rank, const int64_t *size);

/* ----------------------------------------------------------------------------------- Backends */

/* What gdn_backend_info says about one backend. Filled by the library; strings are NUL-terminated. */
typedef struct gdn_backend_report {
    size_t struct_size; /* set by the caller: sizeof(gdn_backend_report) */
    int32_t usable; /* 1: a context can be created on it */
    int32_t num_devices; /* devices it can use; 1 for the CPU */
    char name[32]; /* "cpu", "cuda" */
    char description[224]; /* usable: what it runs on; one line */
    char reason[256]; /* not usable: why; one line. Else "" */
} gdn_backend_report;

/* The backends this library knows, usable or not, best first. gdn_backend_info fills *report for
 * `index` in 0..gdn_backend_count()-1. It looks at the machine afresh each time: it loads a module (from
 * the library's own folder or from GDN_BACKEND_PATH) to ask it, but creates no device context.
 * Returns INVALID_ARGUMENT (index, NULL) or VERSION_MISMATCH (struct_size). */
GDN_API int32_t gdn_backend_count(void);
GDN_API gdn_status gdn_backend_info(int32_t index, gdn_backend_report *report);

/* ------------------------------------------------------------------------------------ Context */

typedef struct gdn_context gdn_context; /* one device of one backend */

typedef enum gdn_log_level {
    GDN_LOG_WARNING = 0, /* what was asked for has no effect, such as a mistyped prefix in `implementations` */
    GDN_LOG_INFO = 1, /* when a context is created: what was found and chosen */
    GDN_LOG_CHOICE = 2 /* when a plan is created: each implementation chosen or refused, with the reason */
} gdn_log_level;

/* Called with one line without a newline, in the thread of the call that caused it; concurrently if
 * several threads use the context. */
typedef void (*gdn_log_fn)(void *user, gdn_log_level level, const char *line);

/* Host memory for contexts and plans; nothing else is ever allocated on the host. `alloc` returns
 * at least `size` bytes aligned to `alignment`, a power of two, or NULL. Set both functions or neither. */
typedef struct gdn_allocator {
    void *(*alloc)(void *user, size_t size, size_t alignment);
    void (*free)(void *user, void *ptr);
    void *user;
} gdn_allocator;

typedef enum gdn_blas {
    GDN_BLAS_AUTO = 0, /* a BLAS library for the generic products, if the build and the machine have one */
    GDN_BLAS_OFF = 1 /* the library's own loops; no BLAS library is called or configured */
} gdn_blas;

/* Strings are needed during gdn_context_create only; allocator, log and what their user pointers refer to, until the
 * context is destroyed. The GDN_* variables (docs/environment.md) fill options left at their defaults. */
typedef struct gdn_context_options {
    size_t struct_size;
    const char *backend; /* "auto" (default: the best usable one), "cpu", "cuda" */
    int32_t device; /* which of the backend's devices, from 0; default 0 */
    int32_t num_threads; /* CPU: threads a call uses, the caller's included, at most 1024; 0 (default): as many as
                            the cgroup quota and the affinity mask allow */
    gdn_blas blas; /* default AUTO. The thread count of a pthread build of OpenBLAS is global to the process: the
                      first context that uses it sets it to 1, the last one destroyed restores it */
    int32_t ignore_environment; /* 1: read no GDN_* variable; default 0 */
    const char *implementations; /* NULL: all. Else name prefixes to allow, separated by commas, a "-" before those
                                    to exclude: "generic", "-cpu.avx512"; at most 255 characters */
    const char *cpu_isa; /* NULL, or the highest instruction set to use: "scalar", "avx2", "avx512", "neon". It
                            never raises what the CPU offers; another architecture's name counts as its equal here
                            ("neon" as "avx2") */
    const char *backend_path; /* NULL, or a folder to search for backend modules after the library's own */
    gdn_allocator allocator; /* default: both functions NULL, the C library's */
    gdn_log_fn log; /* NULL (default): no logging, unless GDN_VERBOSE asks for it on stderr */
    void *log_user;
} gdn_context_options;

/* Writes the defaults above. Returns INVALID_ARGUMENT (NULL) or VERSION_MISMATCH (struct_size). */
GDN_API gdn_status gdn_context_options_init_sized(gdn_context_options *options, size_t struct_size);
static inline gdn_status gdn_context_options_init(gdn_context_options *options)
{
    return gdn_context_options_init_sized(options, sizeof(*options));
}

/* Creates a context; options NULL means the defaults. On failure *context is NULL.
 * Returns INVALID_ARGUMENT, VERSION_MISMATCH, BACKEND_UNAVAILABLE, OUT_OF_MEMORY or DEVICE.
 * Call gdn_context_destroy when the plans made from the context are destroyed and their work is done. It
 * sets *context to NULL, and accepts NULL and a NULL *context. */
GDN_API gdn_status gdn_context_create(gdn_context **context, const gdn_context_options *options);
GDN_API void gdn_context_destroy(gdn_context **context);

/* The name of the context's backend, such as "cpu"; "" for NULL. A static string. */
GDN_API const char *gdn_context_backend(const gdn_context *context);

/* Backend memory for programs that have no allocator of their own: allocate (aligned to
 * GDN_WORKSPACE_ALIGNMENT), free, copy, fill with a byte (0..255), wait for a stream. Copies and fills are
 * in stream order; on a CPU context they are done on return. `direction` says which side is host memory; a
 * copy on a CUDA context has finished with pageable host memory when it returns. gdn_memory_free sets *ptr
 * to NULL, and accepts a NULL *ptr.
 * Return INVALID_ARGUMENT, OUT_OF_MEMORY or DEVICE. */
typedef enum gdn_copy_direction {
    GDN_COPY_TO_BACKEND = 0,
    GDN_COPY_FROM_BACKEND = 1,
    GDN_COPY_WITHIN_BACKEND = 2
} gdn_copy_direction;

GDN_API gdn_status gdn_memory_alloc(gdn_context *context, void **ptr, size_t bytes);
GDN_API gdn_status gdn_memory_free(gdn_context *context, void **ptr);
GDN_API gdn_status gdn_memory_copy(gdn_context *context, void *dst, const void *src, size_t bytes,
                                   gdn_copy_direction direction, void *stream);
GDN_API gdn_status gdn_memory_fill(gdn_context *context, void *dst, int byte, size_t bytes, void *stream);
GDN_API gdn_status gdn_synchronize(gdn_context *context, void *stream);

/* ------------------------------------------------------------------------------------ Problem */

typedef enum gdn_operation {
    GDN_OPERATION_PREFILL = 0, /* packed sequences of any length */
    GDN_OPERATION_DECODE = 1 /* rows of 1..16 tokens: decode, or the verification of drafted tokens */
} gdn_operation;

/* Which q/k head value head h uses; r = num_v_heads / num_k_heads. */
typedef enum gdn_head_map {
    GDN_HEAD_MAP_GROUPED = 0, /* h / r (repeat-interleave), as in transformers and fla */
    GDN_HEAD_MAP_TILED = 1 /* h mod num_k_heads, as in ggml */
} gdn_head_map;

typedef enum gdn_gate_form {
    GDN_GATE_LOG_DECAY = 0, /* gate is log_decay, a natural logarithm, at most 0; -inf is a reset */
    GDN_GATE_DECAY = 1, /* gate is alpha in [0, 1]; 0 is a reset */
    GDN_GATE_RAW = 2 /* gate is `a`, and log_decay = -exp(A_log) * softplus(a + dt_bias), as in Qwen3-Next;
                        softplus(x) = x above 20. Evaluated as -exp(A_log + log softplus(x)), so that a huge factor
                        and a tiny one do not meet as inf * 0 */
} gdn_gate_form;

typedef enum gdn_beta_form {
    GDN_BETA_VALUE = 0, /* beta itself; meant to be in [0, 2], beyond which the state grows; not checked */
    GDN_BETA_LOGIT = 1 /* beta = beta_scale * sigmoid(b) */
} gdn_beta_form;

/* l2 normalisation of each q and each k vector, in float32, before anything else uses it. A vector longer than
 * 1.8e19, whose square overflows float32, becomes 0; in the tensor-core prefills of a GPU it makes NaN. */
typedef enum gdn_qk_norm {
    GDN_QK_NORM_NONE = 0,
    GDN_QK_NORM_RSQRT = 1, /* x * rsqrt(sum(x^2) + eps), as in transformers and fla */
    GDN_QK_NORM_EPS_OUTSIDE = 2 /* x / (sqrt(sum(x^2)) + eps), as in pymllm */
} gdn_qk_norm;

/* How operands of products may be rounded. State and sums are float32 in every mode (docs/numerics.md). An
 * implementation that cannot honour the mode refuses the problem. */
typedef enum gdn_numerics {
    GDN_NUMERICS_DEFAULT = 0, /* on a GPU 16-bit q, k, v let operands be rounded to their type; else as FP32 */
    GDN_NUMERICS_FP32 = 1, /* float32 products */
    GDN_NUMERICS_TF32 = 2, /* operands rounded to TF32; GPU only */
    /* Operands rounded to bfloat16; prefill on a CPU with AVX512-BF16 or AMX, where head_k_dim is a multiple of 32 and
     * head_v_dim of 16, or on a GPU with bfloat16 q, k, v. */
    GDN_NUMERICS_BF16 = 3
} gdn_numerics;

typedef enum gdn_state_form {
    GDN_STATE_DENSE = 0, /* one initial state a sequence in, one final state out; either may be NULL */
    GDN_STATE_POOL = 1 /* a pool of states; read_slots and write_slots choose a slot for each sequence */
} gdn_state_form;

typedef enum gdn_checkpoint_form {
    GDN_CHECKPOINT_NONE = 0,
    GDN_CHECKPOINT_EVERY = 1, /* the state of each sequence after n, 2n, ... tokens, up to its length */
    GDN_CHECKPOINT_AT = 2 /* the states after the numbers of tokens that checkpoint_positions lists */
} gdn_checkpoint_form;

/* Layout of q, k, v, o, gate or beta: element type, strides in elements, and the alignment in bytes that
 * the caller guarantees for the pointer passed at run time: a power of two from the element size to 4096,
 * default 16. The fused prefills of the GPU need 16.
 * Element d of head h of token t is at  t * token_stride + h * head_stride + d  for packed sequences.
 * An equal-length batch and a decode call add  row * row_stride  and count t within the row; row_stride 0
 * there means tokens of a row * token_stride. q, k, v, o have unit stride in d; gate and beta have no d.
 * Inputs may have any strides >= 0 (0 broadcasts a head); those of o must keep its elements apart, at the
 * problem's maxima. */
typedef struct gdn_layout {
    gdn_dtype dtype;
    uint32_t alignment;
    int64_t row_stride;
    int64_t token_stride;
    int64_t head_stride;
} gdn_layout;

/* Layout of states: element (v, k) of head h of slot s is at
 *   s * slot_stride + h * head_stride + v * v_stride + k * k_stride.
 * One of v_stride and k_stride is 1 and the other at least that dimension ([V, K] storage, the
 * default: k_stride 1, v_stride head_k_dim; [K, V] storage: v_stride 1, k_stride head_v_dim).
 * dtype is F32 (default), BF16 or F16; a 16-bit state is rounded once for each stored copy. alignment is
 * as in gdn_layout. Strides must keep all elements apart: of max_seqs slots, in checkpoints of
 * max_checkpoints, and of two at least. */
typedef struct gdn_state_layout {
    gdn_dtype dtype;
    uint32_t alignment;
    int64_t slot_stride;
    int64_t head_stride;
    int64_t v_stride;
    int64_t k_stride;
} gdn_state_layout;

/* Everything a plan needs to know before it sees a pointer. */
typedef struct gdn_problem {
    size_t struct_size;
    gdn_operation operation; /* default PREFILL */

    int32_t num_k_heads; /* q and k heads, 1..65536 */
    int32_t num_v_heads; /* v, o, gate, beta and state heads; a multiple of num_k_heads, up to 65536 */
    int32_t head_k_dim; /* width of a q or k vector, 1..1024 */
    int32_t head_v_dim; /* width of a v vector, 1..1024 */
    gdn_head_map head_map; /* default GROUPED */

    float scale; /* multiplies o; init writes 1/sqrt(head_k_dim); any finite value, 0 included */
    gdn_gate_form gate_form; /* default LOG_DECAY */
    gdn_beta_form beta_form; /* default VALUE */
    float beta_scale; /* of a LOGIT: 1 (default), or 2 where negative eigenvalues are allowed; 1 with VALUE */
    gdn_qk_norm qk_norm; /* default NONE */
    float qk_norm_eps; /* >= 0 and finite; default 1e-6. Zeros stay zeros with 0, too: less than 1.2e-38 (RSQRT) or
                          1e-19 (EPS_OUTSIDE) counts as that */
    gdn_numerics numerics; /* default DEFAULT */
    int32_t chunk_size; /* prefill: tokens of a chunk, a hint; 0 (default): the implementation's choice */
    int32_t num_segments; /* prefill: segments that a sequence may be cut into, computed in parallel and joined by
                             affine maps (F20 in docs/algorithm.md). 0 (default): the implementation's fixed rule;
                             1: never cut; n > 1: up to n, by the fused CPU implementations with float32 products.
                             The fused ones of the GPU refuse n > 1, the generic path never cuts */

    gdn_layout q, k, v, o; /* F32, BF16 or F16, one dtype for all four; defaults F32, dense [tokens, heads, dim] */
    gdn_layout gate, beta; /* F32 (default), or the dtype of q; defaults dense [tokens, num_v_heads] */

    gdn_state_form state_form; /* default DENSE */
    gdn_state_layout state; /* the pool, or the dense initial states; default F32, dense [slots, heads, V, K] */
    gdn_state_layout final_state; /* DENSE only; same default */
    gdn_dtype slots_dtype; /* POOL: element type of read_slots, write_slots, token_slots: I32 or I64 (default) */

    gdn_dtype cu_seqlens_dtype; /* prefill: I32 or I64 (default); NONE: an equal-length batch without cu_seqlens */

    gdn_checkpoint_form checkpoint_form; /* prefill; default NONE */
    int32_t checkpoint_interval; /* EVERY: n >= 1 */
    gdn_dtype checkpoint_index_dtype; /* AT: of checkpoint_positions and checkpoint_offsets; I32 or I64 (default) */
    gdn_state_layout checkpoints; /* entries [num_checkpoints, num_v_heads, V, K]; same default as state */

    int32_t tokens_per_row; /* decode: tokens of a row, 1..16; default 1 */

    int64_t max_seqs; /* most sequences (prefill) or rows (decode) of a run, up to 2^31 - 1; default 1 */
    int64_t max_tokens; /* prefill: most tokens of a run, over all sequences; must be set (default 0) */
    int64_t max_seqlen; /* prefill: longest sequence; 0 (default): max_tokens. A GPU shares out packed sequences by it:
                           set as low as can be, it may make a call of several of them much faster */
    int64_t max_checkpoints; /* most checkpoint entries of a run; >= 1 with a checkpoint_form */
    size_t max_workspace; /* bytes the workspace may have; 0 (default): no cap. A cap never changes the implementation
                             or the bits: work is done in waves that fit, or the plan is UNSUPPORTED and the message
                             says the least it needs */

    int32_t check; /* 1: a CUDA device also checks slot conflicts and the ranges of LOG_DECAY and DECAY gates, for
                      gdn_plan_check to report; the CPU always checks them. NaN gates pass, and affect only their
                      head. Default 0 */
} gdn_problem;

/* Writes the defaults above for the given heads and dims: every stride dense, scale 1/sqrt(head_k_dim).
 * Out-of-range heads and dims are refused by gdn_plan_create, not here.
 * Returns INVALID_ARGUMENT (NULL) or VERSION_MISMATCH (struct_size). */
GDN_API gdn_status gdn_problem_init_sized(gdn_problem *problem, size_t struct_size, int32_t num_k_heads,
                                          int32_t num_v_heads, int32_t head_k_dim, int32_t head_v_dim);
static inline gdn_status gdn_problem_init(gdn_problem *problem, int32_t num_k_heads, int32_t num_v_heads,
                                          int32_t head_k_dim, int32_t head_v_dim)
{
    return gdn_problem_init_sized(problem, sizeof(*problem), num_k_heads, num_v_heads, head_k_dim, head_v_dim);
}

/* --------------------------------------------------------------------------------------- Plan */

typedef struct gdn_plan gdn_plan; /* a validated problem, the chosen implementation, its workspace size */

/* Validates the problem, which is copied, and chooses an implementation: the first in the backend's ordered
 * table that supports it; for prefill the generic path comes last. The plan refers to the context, which
 * must outlive it. On failure *plan is NULL. Returns INVALID_ARGUMENT, VERSION_MISMATCH, UNSUPPORTED (with
 * the reasons), OUT_OF_MEMORY or DEVICE. gdn_plan_destroy sets *plan to NULL, and accepts NULL and a NULL *plan. */
GDN_API gdn_status gdn_plan_create(gdn_plan **plan, gdn_context *context, const gdn_problem *problem);
GDN_API void gdn_plan_destroy(gdn_plan **plan);

/* Bytes of workspace that every run of the plan needs, in backend memory aligned to GDN_WORKSPACE_ALIGNMENT;
 * with 0 the pointer may be NULL. Fixed at creation; on the CPU it follows the context's thread count (not evenly:
 * the work is cut for it), as far as the problem has work for so many threads. 0 for a NULL plan. */
GDN_API size_t gdn_plan_workspace_size(const gdn_plan *plan);

/* Writes what was chosen, why each earlier implementation was not, and the map of the workspace: lines of
 * text, NUL-terminated, cut to `size` bytes. *needed (optional) gets the bytes of the whole text, NUL
 * included. buffer may be NULL with size 0. Returns INVALID_ARGUMENT. */
GDN_API gdn_status gdn_plan_describe(const gdn_plan *plan, char *buffer, size_t size, size_t *needed);

/* Waits for `stream`, then returns what the device found wrong with the metadata of the last run that used
 * this workspace: INVALID_ARGUMENT or SLOT_CONFLICT, with the row in the message; GDN_OK if nothing. Returns
 * DEVICE where the stream has failed. The only plan function that waits. On the CPU, where a run checks
 * before it writes, always GDN_OK. */
GDN_API gdn_status gdn_plan_check(const gdn_plan *plan, const void *workspace, void *stream);

/* ------------------------------------------------------------------------------------ Prefill */

/* Pointers and counts of one prefill run. Unless said otherwise, pointers are backend memory, laid out and
 * aligned as the plan's problem says. Inputs are not written. No element of o, final_state, checkpoints, a
 * pool or the workspace may be part of another argument; views that interleave in one packed buffer are
 * fine. In DENSE form final_state may be the same memory as state if their layouts agree. A pointer that the
 * problem's options leave unused must be NULL. */
typedef struct gdn_prefill_args {
    size_t struct_size;

    int64_t num_seqs; /* N, 0..max_seqs */
    int64_t total_tokens; /* tokens in q, k, v, o, gate and beta, 0..max_tokens; N * length in an equal-length batch */

    const void *q, *k; /* [total_tokens, num_k_heads, head_k_dim] */
    const void *v; /* [total_tokens, num_v_heads, head_v_dim] */
    void *o; /* as v; tokens past cu_seqlens[N] and those of skipped sequences keep what they hold */
    const void *gate; /* [total_tokens, num_v_heads]: log decay, decay or a, as gate_form says */
    const void *beta; /* [total_tokens, num_v_heads]: beta or b, as beta_form says */
    const float *A_log, *dt_bias; /* [num_v_heads], dense, for gate_form RAW; dt_bias NULL: zeros */

    const void *cu_seqlens; /* [N + 1] prefix sums: cu[0] = 0, never decreasing, cu[N] <= total_tokens; NULL for
                               an equal-length batch. An empty sequence passes its state on unchanged */

    void *state; /* POOL: [num_slots, num_v_heads, V, K], read and written. DENSE: the initial states
                    [N, num_v_heads, V, K], not written; NULL: zeros */
    void *final_state; /* DENSE: [N, num_v_heads, V, K], written; NULL: not wanted */
    int64_t num_slots; /* POOL: slots in the pool, >= 0. DENSE: ignored */
    const void *read_slots; /* POOL: [N]. A sequence is skipped, its o and slots untouched, if and only if its
                               read or write slot is negative */
    const void *write_slots; /* POOL: [N], may be read_slots (in place); NULL: no state is written. A slot written
                                by one sequence and read or written by another is a SLOT_CONFLICT */
    const uint8_t *has_initial_state; /* [N]: 0 starts the sequence from zeros, whatever its slot holds; any other
                                         value, or NULL for all of them, from the state */

    void *checkpoints; /* [num_checkpoints, num_v_heads, V, K], written, ordered by sequence, then by position.
                          Entries of a skipped sequence keep what they hold */
    int64_t num_checkpoints; /* entries `checkpoints` has room for, <= max_checkpoints */
    const void *checkpoint_positions; /* AT: [num_checkpoints], the first checkpoint_offsets[N] of which are read:
                                         tokens consumed since the sequence's start, 1..length, strictly increasing
                                         within a sequence */
    const void *checkpoint_offsets; /* AT: [N + 1] prefix sums into checkpoint_positions and checkpoints */

    void *workspace; /* gdn_plan_workspace_size bytes at GDN_WORKSPACE_ALIGNMENT; one for each concurrent run */
    size_t workspace_size; /* bytes at workspace */
    void *stream; /* a cudaStream_t, or NULL; ignored on the CPU */
} gdn_prefill_args;

/* Zeroes *args and sets struct_size. Returns INVALID_ARGUMENT (NULL) or VERSION_MISMATCH (struct_size). */
GDN_API gdn_status gdn_prefill_args_init_sized(gdn_prefill_args *args, size_t struct_size);
static inline gdn_status gdn_prefill_args_init(gdn_prefill_args *args)
{
    return gdn_prefill_args_init_sized(args, sizeof(*args));
}

/* Runs a PREFILL plan. Returns INVALID_ARGUMENT, SLOT_CONFLICT, VERSION_MISMATCH, WORKSPACE_TOO_SMALL or
 * DEVICE. The CPU checks all metadata (cu_seqlens, slots, checkpoints, gate ranges) before it writes anything. On
 * CUDA the first kernel checks it: a sequence with bad metadata is skipped, and gdn_plan_check reports it. */
GDN_API gdn_status gdn_prefill(const gdn_plan *plan, const gdn_prefill_args *args);

/* ------------------------------------------------------------------------------------- Decode */

/* Pointers and counts of one decode run: R = num_rows rows of T = tokens_per_row tokens. Fields without a comment
 * are as in gdn_prefill_args, with R for N. */
typedef struct gdn_decode_args {
    size_t struct_size;

    int64_t num_rows; /* R, 0..max_seqs */

    const void *q, *k; /* [R, T, num_k_heads, head_k_dim] */
    const void *v; /* [R, T, num_v_heads, head_v_dim] */
    void *o; /* as v */
    const void *gate, *beta; /* [R, T, num_v_heads] */
    const float *A_log, *dt_bias;

    const int32_t *num_tokens; /* [R], 0..T: how many tokens the row has; the rest of the row is neither read nor
                                  written. NULL: T in every row */

    void *state;
    void *final_state;
    int64_t num_slots;
    const void *read_slots, *write_slots; /* [R] */
    const void *token_slots; /* POOL, optional: [R, T] slots that receive the state after each token; negative: not
                                stored. They count as write slots in the conflict rule; a row's own read slot may be
                                among them. A slot named twice in a row keeps the later state, the final one last */
    const uint8_t *has_initial_state; /* [R] */

    void *workspace;
    size_t workspace_size;
    void *stream;
} gdn_decode_args;

/* As gdn_prefill_args_init. */
GDN_API gdn_status gdn_decode_args_init_sized(gdn_decode_args *args, size_t struct_size);
static inline gdn_status gdn_decode_args_init(gdn_decode_args *args)
{
    return gdn_decode_args_init_sized(args, sizeof(*args));
}

/* Runs a DECODE plan. Checks metadata (slots, num_tokens, gate ranges) and returns as gdn_prefill does. */
GDN_API gdn_status gdn_decode(const gdn_plan *plan, const gdn_decode_args *args);

/* ------------------------------------------------------------------------- Gate, and one whole call */

/* Gates alone, by the formulas of gdn_gate_form RAW and gdn_beta_form LOGIT:
 *   log_decay = -exp(A_log) * softplus(a + dt_bias)     beta = beta_scale * sigmoid(b), beta_scale 1 or 2
 *   a, b             [tokens, heads]  F32, BF16 or F16, any strides >= 0
 *   A_log, dt_bias   [heads]          F32, unit stride; dt_bias NULL: zeros
 *   log_decay, beta  [tokens, heads]  F32, written; strides must keep their elements apart
 * Either output may be NULL, and then its inputs, too. Outputs overlap nothing.
 * Returns INVALID_ARGUMENT or DEVICE. */
GDN_API gdn_status gdn_gate(gdn_context *context, const gdn_tensor *a, const gdn_tensor *b, const gdn_tensor *A_log,
                            const gdn_tensor *dt_bias, float beta_scale, const gdn_tensor *log_decay,
                            const gdn_tensor *beta, void *stream);

/* The chunkwise extend call of pymllm (pymllm.layers.attention.gdn_chunkwise.gdn_extend_chunkwise): raw gates,
 * q and k normalised as x / (norm + 1e-6), scale 1/sqrt(K), grouped heads, states updated in place.
 *   q, k          [total_tokens, H, K]  BF16, F16 or F32, not normalised
 *   v, o          [total_tokens, HV, V] the dtype of q
 *   a, b          [total_tokens, HV]    the dtype of q, or F32
 *   A_log, dt_bias [HV]                 F32
 *   state_pool    [pool_size, HV, V, K] F32
 *   cache_indices [batch_size]          I64, slots of state_pool; negative: the sequence is skipped
 *   cu_seqlens    [batch_size + 1]      I64
 *   chunk_size    >= 1, a hint
 * Every tensor has unit inner stride; other strides are free. Needs the workspace that
 * gdn_extend_chunkwise_workspace, which reads no data pointer, gives for the same tensors. Nothing is allocated: each
 * call makes its plan on the stack. Returns as gdn_plan_create and gdn_prefill: on the CPU two equal indices are a
 * SLOT_CONFLICT. On CUDA, with no plan to ask, a sequence with a bad index or bound is skipped without an error, and
 * equal indices, which are not checked, give undefined states. */
GDN_API gdn_status gdn_extend_chunkwise(gdn_context *context, const gdn_tensor *q, const gdn_tensor *k,
                                        const gdn_tensor *v, const gdn_tensor *a, const gdn_tensor *b,
                                        const gdn_tensor *A_log, const gdn_tensor *dt_bias,
                                        const gdn_tensor *state_pool, const gdn_tensor *cache_indices,
                                        const gdn_tensor *cu_seqlens, int32_t chunk_size, const gdn_tensor *o,
                                        void *workspace, size_t workspace_size, void *stream);
GDN_API gdn_status gdn_extend_chunkwise_workspace(gdn_context *context, const gdn_tensor *q, const gdn_tensor *k,
                                                  const gdn_tensor *v, const gdn_tensor *a, const gdn_tensor *b,
                                                  const gdn_tensor *state_pool, const gdn_tensor *cache_indices,
                                                  int32_t chunk_size, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif /* GDN_GDN_H */
