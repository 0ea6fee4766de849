/* Declarations that the library's files share: for library/ only. */
#ifndef NP_RUNTIME_H
#define NP_RUNTIME_H

#include "bundle.h"
#include "nnapi_prof_runtime.h"
#include "np_status.h"

struct nnp_bundle {
  struct np_bundle bundle;
  void *mapped; /* NULL: the bytes are the caller's */
  size_t n_mapped;
  _Atomic uint32_t n_left; /* bundle.n_left */
};

/* Converts an internal status to the library's. */
nnp_status np_runtime_status(enum np_status status);

/* Fills in *error (may be NULL) and returns `status`. */
nnp_status np_runtime_fail(nnp_error *error, nnp_status status, int32_t segment, int32_t nnapi_code,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Returns from the calling function with an error, not of a segment nor NNAPI's, unless `holds`. */
#define NNP_REQUIRE(holds, error, status, ...)                                                     \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      return np_runtime_fail(error, status, -1, 0, __VA_ARGS__);                                   \
    }                                                                                              \
  } while (0)

/* Resets *error to no error. */
void np_runtime_clear(nnp_error *error);

#endif
