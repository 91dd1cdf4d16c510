/* Which devices a build can be used on, and which implementation each of them gets: asked of made-up devices, so that no
 * device is needed. */
#include "harness/suite.h"

#include "backend_cuda/cuda_backend.h"
#include "backend_cuda/cuda_device.h"

#include <string.h>

static const char all[] = "80-real 86-real 89-real 90a-real 90-virtual 100-real 120-real";

static void code_is_there_for_every_device_from_8_0_on(void **state)
{
    (void)state;
    const int capabilities[] = {80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 130};
    for (size_t i = 0; i < COUNT_OF(capabilities); i++) {
        if (!gdn_cuda_has_code(all, capabilities[i])) {
            fail_msg("no code for %d", capabilities[i]);
        }
    }
    REQUIRE(!gdn_cuda_has_code(all, 75));
}

static void code_runs_where_it_can_and_nowhere_else(void **state)
{
    (void)state;
    const struct {
        const char *list;
        int capability;
        bool runs;
    } cases[] = {
        {"80-real", 80, true},      {"80-real", 86, true},     {"86-real", 80, false},    {"80-real", 90, false},
        {"80", 90, true},           {"80-virtual", 120, true}, {"90-virtual", 89, false}, {"90a-real", 90, true},
        {"90a-real", 100, false},   {"90a", 100, false},       {"100f-real", 103, true},  {"100f", 120, false},
        {"86-real 120", 121, true}, {"", 80, false},           {"120-real", 121, true},   {"100-real", 110, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (gdn_cuda_has_code(cases[i].list, cases[i].capability) != cases[i].runs) {
            fail_msg("\"%s\" on %d", cases[i].list, cases[i].capability);
        }
    }
}

static gdn_cuda_device device_of(int32_t capability, int64_t shared_bytes)
{
    gdn_cuda_device device;
    memset(&device, 0, sizeof(device));
    device.base.backend = &gdn_backend_cuda;
    device.blas = GDN_BLAS_OFF;
    device.compute_capability = capability;
    device.num_sms = 100;
    device.shared_bytes_per_block = shared_bytes;
    device.l2_bytes = 32 << 20;
    return device;
}

/* The first implementation of the table that takes the problem; NULL: the generic path. Those before it say why not. */
static const gdn_implementation *choose(const gdn_cuda_device *device, const gdn_problem *problem)
{
    for (const gdn_implementation *const *entry = gdn_cuda_implementations; *entry != NULL; entry++) {
        gdn_reason reason = {""};
        if ((*entry)->operation != problem->operation) {
            continue;
        }
        if ((*entry)->supports(&device->base, problem, &reason)) {
            gdn_choice choice;
            memset(&choice, 0, sizeof(choice));
            if ((*entry)->book(&device->base, problem, 0, &choice) == GDN_OK) {
                return *entry;
            }
            continue;
        }
        if (reason.text[0] == '\0') {
            fail_msg("%s refuses without a reason", (*entry)->name);
        }
    }
    return NULL;
}

static gdn_problem problem_of(gdn_operation operation, int32_t dim, gdn_dtype dtype)
{
    gdn_problem problem;
    REQUIRE_OK(gdn_problem_init(&problem, 4, 8, dim, dim));
    problem.operation = operation;
    problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = dtype;
    problem.max_seqs = 4;
    problem.max_tokens = problem.max_seqlen = 4096;
    return problem;
}

/* A device with less shared memory than the one a kernel was written on, or of another architecture, gets an implementation
 * that runs there, and no refusal is silent. */
static void every_device_gets_an_implementation(void **state)
{
    (void)state;
    const struct {
        int32_t capability;
        int64_t shared_bytes;
    } devices[] = {{80, 166912},  {86, 101376},  {89, 101376},  {90, 232448}, {100, 232448},
                   {103, 232448}, {120, 101376}, {121, 101376}, {80, 65536}};
    const int32_t dims[] = {64, 128, 256};
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        const gdn_cuda_device device = device_of(devices[i].capability, devices[i].shared_bytes);
        for (size_t j = 0; j < COUNT_OF(dims); j++) {
            const gdn_problem decode = problem_of(GDN_OPERATION_DECODE, dims[j], GDN_DTYPE_BF16);
            if (choose(&device, &decode) == NULL) {
                fail_msg("capability %d: nothing decodes dim %d", devices[i].capability, dims[j]);
            }
            const gdn_problem prefill = problem_of(GDN_OPERATION_PREFILL, dims[j], GDN_DTYPE_BF16);
            const gdn_implementation *const chosen = choose(&device, &prefill);
            /* Kernels of one architecture stay on it. */
            if (devices[i].capability != 90 && chosen != NULL && strstr(chosen->name, "sm90") != NULL) {
                fail_msg("capability %d gets %s", devices[i].capability, chosen->name);
            }
            /* Where there is room, 16-bit tensors go to a fused path. */
            if (devices[i].shared_bytes > 100000 && dims[j] <= 128 && chosen == NULL) {
                fail_msg("capability %d: dim %d goes to the generic path", devices[i].capability, dims[j]);
            }
            const gdn_problem exact = problem_of(GDN_OPERATION_PREFILL, dims[j], GDN_DTYPE_F32);
            if (choose(&device, &exact) != NULL) {
                fail_msg("capability %d: float32 tensors go to a path of 16-bit products", devices[i].capability);
            }
        }
    }
}

