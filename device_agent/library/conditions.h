/* The cores and time limits under which a bundle's plans were measured. */
#ifndef NP_CONDITIONS_H
#define NP_CONDITIONS_H

#include "bundle.h"

/* With NNP_AS_MEASURED, fills in the options left to the bundle: cores and the limit of a run. Logs
 * to options->log if the system does not let the process use the cores. The plan and threads must
 * be chosen already. */
void np_conditions_apply(const struct np_bundle *bundle, nnp_options *options);

#endif
