#define _POSIX_C_SOURCE 200112L /* setenv */
#include "gpu_tools.h"

#include <stdlib.h>

gdn_context *gpu_context(int device)
{
    /* The harness's own context, which check_case runs on, is to be of this backend, too. */
    REQUIRE(setenv("GDN_TEST_BACKEND", "cuda", 1) == 0);
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    options.device = device;
    gdn_context *context = NULL;
    const gdn_status status = gdn_context_create(&context, &options);
    if (status == GDN_ERROR_BACKEND_UNAVAILABLE) {
        printf("skipped: %s\n", gdn_last_error());
        fflush(stdout);
        _Exit(TEST_SKIPPED);
    }
    REQUIRE_OK(status);
    return context;
}

void gpu_upload(staged_case *stage, cudaStream_t stream)
{
    /* The stage filled its memory on the default stream, which a stream of the test may not wait for. */
    REQUIRE_OK(gdn_synchronize(stage->context, NULL));
    for (int32_t i = 0; i < CASE_NUM_OPERANDS; i++) {
        if (stage->base[i] != NULL) {
            REQUIRE_OK(gdn_memory_copy(stage->context, stage->base[i], stage->c->buffer[i].before,
                                       stage->c->buffer[i].bytes, GDN_COPY_TO_BACKEND, stream));
        }
    }
    stage->prefill.stream = stream;
    stage->decode.stream = stream;
}
