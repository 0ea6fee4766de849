/* What a request learns of the drivers that its actions use. */
#ifndef NP_DRIVERS_H
#define NP_DRIVERS_H

#include <stdint.h>

#include "np_status.h"
#include "request.h"
#include "shm.h"

/* One accelerator's. */
struct np_driver {
  uint32_t room;                 /* compilations of ours that it holds at once */
  enum np_shm_kind memory;       /* that reached it, NP_SHM_UNKNOWN before the first run */
  const struct np_action *gauge; /* an action that ran on it alone, NULL: none yet */
  uint64_t gauge_ns;             /* the shortest run of that */
};

struct np_drivers {
  uint32_t n;             /* strings of the request */
  struct np_driver *each; /* [n + 1] by string index, the last: NNAPI's choice */
};

enum np_status np_drivers_make(const struct np_request *request, struct np_drivers *drivers);
void np_drivers_free(struct np_drivers *drivers);

/* The driver of a segment on NNAPI. */
struct np_driver *np_driver_of(const struct np_drivers *drivers, const struct np_segment *segment);

/* Whether an action uses NNAPI, and whether it leaves the choice of an accelerator to it. */
int np_uses_nnapi(const struct np_action *action);
int np_uses_choice(const struct np_action *action);

/* How many of the first n actions, with one more, one wave can hold: as many compilations at once
 * as each driver has room for; NNAPI's choice counts for every accelerator. At least 1. */
uint32_t np_wave_size(const struct np_drivers *drivers, const struct np_action *const *actions,
                      uint32_t n);

/* Whether another action of a wave has compilations on one of this one's accelerators. */
int np_shares_driver(const struct np_drivers *drivers, const struct np_action *action,
                     const struct np_action *const *wave, uint32_t n);

/* An action's drivers could not hold as many compilations as they had room for. */
void np_drivers_halve(const struct np_drivers *drivers, const struct np_action *action);

#endif
