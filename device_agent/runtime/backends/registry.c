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
  if (strcmp(name, "half") == 0) {
    return &np_xnnpack_half_backend;
  }
#endif
  return NULL;
}

#ifndef NP_WITH_XNNPACK
enum np_half np_half_arithmetic(void) { return NP_HALF_NONE; }
#endif
