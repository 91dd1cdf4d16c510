/* Any text is a problem or is refused with one line; an accepted one prints to a line that means the same problem. */
#include "problem_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static problem_text first, second;
    static char once[16384], twice[16384];
    char error[1024];
    char *const line = malloc(size + 1);
    if (line == NULL) {
        return 0;
    }
    memcpy(line, bytes, size);
    line[size] = 0;
    if (!problem_text_parse(&first, line, error, sizeof(error))) {
        if (error[0] == 0 || strchr(error, '\n') != NULL) {
            abort();
        }
    } else if (problem_text_format(&first, once, sizeof(once))) {
        gdn_problem a, b;
        if (!problem_text_parse(&second, once, error, sizeof(error)) ||
            !problem_text_format(&second, twice, sizeof(twice)) || strcmp(once, twice) != 0) {
            abort();
        }
        problem_text_build(&first, &a);
        problem_text_build(&second, &b);
        if (memcmp(&a, &b, sizeof(a)) != 0) {
            abort();
        }
    }
    free(line);
    return 0;
}
