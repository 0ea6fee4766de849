/* Simulates drivers with wrong results: members "errors" of a description's accelerators. */
#ifndef NP_MISCOMPUTE_H
#define NP_MISCOMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "np_executor.h"
#include "phone.h"

/* The state of a run that the errors of a simulated accelerator depend on. */
struct np_miscompute {
  const struct np_accelerator *accelerator;
  uint32_t when;    /* bits of enum np_error_when that hold for the run */
  uint64_t earlier; /* runs of the compilation before it */
  bool odd;         /* drawn once for each executor: it loses the race */
};

/* Returns whether an accelerator has errors. NULL has none. */
bool np_miscomputes(const struct np_accelerator *accelerator);

/* Initialises the state and draws its random part. */
void np_miscompute_init(struct np_miscompute *run, const struct np_accelerator *accelerator);

/* For np_executor_options.after: applies the accelerator's errors to the outputs of an operation.
 * `context` is a struct np_miscompute. */
void np_miscompute_after(void *context, const struct np_call *call);

#endif
