/* Schedules of a monotone labelling on lanes that work at once: partition/parallel.py says what
 * they are, and has a timeline in Python. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "moves.h"

#define NP_MOST_LANES 8

/* When the phases of a labelling run. */
struct np_timeline {
  const int64_t *lane_of_target;
  const double *rates; /* [sets of lanes, the empty one first; lanes] */
  double *phase_ns;    /* what each phase takes, alone */
  int64_t *n_links;    /* [phases, phases] dependencies of the first on the second */
  uint64_t *needs;     /* [phases, words] which of them are more than none */
  uint64_t *done;      /* [words] */
  int64_t *order;      /* [lanes, phases] those of each lane that have units */
  int64_t *moved;      /* [3 (units + 1)] unit, from, to: of one try */
  int64_t *mark;       /* [units] 1 of units that a try looks at, else 0 */
};

/* Tries so many moves, at temperatures that begin with `hot` ns and fall by `factor` now and then;
 * the cost is the makespan and `load_price` of the sum of all phases. The state's third cost is
 * of both. */
void np_schedule(const struct np_move_sizes *sizes, const struct np_move_tables *tables,
                 struct np_labelling *state, struct np_timeline *timeline, int64_t moves,
                 double hot, double factor, double load_price);

#endif
