/* An engine over NNAPI's that lets the CPU run a model which NNAPI cannot: where there is none, it
 * refuses the model, fails, breaks a process that tries it first, or takes too long. */
#ifndef NP_FALLBACK_H
#define NP_FALLBACK_H

#include <stdatomic.h>

#include "engine.h"
#include "nnapi.h"
#include "nnapi_prof_runtime.h"
#include "sha256.h"

/* Who runs a compiled model. What follows is_cpu is set before it, once. */
struct np_stand_in {
  _Atomic int is_cpu; /* the CPU instead of NNAPI */
  nnp_cause cause;
  struct np_message why;
  struct np_engine_facts engine; /* the CPU's */
};

/* What was found out about a segment in a process of its own. */
struct np_trial_verdict {
  nnp_cause cause; /* NNP_NO_CAUSE: it ran, or was not tried */
  enum np_status status;
  struct np_fault fault;
  int is_tried;
};

/* What became of a trial. */
struct np_trial_record {
  uint8_t drivers[NP_SHA256_BYTES]; /* np_trial_drivers of where the segments were tried */
  struct np_trial_verdict opening;  /* of NNAPI's library: without it nothing else was tried */
  int is_recalled;                  /* from an earlier start */
  uint32_t n;
  struct np_trial_verdict *verdicts; /* [n], by segment; NULL: there was no trial */
};

/* Whom the engine tells, and how far it goes. */
struct np_fallback {
  struct np_nnapi *nnapi; /* NULL: there is none, for these reasons */
  nnp_cause missing_cause;
  struct np_message missing;
  int is_allowed;            /* else NNAPI's failures are the engine's */
  uint64_t compile_limit_ns; /* 0: any */
  uint64_t run_limit_ns;
  nnp_log *log; /* NULL: nobody */
  void *log_context;
  uint32_t plan;
  const struct np_trial_verdict *verdicts; /* [n_segments], NULL: none was tried */
  _Atomic uint32_t *n_left;                /* of the bundle */
};

/* The engine; *fallback must outlive what it compiles, and the library it names too. */
struct np_engine np_fallback_engine(struct np_fallback *fallback);

/* Why NNAPI's engine failed to compile, or to run what it compiled. */
nnp_cause np_fallback_cause(enum np_status status, const struct np_fault *fault, int has_compiled);

#endif
