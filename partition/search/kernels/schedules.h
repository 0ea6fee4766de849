/* Every schedule of a few units: partition/parallel.py explains schedules. */
#ifndef NP_SCHEDULES_H
#define NP_SCHEDULES_H

#include <stdint.h>

#define NP_MOST_UNITS 10

struct np_schedules_tables {
  const double *segment_ns; /* [2^units, lanes] time of a set of units as one segment; inf: not
                               possible */
  const double *least_ns;   /* [units] */
  const double *rates;      /* [sets of lanes, the empty one first; lanes] */
  const int64_t *needs;     /* [units] units that each reads from, as bits */
};

/* Searches every schedule of `units` units on `lanes` lanes that may end before `upper` ns, in at
 * most *steps steps. Writes the best one's segments to best_units (as bits) and best_lane, in
 * order, and their number to *n_best; 0 if none ends earlier. Returns the end of the best one in
 * ns, or `upper`; *steps is the number of steps left, below 0 if they were too few. */
double np_schedules(int64_t units, int64_t lanes, const struct np_schedules_tables *tables,
                    double upper, int64_t *best_units, int64_t *best_lane, int64_t *n_best,
                    int64_t *steps);

#endif
