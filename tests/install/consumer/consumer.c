#include <gdn/gdn.h>

#include <stdio.h>

int main(void)
{
    gdn_context *context = NULL;
    if (gdn_version() != GDN_VERSION_NUMBER || gdn_context_create(&context, NULL) != GDN_OK) {
        fprintf(stderr, "gdn %s: %s\n", gdn_version_string(), gdn_last_error());
        return 1;
    }
    printf("gdn %s on %s\n", gdn_version_string(), gdn_context_backend(context));
    gdn_context_destroy(&context);
    return 0;
}
