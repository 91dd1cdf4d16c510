/* The backend contract: what core asks of a backend, and what a backend may ask of core.
 *
 * A backend is a constant gdn_backend. Core finds it in the generated static list or by loading a
 * module whose entry symbol returns one. Core never names a backend; a backend includes this header,
 * gdn.h and the header-only helpers of core (workspace.h, numeric.h, error.h), nothing else of core.
 */
#ifndef GDN_CORE_BACKEND_H
#define GDN_CORE_BACKEND_H

#include "error.h"
#include "workspace.h"

#include <gdn/gdn.h>

#include <stdarg.h>
#include <stdbool.h>

/* Raised with every incompatible change of this header; core refuses a module of another number. */
#define GDN_BACKEND_ABI 1u

typedef struct gdn_backend gdn_backend;
typedef struct gdn_device gdn_device;
typedef struct gdn_generic_ops gdn_generic_ops; /* generic_ops.h */

/* ------------------------------------------------------------------------------ Implementations */

/* What an implementation decided at plan time and needs at run time: filled by book(). */
#define GDN_MAX_CHOICE_PARAMS 24
typedef struct gdn_choice {
    int32_t chunk_size; /* tokens of a chunk; 0 where there are none */
    int64_t wave_chunks; /* chunk slots worked on at once; 0: all */
    int64_t param[GDN_MAX_CHOICE_PARAMS]; /* the implementation's own: offsets, tile sizes, grid bounds */
    gdn_ledger ledger;
} gdn_choice;

/* A refusal's reason, one line: "head_k_dim 100 is not a multiple of 16". */
typedef struct gdn_reason {
    char text[192];
} gdn_reason;

typedef struct gdn_prefill_run {
    const gdn_problem *problem;
    const gdn_prefill_args *args; /* checked; on a host-memory backend its metadata, too */
    const gdn_choice *choice;
    unsigned char *workspace; /* args->workspace; scratch is at workspace + offset */
    void *stream;
} gdn_prefill_run;

typedef struct gdn_decode_run {
    const gdn_problem *problem;
    const gdn_decode_args *args;
    const gdn_choice *choice;
    unsigned char *workspace;
    void *stream;
} gdn_decode_run;

/* One way to compute an operation. `supports` says whether it takes the problem on this device and,
 * if not, why. `book` sizes its scratch within max_workspace (0: no cap; counted from ledger.total as
 * handed in) and returns UNSUPPORTED with a message naming the least it needs where the cap is too small;
 * the scratch may follow the device's thread count, results may not. The run function does what was
 * chosen, never falls back and never allocates; it is reentrant (the workspace is the only memory it may
 * share with itself). */
typedef struct gdn_implementation {
    const char *name; /* "cpu.avx512", "cuda.fused_mma": what GDN_IMPL matches by prefix */
    const char *summary; /* one line for gdn_plan_describe */
    gdn_operation operation;
    bool (*supports)(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason);
    gdn_status (*book)(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice);
    gdn_status (*prefill)(const gdn_device *device, const gdn_prefill_run *run); /* PREFILL only, else NULL */
    gdn_status (*decode)(const gdn_device *device, const gdn_decode_run *run); /* DECODE only, else NULL */
} gdn_implementation;

/* The distance between rows (decode rows, or the sequences of an equal-length batch) of `tokens` tokens each. */
static inline int64_t gdn_row_stride(const gdn_layout *layout, int64_t tokens)
{
    return layout->row_stride != 0 ? layout->row_stride : tokens * layout->token_stride;
}

/* ------------------------------------------------------------------------------------- Devices */

/* Threads of a call, at most: OpenMP runtimes abort where they cannot make those asked of them. */
#define GDN_MAX_THREADS 1024

typedef struct gdn_device_options {
    int32_t index;
    int32_t num_threads; /* as in gdn_context_options */
    gdn_blas blas;
    const char *cpu_isa; /* NULL or the highest to use */
    gdn_allocator allocator; /* both functions set */
    void (*log)(void *log_target, gdn_log_level level, const char *line); /* never NULL */
    void *log_target;
} gdn_device_options;

/* A backend's device starts with this; the rest is the backend's own. */
struct gdn_device {
    const gdn_backend *backend;
    int32_t index;
    char description[224]; /* one line: what it is, threads, BLAS, instruction set */
};

