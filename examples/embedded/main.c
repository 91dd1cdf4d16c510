/* The library on a small machine: linked statically, one thread, no BLAS, no modules, and every byte it uses inside
 * static memory of this program. The linker sends each malloc of the program and of the library to the functions below,
 * which abort once main has begun: that nothing is allocated is checked, not hoped for. */
#include <gdn/gdn.h>

#include <stdio.h>
#include <stdlib.h>

enum { K_HEADS = 2, V_HEADS = 4, DIM = 32, TOKENS = 48, PERIOD = 16 };

static float q[TOKENS][K_HEADS][DIM], k[TOKENS][K_HEADS][DIM], v[TOKENS][V_HEADS][DIM], o[TOKENS][V_HEADS][DIM];
static float log_decay[TOKENS][V_HEADS], beta[TOKENS][V_HEADS], state[V_HEADS][DIM][DIM];
static _Alignas(GDN_WORKSPACE_ALIGNMENT) unsigned char workspace[256 * 1024];
static _Alignas(64) unsigned char arena[24 * 1024];
static size_t arena_used;

/* Set when main begins: the C library itself allocates a little before that. */
static int started;

/* The names are what -Wl,--wrap makes of the originals. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static void refuse(const char *what)
{
    if (started) {
        fputs(what, stderr);
        fputs(" was called\n", stderr);
        abort();
    }
}

void *__wrap_malloc(size_t size)
{
    refuse("malloc");
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    refuse("calloc");
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    refuse("realloc");
    return __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    refuse("aligned_alloc");
    return __real_aligned_alloc(alignment, size);
}

/* Contexts and plans come from the arena, one after another; they live as long as the program. */
static void *arena_alloc(void *user, size_t size, size_t alignment)
{
    const size_t start = (arena_used + alignment - 1) / alignment * alignment;
    (void)user;
    if (start > sizeof(arena) || size > sizeof(arena) - start) {
        return NULL;
    }
    arena_used = start + size;
    return arena + start;
}

static void arena_free(void *user, void *pointer)
{
    (void)user;
    (void)pointer;
}

static int fail(const char *what)
{
    printf("%s: %s\n", what, gdn_last_error());
    return EXIT_FAILURE;
}

/* Orthogonal keys that come back every PERIOD tokens, with decay 1 and beta 1: the layer is an exact memory. Asked with the
 * key of a token, it answers with the value last written under that key, which is that token's own. */
static void fill(void)
{
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < K_HEADS; h++) {
            k[t][h][t % PERIOD] = q[t][h][t % PERIOD] = 1;
        }
        for (int h = 0; h < V_HEADS; h++) {
            beta[t][h] = 1;
            for (int d = 0; d < DIM; d++) {
                v[t][h][d] = (float)(t * 7 + h * 3 + d) / 64;
            }
        }
    }
}

static int count_mistakes(void)
{
    int mistakes = 0;
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < V_HEADS; h++) {
            for (int d = 0; d < DIM; d++) {
                const float error = o[t][h][d] - v[t][h][d];
                mistakes += error > 1e-4f || error < -1e-4f;
            }
        }
    }
    return mistakes;
}

int main(void)
{
    static char line_buffer[256];
    started = 1;
    setvbuf(stdout, line_buffer, _IOLBF, sizeof(line_buffer)); /* stdio would allocate one */

    gdn_context_options options;
    gdn_problem problem;
    gdn_prefill_args args;
    gdn_context *context = NULL;
    gdn_plan *plan = NULL;
    if (gdn_context_options_init(&options) != GDN_OK ||
        gdn_problem_init(&problem, K_HEADS, V_HEADS, DIM, DIM) != GDN_OK || gdn_prefill_args_init(&args) != GDN_OK) {
        return fail("init");
    }
    options.backend = "cpu";
    options.num_threads = 1;
    options.ignore_environment = 1;
    options.allocator = (gdn_allocator){arena_alloc, arena_free, NULL};
    if (gdn_context_create(&context, &options) != GDN_OK) {
        return fail("context");
    }
    problem.scale = 1;
    problem.max_tokens = TOKENS;
    problem.cu_seqlens_dtype = GDN_DTYPE_NONE; /* one sequence of all tokens */
    problem.max_workspace = sizeof(workspace);
    if (gdn_plan_create(&plan, context, &problem) != GDN_OK) {
        return fail("plan");
    }
    fill();
    args.num_seqs = 1;
    args.total_tokens = TOKENS;
    args.q = q;
    args.k = k;
    args.v = v;
    args.o = o;
    args.gate = log_decay;
    args.beta = beta;
    args.final_state = state;
    args.workspace = workspace;
    args.workspace_size = sizeof(workspace);
    if (gdn_prefill(plan, &args) != GDN_OK) {
        return fail("prefill");
    }
    const int mistakes = count_mistakes();
    printf("libgdn %s: %d tokens, %d of %d outputs wrong\n", gdn_version_string(), TOKENS, mistakes,
           TOKENS * V_HEADS * DIM);
    printf("arena: %zu of %zu bytes; workspace: %zu of %zu bytes\n", arena_used, sizeof(arena),
           gdn_plan_workspace_size(plan), sizeof(workspace));
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
    return mistakes == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
