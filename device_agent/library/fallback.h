/* An engine on top of NNAPI's that runs a model on the CPU when NNAPI cannot: NNAPI is missing,
 * refuses the model, fails, crashes the trial's process, or takes too long. */
#ifndef NP_FALLBACK_H
#define NP_FALLBACK_H

#include <stdatomic.h>

#include "engine.h"
#include "nnapi.h"
#include "nnapi_prof_runtime.h"
#include "sha256.h"

/* Whether the CPU runs a compiled model instead of NNAPI, and why. The fields after is_cpu are set
 * once, before it. */
struct np_stand_in {
  _Atomic int is_cpu; /* the CPU instead of NNAPI */
  nnp_cause cause;
  struct np_message why;
  struct np_engine_facts engine; /* the CPU's */
};

/* The result of trying a segment in a separate process. */
struct np_trial_verdict {
  nnp_cause cause; /* NNP_NO_CAUSE: it ran or was not tried */
  enum np_status status;
  struct np_fault fault;
  int is_tried;
};

/* The result of a trial. */
struct np_trial_record {
  uint8_t drivers[NP_SHA256_BYTES]; /* np_trial_drivers of the library that the segments were tried
                                       with */
  struct np_trial_verdict opening;  /* opening NNAPI's library: if that failed, nothing else was
                                       tried */
  int is_recalled;                  /* from the cache of an earlier start */
  uint32_t n;
  struct np_trial_verdict *verdicts; /* [n], by segment; NULL: no trial */
};

/* The context of the engine. */
struct np_fallback {
  struct np_nnapi *nnapi; /* NULL: missing, for the next two reasons */
  nnp_cause missing_cause;
  struct np_message missing;
  int is_allowed;            /* fall back; if not, NNAPI's failures are the engine's */
  uint64_t compile_limit_ns; /* 0: none */
  uint64_t run_limit_ns;
  nnp_log *log; /* NULL: none */
  void *log_context;
  uint32_t plan;
  const struct np_trial_verdict *verdicts; /* [n_segments], NULL: none was tried */
  _Atomic uint32_t *n_left;                /* the bundle's */
};

/* Returns the engine. *fallback, and the library it names, must outlive what the engine
 * compiles. */
struct np_engine np_fallback_engine(struct np_fallback *fallback);

/* Returns why NNAPI's engine failed to compile or, with has_compiled, to run. */
nnp_cause np_fallback_cause(enum np_status status, const struct np_fault *fault, int has_compiled);

#endif
