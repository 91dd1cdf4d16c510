#include "sm90_tools.h"

#include <string.h>

#define NAME "cuda.sm90"

static gdn_context *context;

bool sm90_open(void)
{
    gdn_context *probe = gpu_context(0);
    gdn_context_destroy(&probe);
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    options.implementations = NAME ",generic";
    REQUIRE_OK(gdn_context_create(&context, &options));
    test_case c;
    char name[64];
    case_spec spec = sm90_spec("probe", 128, 128);
    spec.length = 1;
    case_build(&c, &spec);
    case_implementation(context, &c, name);
    case_free(&c);
    if (strcmp(name, NAME) != 0) {
        printf("skipped: this device does not take %s\n", NAME);
        gdn_context_destroy(&context);
        return false;
    }
    return true;
}

gdn_context *sm90_context(void)
{
    return context;
}

int sm90_close(void **state)
{
    (void)state;
    gdn_context_destroy(&context);
    return 0;
}

case_spec sm90_spec(const char *label, int32_t head_k_dim, int32_t head_v_dim)
{
    const case_spec spec = {.label = label,
                            .seed = 70,
                            .num_k_heads = 12,
                            .num_v_heads = 24,
                            .head_k_dim = head_k_dim,
                            .head_v_dim = head_v_dim,
                            .dtype = GDN_DTYPE_BF16,
                            .gates = GATES_WEAK};
    return spec;
}

void sm90_run(test_case *c)
{
    char name[64];
    case_implementation(context, c, name);
    assert_string_equal(name, NAME);
    REQUIRE_OK(case_run(context, c, NULL));
}

int sm90_compare_with_alone(case_spec spec, const int64_t *lengths, int64_t num_seqs)
{
    test_case batch;
    spec.lengths = lengths;
    spec.num_seqs = num_seqs;
    case_build(&batch, &spec);
    sm90_run(&batch);
    int complaints = 0;
    spec.max_seqlen = 0; /* a sequence's own tokens */
    for (int64_t n = 0; n < num_seqs; n++) {
        test_case alone;
        spec.lengths = &lengths[n];
        spec.num_seqs = 1;
        case_build(&alone, &spec);
        copy_head_parameters(&alone, &batch);
        copy_tokens(&alone, 0, &batch, case_first_token(&batch, n), lengths[n]);
        copy_initial_state(&alone, 0, &batch, n);
        sm90_run(&alone);
        complaints += same_sequence(&batch, n, &alone, 0);
        case_free(&alone);
    }
    case_free(&batch);
    return complaints;
}
