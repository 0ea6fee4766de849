/* Schedules of a monotone labelling on concurrent lanes: partition/parallel.py explains them, and
 * has a timeline in Python. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "moves.h"

#define NP_MOST_LANES 8

/* Times of the phases of a labelling. */
struct np_timeline {
  const int64_t *lane_of_target;
  const double *rates; /* [sets of lanes, the empty one first; lanes] */
  double *phase_ns;    /* time of each phase, alone */
  int64_t *n_links;    /* [phases, phases] dependencies of the first on the second */
  uint64_t *needs;     /* [phases, words] bits of those with any */
  uint64_t *done;      /* [words] */
  int64_t *order;      /* [lanes, phases] used phases of each lane */
  int64_t *moved;      /* [3 (units + 1)] unit, from, to; of one try */
  int64_t *mark;       /* [units] 1 for units that a try looks at, else 0 */
};

/* Tries `moves` moves at temperatures that start at `hot` ns and sometimes fall by `factor`. The
 * cost is the makespan plus `load_price` times the sum of all phases, and is the state's third
 * cost. */
void np_schedule(const struct np_move_sizes *sizes, const struct np_move_tables *tables,
                 struct np_labelling *state, struct np_timeline *timeline, int64_t moves,
                 double hot, double factor, double load_price);

#endif