/* Head dims and checkpoints on Hopper; the others go to the portable path. */
static void hopper_takes_the_head_dims_that_it_has(void **state)
{
    (void)state;
    const gdn_cuda_device device = device_of(90, 232448);
    const struct {
        int32_t k, v;
        gdn_checkpoint_form form;
        int32_t interval;
        gdn_dtype dtype;
        bool taken;
    } cases[] = {
        {64, 64, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, true},
        {128, 128, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, true},
        {256, 256, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, true},
        {256, 64, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, true},
        {64, 320, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, true},
        {128, 96, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, false},
        {192, 192, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, false},
        {32, 64, GDN_CHECKPOINT_NONE, 0, GDN_DTYPE_F32, false},
        {128, 128, GDN_CHECKPOINT_EVERY, 128, GDN_DTYPE_BF16, true},
        {128, 128, GDN_CHECKPOINT_EVERY, 100, GDN_DTYPE_BF16, false},
        {128, 128, GDN_CHECKPOINT_EVERY, 100, GDN_DTYPE_F32, true},
        {256, 64, GDN_CHECKPOINT_AT, 0, GDN_DTYPE_F32, true},
        {64, 64, GDN_CHECKPOINT_AT, 0, GDN_DTYPE_F16, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        gdn_problem problem;
        REQUIRE_OK(gdn_problem_init(&problem, 4, 8, cases[i].k, cases[i].v));
        problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = GDN_DTYPE_BF16;
        problem.max_seqs = 4;
        problem.max_tokens = problem.max_seqlen = 4096;
        problem.checkpoint_form = cases[i].form;
        problem.checkpoint_interval = cases[i].interval;
        problem.checkpoints = problem.state;
        problem.checkpoints.dtype = cases[i].dtype;
        problem.max_checkpoints = 100;
        const gdn_implementation *const chosen = choose(&device, &problem);
        const bool taken = chosen != NULL && strcmp(chosen->name, "cuda.sm90") == 0;
        if (taken != cases[i].taken) {
            fail_msg("K %d, V %d, checkpoints %d every %d as %s: %s", cases[i].k, cases[i].v, (int)cases[i].form,
                     cases[i].interval, gdn_dtype_name(cases[i].dtype), chosen != NULL ? chosen->name : "generic");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_is_there_for_every_device_from_8_0_on),
        cmocka_unit_test(code_runs_where_it_can_and_nowhere_else),
        cmocka_unit_test(every_device_gets_an_implementation),
        cmocka_unit_test(hopper_takes_the_head_dims_that_it_has),
    };
    return cmocka_run_group_tests_name("cuda chooser", tests, NULL, NULL);
}
