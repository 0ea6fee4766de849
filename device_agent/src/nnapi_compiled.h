/* A model compiled by NNAPI: for nnapi_engine.c, nnapi_model.c and nnapi_wishes.c only. */
#ifndef NP_NNAPI_COMPILED_H
#define NP_NNAPI_COMPILED_H

#include "engine.h"
#include "nnapi.h"
#include "nnapi_doors.h"
#include "nnapi_table.h"

/* Whether an execution is run again. */
enum np_reuse { NP_REUSE_TRY, NP_REUSE_NEVER };

struct np_nnapi_place;

struct np_compiled {
  const struct np_nnapi *nnapi;
  const struct np_nnapi_table *table; /* its */
  const struct np_model *source;
  ANeuralNetworksDevice *device; /* NULL: NNAPI chooses */
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksBurst *burst;         /* NULL without burst */
  ANeuralNetworksExecution *execution; /* of the last run, until it is settled; one that is run
                                        * again, for good */
  enum np_reuse reuse;
  struct np_nnapi_place
      *places;         /* of inputs and outputs of an execution that is run again, owned */
  uint32_t n_unshared; /* when it was made: memory of then is still there */
  int has_run;         /* ... and its outputs had the model's shapes */
  int measure_timing;
  int async;
};

/* Records a call that returned this code of the library's own, and not NO_ERROR. */
enum np_status np_nnapi_failed(const struct np_compiled *self, struct np_fault *fault,
                               const char *call, int code);

/* Returns from the calling function where a call did not return NO_ERROR. */
#define NP_NNAPI_TRY(self, fault, call, expression)                                                \
  do {                                                                                             \
    const int np_try_code = (expression);                                                          \
    if (np_try_code != ANEURALNETWORKS_NO_ERROR) {                                                 \
      return np_nnapi_failed(self, fault, call, np_try_code);                                      \
    }                                                                                              \
  } while (0)

/* Records a function that this library lacks. */
enum np_status np_nnapi_absent(struct np_fault *fault, const char *call, int level);

/* Makes self->model from self->source and finishes it. */
enum np_status np_nnapi_build_model(struct np_compiled *self, const struct np_options *options,
                                    struct np_fault *fault);

/* Says the priority of self->compilation, and where its result is kept for the next time. Both are
 * wishes: what the library has no function for, or refuses, is left out. */
void np_nnapi_set_wishes(const struct np_compiled *self, const struct np_options *options);

/* Whether self->execution reads and writes just these, and may be run again. */
int np_nnapi_runs_again(const struct np_compiled *self, const struct np_io *inputs,
                        const struct np_io *outputs);

/* From now on each run has an execution of its own. */
void np_nnapi_never_reuse(struct np_compiled *self);

/* Makes self->execution, which is new, one that may be run again with these, if the library can. */
void np_nnapi_make_reusable(struct np_compiled *self, const struct np_io *inputs,
                            const struct np_io *outputs);

/* Asks the accelerator of this name, self->device, whether it takes every operation. */
enum np_status np_nnapi_check_support(const struct np_compiled *self, const char *accelerator,
                                      struct np_fault *fault);

#endif
