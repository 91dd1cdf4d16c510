#include <gdn/gdn.h>

#include <iostream>

int main()
{
    gdn_context *context = nullptr;
    if (gdn_version() != GDN_VERSION_NUMBER || gdn_context_create(&context, nullptr) != GDN_OK) {
        std::cerr << "gdn " << gdn_version_string() << ": " << gdn_last_error() << '\n';
        return 1;
    }
    std::cout << "gdn " << gdn_version_string() << " on " << gdn_context_backend(context) << '\n';
    gdn_context_destroy(&context);
}
