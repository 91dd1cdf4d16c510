/* What emulators of a CPU do differently from the CPU, where tests must know. */
#ifndef GDN_TEST_EMULATION_H
#define GDN_TEST_EMULATION_H

#include <stdbool.h>

/* Whether conversions from and to float16 lose subnormals while the library's float mode is set. The CPUs' F16C ignores
 * that mode; qemu's obeys it. */
bool emulation_flushes_float16(void);

#endif
