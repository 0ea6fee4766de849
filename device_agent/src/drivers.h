/* What a request learns of the drivers that its actions use, beyond what those before it did. */
#ifndef NP_DRIVERS_H
#define NP_DRIVERS_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"
#include "request.h"
#include "shm.h"

#define NP_FIRST_ROOM 4u                      /* halved where a driver has less */
#define NP_MOST_LOST_NS UINT64_C(60000000000) /* waiting for one driver in a request */

/* One accelerator's. */
struct np_driver {
  const char *name;        /* the request's, NULL: NNAPI's choice */
  uint32_t room;           /* compilations of ours that it holds at once */
  uint32_t is_shy;         /* with room for one it failed in company: nothing runs beside it */
  enum np_shm_kind memory; /* that reached it, NP_SHM_UNKNOWN before the first run */
  const struct np_action *gauge; /* an action that runs on it alone, NULL: none is known */
  uint64_t gauge_ns;             /* the shortest run of that, 0: an earlier request's */
  uint64_t slowest_ns;           /* turn of an action on it that came to its end, 0: none did */
  uint64_t most_bytes;           /* of an action that did */
  uint32_t n_late;               /* actions that did not, in time */
  uint32_t sick;                 /* its gauge fails */
  uint64_t ask_ns;               /* when that is tried again, by the monotonic clock, */
  uint64_t pause_ns;             /* and how much later the next time */
  uint64_t lost_ns;              /* waiting for it in this request, as it died or hung */
  uint32_t gone;                 /* 1: NNAPI did not list it all the time that it was waited for */
};

struct np_drivers {
  uint32_t n;             /* accelerators that a request names */
  struct np_driver *each; /* [n + 1], the last: NNAPI's choice */
};

/* Of a request that is bound. NP_NO_MEMORY. */
enum np_status np_drivers_make(const struct np_request *request, struct np_drivers *drivers);
void np_drivers_free(struct np_drivers *drivers);

/* The driver of a segment on NNAPI. */
struct np_driver *np_driver_of(const struct np_drivers *drivers,
                               const struct np_bundle_segment *segment);

/* The kind of memory that reached the driver of a segment on NNAPI. Of NNAPI's choice the one that
 * all accelerators are known to map, addresses where they differ: where one of them cannot map what
 * it is handed, NNAPI takes the CPU and tells nobody. */
enum np_shm_kind np_segment_memory(const struct np_drivers *drivers,
                                   const struct np_bundle_segment *segment);

/* The kind to begin with for an action: the last of its segments' that is shared. */
enum np_shm_kind np_action_memory(const struct np_drivers *drivers, const struct np_action *action);

/* Remembers in which memory an action that ran reached its drivers; facts [n_segments]. */
void np_drivers_learn_memory(const struct np_drivers *drivers, const struct np_action *action,
                             const struct np_engine_facts *facts);

/* How many of n actions, from the first on, one wave can hold: as many compilations at once as each
 * driver has room for, and NNAPI's choice, which counts for every accelerator, not beside actions
 * that name one: where a driver has no room for it, it takes the CPU and tells nobody. At least 1.
 */
uint32_t np_wave_size(const struct np_drivers *drivers, const struct np_action *const *actions,
                      uint32_t n);

/* Whether another action of a wave has compilations on one of this one's accelerators. */
int np_shares_driver(const struct np_drivers *drivers, const struct np_action *action,
                     const struct np_action *const *wave, uint32_t n);

/* An action came to the end of a turn on its drivers after so long. */
void np_drivers_learn_turn(const struct np_request *request, const struct np_drivers *drivers,
                           const struct np_action *action, uint64_t ns);

/* How long a turn of an action may take, in ms: its own limit. For one segment on NNAPI less, by
 * what its driver took for others of its size, so that a driver that hangs does not cost the whole
 * limit each time; and less for the second attempt of what was late. */
uint32_t np_drivers_limit(const struct np_request *request, const struct np_drivers *drivers,
                          const struct np_action *action, int was_late);

/* A turn of an action was late. */
void np_drivers_note_late(const struct np_drivers *drivers, const struct np_action *action);

/* An action waited so long for its driver, which died or hung. */
void np_drivers_lose(const struct np_drivers *drivers, const struct np_action *action, uint64_t ns);

/* Whether so much time was lost with a driver that nothing more is tried on it. */
int np_driver_is_slow(const struct np_driver *driver);

/* An accelerator that an action needs and that is sick or slow, NULL: none. What NNAPI chooses for
 * needs all, as it takes the CPU where one fails, and tells nobody. */
const char *np_drivers_sick(const struct np_drivers *drivers, const struct np_action *action);

/* An action's drivers could not hold as many compilations as they had room for; with room for one,
 * they do not stand other accelerators' either. */
void np_drivers_halve(const struct np_drivers *drivers, const struct np_action *action);

#endif