/* What a device found wrong in metadata it checked itself (gdn_plan_check). */
typedef struct gdn_metadata_fault {
    int32_t code; /* gdn_fault; 0: none */
    int32_t unused;
    int64_t row; /* sequence or row of the lowest fault */
    int64_t value; /* the offending value, where there is one */
} gdn_metadata_fault;

typedef enum gdn_fault {
    GDN_FAULT_NONE = 0,
    GDN_FAULT_CU_SEQLENS = 1, /* negative, decreasing, or past total_tokens */
    GDN_FAULT_SEQLEN = 2, /* longer than max_seqlen */
    GDN_FAULT_READ_SLOT = 3, /* past the pool */
    GDN_FAULT_WRITE_SLOT = 4,
    GDN_FAULT_TOKEN_SLOT = 5,
    GDN_FAULT_SLOT_CONFLICT = 6,
    GDN_FAULT_NUM_TOKENS = 7,
    GDN_FAULT_CHECKPOINT = 8, /* positions or offsets out of order or range, or too few entries */
    GDN_FAULT_GATE = 9 /* log gate > 0, or linear gate outside [0, 1] */
} gdn_fault;

/* Core books this many bytes first, at offset 0, in every workspace of a device-memory backend: the
 * gdn_metadata_fault that a run's first kernel clears and writes. */
#define GDN_FAULT_BYTES ((size_t)GDN_WORKSPACE_ALIGNMENT)

/* ------------------------------------------------------------------------------------ Backend */

struct gdn_backend {
    uint32_t abi; /* GDN_BACKEND_ABI, first so that it can be read of any version */
    int32_t version; /* GDN_VERSION_NUMBER it was built from; must equal core's */
    const char *name;
    int32_t rank; /* "auto" takes the usable backend of the highest rank */
    bool host_memory; /* tensors and metadata can be read by the host: core checks metadata itself */

    /* Fills usable, num_devices, description, reason. Creates no device context. */
    void (*probe)(gdn_backend_report *report);

    gdn_status (*open)(gdn_device **device, const gdn_device_options *options);
    void (*close)(gdn_device *device);

    gdn_status (*alloc)(gdn_device *device, void **ptr, size_t bytes);
    gdn_status (*free)(gdn_device *device, void *ptr);
    gdn_status (*copy)(gdn_device *device, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                       void *stream);
    gdn_status (*fill)(gdn_device *device, void *dst, int byte, size_t bytes, void *stream);
    gdn_status (*synchronize)(gdn_device *device, void *stream);

    /* (optional) Refuses a pointer this device cannot use; `name` is the argument to blame. NULL: none is refused. */
    gdn_status (*check_pointer)(const gdn_device *device, const void *ptr, const char *name);
    /* (optional) Whether a pointer is memory of this backend's devices that a host cannot read. Asked for the pointers
     * given to backends of host memory, once a device of this backend has been opened; opens and creates nothing. */
    bool (*owns_pointer)(const void *ptr);
    /* (optional) Waits for the stream and reads the fault at the start of the workspace. NULL: nothing to read. */
    gdn_status (*read_fault)(const gdn_device *device, const void *workspace, void *stream, gdn_metadata_fault *fault);

    /* (optional) What is true of the device just now and worth a line of gdn_plan_describe, such as "forked child: one
     * thread"; "" for nothing. NULL: nothing ever. */
    void (*note)(const gdn_device *device, char *buffer, size_t size);

    /* gdn_gate; arguments checked. a/log_decay or b/beta may be NULL in pairs. */
    gdn_status (*gate)(const gdn_device *device, const gdn_tensor *a, const gdn_tensor *b, const float *A_log,
                       const float *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                       void *stream);

    /* Ordered, NULL-terminated, first supporting entry wins; the generic prefill path, core's own, comes after. */
    const gdn_implementation *const *implementations;
    /* The operations core's generic prefill path is written against. */
    const gdn_generic_ops *ops;
};

/* ------------------------------------------------------------------------------------- Modules */

/* What core gives a module, which links nothing of it. */
typedef struct gdn_core_services {
    uint32_t abi;
    int32_t version;
    gdn_status (*vfail)(gdn_status status, const char *format, va_list args);
} gdn_core_services;

/* A module exports exactly this symbol; the file is named libgdn_<backend>.so. */
#define GDN_MODULE_ENTRY_NAME "gdn_backend_entry"
typedef const gdn_backend *(*gdn_module_entry_fn)(const gdn_core_services *core);

#endif
