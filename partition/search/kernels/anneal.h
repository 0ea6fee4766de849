/* Simulated annealing of a monotone labelling: tests/partition/reference_annealing.py has it in
 * Python. The structures mirror the named tuples of search/annealing.py. */
#ifndef NP_ANNEAL_H
#define NP_ANNEAL_H

#include <stdint.h>

struct np_anneal_sizes {
  int64_t n; /* units */
  int64_t t; /* targets */
  int64_t phases;
  int64_t table;    /* of regions: a power of two */
  int64_t converts; /* whether values are converted at a price */
};

struct np_anneal_tables {
  const double *unit_ns, *overhead_ns;
  const int64_t *predecessor_at, *predecessors, *successor_at, *successors, *producer;
  const uint8_t *is_output;
  const double *in_ns, *out_ns;
  const int64_t *reader_at, *readers, *reader_value, *read_at, *reads, *make_at, *makes;
  const int64_t *phase_target, *counted, *unit_key, *region_key;
  const double *region_ns;
  const int64_t *format, *formats_in, *formats_out;
  const double *to_int8_ns, *to_float_ns;
};

struct np_anneal_state {
  int64_t *phase, *best, *n_units, *key, *n_readers, *n_int8, *random;
  double *cost;
};

/* Tries so many moves, at temperatures from `hot` to `cold` ns; see annealing.anneal. */
void np_anneal(const struct np_anneal_sizes *sizes, const struct np_anneal_tables *tables,
               struct np_anneal_state *state, int64_t moves, double hot, double factor);

#endif
