/* Which plan of a mixture a frame runs by. */
#ifndef NP_MIXTURE_H
#define NP_MIXTURE_H

#include <stdint.h>

#include "bundle.h"

/* Which of the shares [n], at least one, frame `frame` is of: a multiple of the golden ratio, less
 * its whole part, falls into it. Any stretch of frames has each share nearly as often as it says.
 * The same as PlanSet.select of nnapi_prof/bundle/plan_set.py, number by number. */
uint32_t np_mixture_select(const struct np_bundle_share *shares, uint32_t n, uint64_t frame);

/* How many of `window` frames in a row are of one share at most. */
uint32_t np_mixture_most(double share, uint32_t window);

#endif
