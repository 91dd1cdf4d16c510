/* What a machine can do at most, measured in the same run as the times: multiply-adds and memory traffic. */
#ifndef GDN_TOOLS_CEILINGS_H
#define GDN_TOOLS_CEILINGS_H

typedef struct ceilings {
    double flops; /* floating-point operations a second; 0: not measured */
    double bytes; /* memory bytes a second, read and written together; 0: not measured */
    const char *flops_source; /* what was measured */
    const char *bytes_source;
} ceilings;

/* On `threads` threads: float32 multiply-adds in registers, with the widest vectors the CPU has, and an in-place update
 * of 256 MiB. Takes about half a second. */
ceilings ceilings_cpu(int threads);

#endif
