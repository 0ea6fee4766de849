/* Segments that NNAPI compiles and runs once in a process of their own, before this one trusts its
 * driver. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include "fallback.h"

/* A segment that is to be tried: a model of known shapes, which runs on zeros. */
struct np_trial_part {
  const struct np_model *model;
  struct np_options options;
};

/* Tries parts[n] one after another in a child, which first opens a library (NULL: NNAPI's own)
 * where nnapi is NULL: of that is *opening, and without it there are no other verdicts. What ends
 * the child is the verdict of the part that it was at, and those after it have another child. Each
 * may take limit_ns to compile and run (0: 30 s), as opening may. */
void np_trial(const char *library, struct np_nnapi *nnapi, const struct np_trial_part *parts,
              uint32_t n, uint64_t limit_ns, struct np_trial_verdict *opening,
              struct np_trial_verdict *verdicts);

#endif
