/* Selects the plan of a mixture by which a frame runs. */
#ifndef NP_MIXTURE_H
#define NP_MIXTURE_H

#include <stdint.h>

#include "bundle.h"

/* Returns which of shares[n], at least one, frame `frame` belongs to: the share into which the
 * fractional part of a multiple of the golden ratio falls. In any run of consecutive frames each
 * share occurs nearly as often as it says. The same as PlanSet.select of
 * nnapi_prof/bundle/plan_set.py, number by number. */
uint32_t np_mixture_select(const struct np_bundle_share *shares, uint32_t n, uint64_t frame);

/* Returns the largest number of frames with one share in any `window` consecutive frames. */
uint32_t np_mixture_most(double share, uint32_t window);

#endif
