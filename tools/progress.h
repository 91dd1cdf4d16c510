/* A line on stderr that says how far long work is, where stderr is a terminal; nothing otherwise. */
#ifndef GDN_TOOLS_PROGRESS_H
#define GDN_TOOLS_PROGRESS_H

/* Replaces the line, at most ten times a second. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Removes the line, so that other output starts clean. */
void progress_clear(void);

#endif
