/* What a bundle says of the cores and the limits of time that its plans were measured under. */
#ifndef NP_CONDITIONS_H
#define NP_CONDITIONS_H

#include "bundle.h"

/* Fills in what options with NNP_AS_MEASURED leave to the bundle: cores and the limit of a run.
 * Says so to their log where this system does not let the process have the cores. The plan and
 * threads are chosen already. */
void np_conditions_apply(const struct np_bundle *bundle, nnp_options *options);

#endif
