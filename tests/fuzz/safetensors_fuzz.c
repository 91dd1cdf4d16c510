/* Any bytes are a safetensors file or are refused with one line; of an accepted file every byte of every tensor can be read. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[160];
    safetensors_file *file = NULL;
    if (!safetensors_parse(&file, bytes, size, error, sizeof(error))) {
        if (file != NULL || error[0] == 0 || strchr(error, '\n') != NULL) {
            abort();
        }
        return 0;
    }
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *const tensor = safetensors_at(file, i);
        for (size_t b = 0; b < tensor->bytes; b++) {
            sum = (uint8_t)(sum + ((const uint8_t *)tensor->data)[b]);
        }
        if (safetensors_find(file, tensor->name) == NULL) {
            abort();
        }
    }
    (void)safetensors_metadata(file, "gdn.gate");
    safetensors_close(&file);
    return 0;
}
