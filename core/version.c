#include "config.h"

#include <gdn/gdn.h>

#define GDN_TEXT_OF(x) #x
#define GDN_TEXT(x) GDN_TEXT_OF(x)

int32_t gdn_version(void)
{
    return GDN_VERSION_NUMBER;
}

const char *gdn_version_string(void)
{
    return GDN_TEXT(GDN_VERSION_MAJOR) "." GDN_TEXT(GDN_VERSION_MINOR) "." GDN_TEXT(GDN_VERSION_PATCH);
}

const char *gdn_features(void)
{
    return GDN_FEATURES;
}
