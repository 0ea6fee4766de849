/* Schedules of a monotone labelling on lanes that work at once: partition/schedule.py says what
 * they are, and has a timeline in Python. The structures mirror its named tuples. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include <stdint.h>

#define NP_MOST_LANES 8

struct np_schedule_sizes {
  int64_t n; /* units */
  int64_t t; /* targets */
  int64_t phases;
  int64_t words; /* of 64 bits, for a set of phases */
  int64_t lanes;
  int64_t table; /* of regions: a power of two */
};

struct np_schedule_tables {
  const double *unit_ns, *overhead_ns;
  const int64_t *predecessor_at, *predecessors, *successor_at, *successors, *producer;
  const uint8_t *is_output;
  const double *in_ns, *out_ns;
  const int64_t *reader_at, *readers, *reader_value, *read_at, *reads, *make_at, *makes;
  const int64_t *phase_target, *lane_of_target, *unit_key, *region_key;
  const double *region_ns;
  const double *rates; /* [sets of lanes, the empty one first; lanes] */
};

struct np_schedule_state {
  int64_t *phase, *best, *n_units, *key;
  double *phase_ns; /* what each phase takes, alone */
  int64_t *n_links; /* [phases, phases] dependencies of the first on the second */
  uint64_t *needs;  /* [phases, words] which of them are more than none */
  uint64_t *done;   /* [words] */
  int64_t *order;   /* [lanes, phases] those of each lane that have units */
  int64_t *moved;   /* [3 (units + 1)] unit, from, to: of one try */
  int64_t *mark;    /* [units] 1 of units that a try looks at, else 0 */
  int64_t *random;  /* [1] */
  double *cost;     /* [3] makespan and priced cost now, best makespan */
};

/* Tries so many moves, at temperatures that begin with `hot` ns and fall by `factor` now and then;
 * the cost is the makespan and `load_price` of the sum of all phases. */
void np_schedule(const struct np_schedule_sizes *sizes, const struct np_schedule_tables *tables,
                 struct np_schedule_state *state, int64_t moves, double hot, double factor,
                 double load_price);

#endif
