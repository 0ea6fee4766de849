/* Facts that a request learns about the drivers of its actions, in addition to those of earlier
 * requests. */
#ifndef NP_DRIVERS_H
#define NP_DRIVERS_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"
#include "request.h"
#include "shm.h"

#define NP_FIRST_ROOM 4u                      /* halved if a driver has less */
#define NP_MOST_LOST_NS UINT64_C(60000000000) /* limit of waiting for one driver in a request */

/* The driver of one accelerator. */
struct np_driver {
  const char *name;        /* owned by the request, NULL: NNAPI's choice */
  uint32_t room;           /* number of our compilations that it holds at once */
  uint32_t is_shy;         /* it failed in company even with room for one: nothing may run beside
                              it */
  enum np_shm_kind memory; /* the kind that it accepted, NP_SHM_UNKNOWN before the first run */
  const struct np_action *gauge; /* an action that runs only on it, NULL: none is known */
  uint64_t gauge_ns;             /* its shortest run, 0: an earlier request's */
  uint64_t slowest_ns;           /* the longest completed turn of an action on it, 0: none */
  uint64_t most_bytes;           /* size of the largest such action */
  uint32_t n_late;               /* actions that exceeded their time */
  uint32_t sick;                 /* it fails its gauge */
  uint64_t ask_ns;               /* when to try the gauge again, by the monotonic clock, */
  uint64_t pause_ns;             /* and the pause after that */
  uint64_t lost_ns;              /* time spent waiting for it in this request because it died or
                                    hung */
  uint32_t gone;                 /* 1: NNAPI did not list it during the whole wait */
};

struct np_drivers {
  uint32_t n;             /* accelerators that the request names */
  struct np_driver *each; /* [n + 1], the last: NNAPI's choice */
};

/* Makes the drivers of a bound request. NP_NO_MEMORY. */
enum np_status np_drivers_make(const struct np_request *request, struct np_drivers *drivers);
void np_drivers_free(struct np_drivers *drivers);

/* Returns the driver of a segment on NNAPI. */
struct np_driver *np_driver_of(const struct np_drivers *drivers,
                               const struct np_bundle_segment *segment);

/* Returns the kind of memory that the driver of a segment on NNAPI accepts. For NNAPI's choice it
 * is the kind that all accelerators are known to map, or addresses if they differ: if one of them
 * cannot map its memory, NNAPI silently uses the CPU. */
enum np_shm_kind np_segment_memory(const struct np_drivers *drivers,
                                   const struct np_bundle_segment *segment);

/* Returns the kind of memory to begin with for an action: the last of its segments' kinds that is
 * shared. */
enum np_shm_kind np_action_memory(const struct np_drivers *drivers, const struct np_action *action);

/* Remembers the kinds of memory that the drivers of an action that ran accepted; facts is
 * [n_segments]. */
void np_drivers_learn_memory(const struct np_drivers *drivers, const struct np_action *action,
                             const struct np_engine_facts *facts);

/* Returns how many of n actions, from the first on, fit into one wave: no driver gets more
 * compilations than it has room for. NNAPI's choice counts for every accelerator and is not put
 * beside actions that name one, since it silently uses the CPU if a driver has no room. At least
 * 1. */
uint32_t np_wave_size(const struct np_drivers *drivers, const struct np_action *const *actions,
                      uint32_t n);

/* Returns whether another action of a wave uses one of this action's accelerators. */
int np_shares_driver(const struct np_drivers *drivers, const struct np_action *action,
                     const struct np_action *const *wave, uint32_t n);

/* Records that a turn of an action took `ns` on its drivers. */
void np_drivers_learn_turn(const struct np_request *request, const struct np_drivers *drivers,
                           const struct np_action *action, uint64_t ns);

/* Returns the time limit of a turn of an action, in ms. For a single segment on NNAPI it is below
 * the action's own limit, by the time that its driver took for others of that size, so that a
 * hanging driver does not cost the whole limit each time; it is also lower for the second attempt
 * of an action that was late. */
uint32_t np_drivers_limit(const struct np_request *request, const struct np_drivers *drivers,
                          const struct np_action *action, int was_late);

/* Records that a turn of an action was late. */
void np_drivers_note_late(const struct np_drivers *drivers, const struct np_action *action);

/* Records that an action waited `ns` for its driver, which died or hung. */
void np_drivers_lose(const struct np_drivers *drivers, const struct np_action *action, uint64_t ns);

/* Returns whether so much time was lost with a driver that no more actions are tried on it. */
int np_driver_is_slow(const struct np_driver *driver);

/* Returns an accelerator that an action needs and that is sick or slow, NULL: none. A segment for
 * which NNAPI chooses needs all of them, since NNAPI silently uses the CPU if one fails. */
const char *np_drivers_sick(const struct np_drivers *drivers, const struct np_action *action);

/* Halves the room of an action's drivers, which could not hold that many compilations; drivers with
 * room for one are marked as not tolerating other accelerators' either. */
void np_drivers_halve(const struct np_drivers *drivers, const struct np_action *action);

#endif
