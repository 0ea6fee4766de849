/* Selects the plan for the phone at hand from a bundle for several phones. */
#ifndef NP_PHONES_H
#define NP_PHONES_H

#include <stdint.h>

#include "bundle.h"

#define NP_PROPERTY_BYTES 512u

/* Returns the plan of the first of the phone's names that the bundle has, if the phone has the
 * accelerators that the plan names; otherwise the plan for all other phones. `phone` NULL: the
 * names that Android reports. The accelerators are those of `nnapi_library`. *threads becomes the
 * name's thread count, 0 if it has none; `threads` may be NULL. The same as PlanSet.for_phone of
 * nnapi_prof/bundle/plan_set.py. */
uint32_t np_phones_select(const struct np_bundle *bundle, const nnp_phone *phone,
                          const char *nnapi_library, uint32_t *threads);

/* Reads ro.build.fingerprint; "" if it is unknown. */
void np_phones_read_build(char build[NP_PROPERTY_BYTES]);

#endif
