/* A model compiled by NNAPI: for nnapi_engine.c, nnapi_model.c and nnapi_wishes.c only. */
#ifndef NP_NNAPI_COMPILED_H
#define NP_NNAPI_COMPILED_H

#include "engine.h"
#include "nnapi.h"
#include "nnapi_doors.h"
#include "nnapi_table.h"

/* Whether executions may be reused. */
enum np_reuse { NP_REUSE_TRY, NP_REUSE_NEVER };

struct np_nnapi_place;

struct np_compiled {
  const struct np_nnapi *nnapi;
  const struct np_nnapi_table *table; /* the library's */
  const struct np_model *source;
  ANeuralNetworksDevice *device; /* NULL: NNAPI chooses */
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksBurst *burst;         /* NULL without burst */
  ANeuralNetworksExecution *execution; /* the last run's, until it is settled; a reused one stays */
  enum np_reuse reuse;
  struct np_nnapi_place
      *places;         /* inputs and outputs of an execution that is run again and again, owned */
  uint32_t n_unshared; /* nnapi->n_unshared when it was made; unchanged: its memory still exists */
  int has_run;         /* it has run, and its outputs had the model's shapes */
  int measure_timing;
  int async;
};

/* Records a call that failed with a result code of the library. */
enum np_status np_nnapi_failed(const struct np_compiled *self, struct np_fault *fault,
                               const char *call, int code);

/* Returns from the calling function if a call did not return NO_ERROR. */
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

/* Sets the priority of self->compilation and the folder where its result is cached. Both are
 * optional: what the library lacks a function for, or refuses, is skipped. */
void np_nnapi_set_wishes(const struct np_compiled *self, const struct np_options *options);

/* Returns whether self->execution has exactly these inputs and outputs, and may be run again. */
int np_nnapi_runs_again(const struct np_compiled *self, const struct np_io *inputs,
                        const struct np_io *outputs);

/* Gives each run its own execution from now on. */
void np_nnapi_never_reuse(struct np_compiled *self);

/* Makes self->execution, which is new, reusable with these inputs and outputs, if the library
 * can. */
void np_nnapi_make_reusable(struct np_compiled *self, const struct np_io *inputs,
                            const struct np_io *outputs);

/* Checks that self->device, the accelerator of this name, supports every operation. */
enum np_status np_nnapi_check_support(const struct np_compiled *self, const char *accelerator,
                                      struct np_fault *fault);

#endif
