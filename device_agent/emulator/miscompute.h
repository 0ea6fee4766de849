/* Drivers that compute something else: members "errors" of a description's accelerators. */
#ifndef NP_MISCOMPUTE_H
#define NP_MISCOMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "np_executor.h"
#include "phone.h"

/* What an executor of a simulated accelerator needs to know of its run. */
struct np_miscompute {
  const struct np_accelerator *accelerator;
  uint32_t when;    /* bits of enum np_error_when that hold for the run */
  uint64_t earlier; /* runs of the compilation before it */
  bool odd;         /* drawn once for each executor: a race is lost */
};

/* Whether an accelerator computes something else at all. NULL has no errors. */
bool np_miscomputes(const struct np_accelerator *accelerator);

/* Draws what is left to chance. */
void np_miscompute_init(struct np_miscompute *run, const struct np_accelerator *accelerator);

/* For np_executor_options.after: changes the outputs of an operation as the accelerator's errors
 * say. `context` is a struct np_miscompute. */
void np_miscompute_after(void *context, const struct np_call *call);

#endif
