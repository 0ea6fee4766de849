/* NNAPI's functions as a table: for nnapi.c and nnapi_engine.c only. */
#ifndef NP_NNAPI_TABLE_H
#define NP_NNAPI_TABLE_H

#include <stdatomic.h>

#include "nnapi.h"
#include "np_nnapi.h"

#define NP_FUNCTION_FIELD(result, name, parameters, level) result(*name) parameters;

/* Every entry may be NULL. */
struct np_nnapi_table {
  NP_NNAPI_FUNCTIONS(NP_FUNCTION_FIELD)
};

struct np_nnapi {
  _Atomic uint32_t n_holders;
  void *handle;
  enum np_door door;
  char path[512];
  const char *file; /* name within `path` */
  struct np_nnapi_table table;
  _Atomic uint32_t n_unshared; /* number of memories that were given back */
};

/* Finds an accelerator by its name or the name that np_nnapi_accelerators gives it. NP_MISSING with
 * the known names in *why; NP_UNSUPPORTED if the library cannot name accelerators. */
enum np_status np_nnapi_find(const struct np_nnapi *nnapi, const char *name,
                             ANeuralNetworksDevice **device, struct np_message *why);

#endif
