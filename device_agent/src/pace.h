/* Watches the CPU's clock and the core that runs use: whether the clock has settled, and whether
 * either changed within a round. Reads them between runs, never within one. */
#ifndef NP_PACE_H
#define NP_PACE_H

#include <stdint.h>

#include "simulator.h"
#include "sysfs.h"
#include "timing.h"

/* Observations of a round; zero: none. */
struct np_pace_facts {
  int64_t first_khz, last_khz; /* 0: unknown */
  int64_t least_khz, most_khz;
  uint64_t cpus; /* those of the first 64 that it was seen on */
  uint32_t n_looks;
};

/* The watch of a process; level_khz is the highest clock that it ever saw. */
struct np_pace_watch {
  const struct np_sysfs *sysfs;         /* the real device's, else NULL */
  const struct np_simulator *simulator; /* the simulated phone's, else NULL */
  int is_odd;                           /* it read an impossible clock: none is trusted any more */
  int64_t level_khz;
  int64_t goal_khz;    /* level_khz at np_pace_begin */
  int64_t highest_khz; /* since np_pace_begin, and when it last rose, in ns of busy time */
  uint64_t risen_ns;
  int64_t first_khz; /* first clock read, and whether a different one followed */
  int moves;
  struct np_pace_facts *facts;
};

/* Returns whether the clock can be read and has been seen to change: a constant one may be
 * stuck. */
int np_pace_tells(struct np_pace_watch *watch);

/* Begins a phase of runs that lasts until the clock settles. */
void np_pace_begin(struct np_pace_watch *watch);

/* Returns the watch for timing.h. The clock counts as settled if it is within 3 % of the highest
 * clock that is allowed or that this process has seen, or has not risen for NP_FLAT_NS; always if
 * it cannot be read, or if it read far more than is allowed. A simulated CPU can be kept busy
 * without repeating a short run that often. */
struct np_pace np_pace_of(struct np_pace_watch *watch, int on_cpu);

#define NP_FLAT_NS UINT64_C(40000000)

/* Returns whether in a round the clock moved by more than 3 %, or was that much below level_khz,
 * the highest that the process has seen (0: not checked), or, if cores_count, the core changed. */
int np_pace_moved(const struct np_pace_facts *facts, int64_t level_khz, int cores_count);

#endif
