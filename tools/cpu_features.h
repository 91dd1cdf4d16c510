/* What this CPU offers of the instruction sets that matter here, for `gdn info`. */
#ifndef GDN_TOOLS_CPU_FEATURES_H
#define GDN_TOOLS_CPU_FEATURES_H

#include <stddef.h>

/* "x86-64: sse4.2 avx2 fma avx512f ..." */
void cpu_features(char *text, size_t size);

#endif
