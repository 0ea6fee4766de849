/* The clock and the core that runs have: whether the clock has risen to where it stays, and whether
 * either changed within a round. Read between runs, never within one. */
#ifndef NP_PACE_H
#define NP_PACE_H

#include <stdint.h>

#include "simulator.h"
#include "sysfs.h"
#include "timing.h"

/* What was seen of a round; zero is nothing. */
struct np_pace_facts {
  int64_t first_khz, last_khz; /* 0 unknown */
  int64_t least_khz, most_khz;
  uint64_t cpus; /* of the first 64, those that it was seen on */
  uint32_t n_looks;
};

/* One process's: level_khz is the highest clock that it ever saw. */
struct np_pace_watch {
  const struct np_sysfs *sysfs;         /* of a real device, else NULL */
  const struct np_simulator *simulator; /* of a simulated phone, else NULL */
  int is_odd; /* it read a clock that cannot be: none is believed any more */
  int64_t level_khz;
  int64_t goal_khz;    /* what that was at np_pace_begin */
  int64_t highest_khz; /* since np_pace_begin, and when it rose last, in ns of being busy */
  uint64_t risen_ns;
  int64_t first_khz; /* that was read, and whether another was since */
  int moves;
  struct np_pace_facts *facts;
};

/* Whether the clock can be read, and was seen to move: one that always tells the same may be stuck.
 */
int np_pace_tells(struct np_pace_watch *watch);

/* Before runs that are waited for to settle. */
void np_pace_begin(struct np_pace_watch *watch);

/* The watch as timing.h wants it: settled where the clock is within 3 % of the highest that is
 * allowed or that this process has seen, or has not risen for NP_FLAT_NS; where it cannot be read,
 * always; so it is where it read a clock that is far beyond what is allowed. A simulated CPU need
 * not run something short as often as it takes. */
struct np_pace np_pace_of(struct np_pace_watch *watch, int on_cpu);

#define NP_FLAT_NS UINT64_C(40000000)

/* Whether in a round the clock moved by more than 3 %, or stood lower by that than the highest that
 * the process has seen (0: not asked), or, where cores count, another core took over. */
int np_pace_moved(const struct np_pace_facts *facts, int64_t level_khz, int cores_count);

#endif
