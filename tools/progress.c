#include "progress.h"

#include "timing.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static bool shown;
static double last;

void progress_show(const char *format, ...)
{
    if (!isatty(STDERR_FILENO) || timing_now() - last < 0.1) {
        return;
    }
    va_list args;
    va_start(args, format);
    fprintf(stderr, "\r\033[K");
    vfprintf(stderr, format, args);
    fflush(stderr);
    va_end(args);
    shown = true;
    last = timing_now();
}

void progress_clear(void)
{
    if (shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        shown = false;
    }
}
