/* Loading a backend module, libgdn_<name>.so. */
#ifndef GDN_CORE_MODULE_H
#define GDN_CORE_MODULE_H

#include "backend.h"

/* Looks in the folder this library was loaded from, then in `extra_path` (may be NULL); never in the current directory or
 * the loader's search path. The first file that loads, has the entry symbol and was built for this very version wins;
 * any other is passed over with a line in `reason`. Returns NULL if none does. A module stays loaded for the life
 * of the process: a device runtime inside it cannot be unloaded safely. */
const gdn_backend *gdn_module_load(const char *name, const char *extra_path, char *reason, size_t reason_size);

#endif
