#include "cpu_implementations.h"

#include "plain_decode.h"

#include <stddef.h>

const gdn_implementation *const gdn_cpu_implementations[] = {
    &gdn_cpu_plain_decode,
    NULL,
};
