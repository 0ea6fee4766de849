/* Which plan of a bundle for several phones is that of the phone at hand. */
#ifndef NP_PHONES_H
#define NP_PHONES_H

#include <stdint.h>

#include "bundle.h"

#define NP_PROPERTY_BYTES 512u

/* The plan of the first of the phone's names that the bundle has, if the phone has the accelerators
 * which the plan names, else that of all other phones. `phone` NULL: the names that Android tells;
 * `nnapi_library` is asked for accelerators. *threads becomes the name's, 0 where it has none; NULL
 * where nobody asks. The same as PlanSet.for_phone of
 * nnapi_prof/bundle/plan_set.py. */
uint32_t np_phones_select(const struct np_bundle *bundle, const nnp_phone *phone,
                          const char *nnapi_library, uint32_t *threads);

/* Reads ro.build.fingerprint; "" where it is unknown. */
void np_phones_read_build(char build[NP_PROPERTY_BYTES]);

#endif
