/* The back ends of this build, by name. */
#include <string.h>

#include "backends/np_backend.h"
#include "np_executor.h"

const struct np_backend *np_backend_named(const char *name) {
  if (strcmp(name, "reference") == 0) {
    return &np_reference_backend;
  }
#ifdef NP_WITH_XNNPACK
  if (strcmp(name, "fast") == 0) {
    return &np_xnnpack_backend;
  }
#endif
  return NULL;
}
