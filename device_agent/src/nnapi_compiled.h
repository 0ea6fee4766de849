/* A model compiled by NNAPI: for nnapi_engine.c, nnapi_model.c and nnapi_wishes.c only. */
#ifndef NP_NNAPI_COMPILED_H
#define NP_NNAPI_COMPILED_H

#include "engine.h"
#include "nnapi.h"
#include "nnapi_doors.h"
#include "nnapi_table.h"

struct np_compiled {
  const struct np_nnapi *nnapi;
  const struct np_nnapi_table *table; /* its */
  const struct np_model *source;
  ANeuralNetworksDevice *device; /* NULL: NNAPI chooses */
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksBurst *burst;         /* NULL without burst */
  ANeuralNetworksExecution *execution; /* of the last run, until it is settled */
  int has_run;                         /* ... and its outputs had the model's shapes */
  int measure_timing;
  int async;
};

/* Records a call that returned this code of the library's own, and not NO_ERROR. */
enum np_status np_nnapi_failed(const struct np_compiled *self, struct np_fault *fault,
                               const char *call, int code);

/* Records a function that this library lacks. */
enum np_status np_nnapi_absent(struct np_fault *fault, const char *call, int level);

/* Makes self->model from self->source and finishes it. */
enum np_status np_nnapi_build_model(struct np_compiled *self, const struct np_options *options,
                                    struct np_fault *fault);

/* Says the priority of self->compilation, and where its result is kept for the next time. Both are
 * wishes: what the library has no function for, or refuses, is left out. */
void np_nnapi_set_wishes(const struct np_compiled *self, const struct np_options *options);

/* Asks the accelerator of this name, self->device, whether it takes every operation. */
enum np_status np_nnapi_check_support(const struct np_compiled *self, const char *accelerator,
                                      struct np_fault *fault);

#endif
