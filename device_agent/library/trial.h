/* A segment that NNAPI compiles and runs once in a process of its own, before this one trusts its
 * driver. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include "fallback.h"

/* Opens a library (NULL: NNAPI's own) in a child. */
void np_trial_open(const char *library, uint64_t limit_ns, struct np_trial_verdict *verdict);

/* Compiles a model of known shapes and runs it once on zeros in a child, which may take limit_ns
 * for both (0: 30 s). */
void np_trial_run(struct np_nnapi *nnapi, const struct np_model *model,
                  const struct np_options *options, uint64_t limit_ns,
                  struct np_trial_verdict *verdict);

#endif
