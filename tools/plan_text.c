#include "plan_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plan_text(const gdn_plan *plan)
{
    size_t needed = 0;
    if (gdn_plan_describe(plan, NULL, 0, &needed) != GDN_OK) {
        return NULL;
    }
    char *const text = malloc(needed);
    if (text != NULL && gdn_plan_describe(plan, text, needed, NULL) != GDN_OK) {
        free(text);
        return NULL;
    }
    return text;
}

static void find_line(const gdn_plan *plan, const char *name, const char *stops, char *value, size_t size)
{
    char *const text = plan_text(plan);
    const size_t length = strlen(name);
    value[0] = 0;
    for (const char *line = text; line != NULL && *line != 0;) {
        if (strncmp(line, name, length) == 0 && strncmp(line + length, ": ", 2) == 0) {
            const char *const start = line + length + 2;
            snprintf(value, size, "%.*s", (int)strcspn(start, stops), start);
            break;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    free(text);
}

void plan_text_line(const gdn_plan *plan, const char *name, char *value, size_t size)
{
    find_line(plan, name, "\n", value, size);
}

void plan_text_value(const gdn_plan *plan, const char *name, char *value, size_t size)
{
    find_line(plan, name, ",\n", value, size);
}
