/* The exact programme over ideals, judged by brute force and HiGHS (tests/partition/judge.py).
 *
 * Both structures mirror those of search/tables.py, a pointer for each array in the same order;
 * that module documents the arrays. All are row-major; the caller sizes them. */
#ifndef NP_IDEALS_H
#define NP_IDEALS_H

#include "arrays.h"

struct np_ideal_sizes {
  int64_t n; /* units */
  int64_t t; /* targets */
  int64_t values;
  int64_t slots;
  int64_t slot_words;
  int64_t format_words; /* slot_words, or 0 if nothing is converted */
  int64_t words;        /* words of a set of units */
  int64_t budgets;
  int64_t jumps;
  int64_t watched;
  int64_t most_ideals; /* current capacity, as below */
  int64_t table;       /* a power of two */
  int64_t most_labels;
  int64_t most_ready;
  int64_t most_records;
  int64_t most_landings;
};

struct np_ideal_tables {
  NP_ARRAYS;
  const int64_t *slot;
  const double *least, *enters, *leaves, *switching, *switch_begin;
  const double *int8_price, *float_price, *slack;
  const double *unit_use, *open_use, *budget, *rate;
  const int64_t *jump_at, *jump_bits, *jump_needs, *jump_target;
  const double *jump_ns, *jump_use;
  const int64_t *jump_size;
  const double *jump_least;
  const int64_t *jump_read_at, *jump_reads, *jump_make_at, *jump_makes;
  const int64_t *watch_bits, *watch_target, *watch_size, *watch_member, *unit_key;
  const double *alone_ns, *most_alone_ns;
};

struct np_label {
  int64_t ideal, target, n_units, watch;
  double cost, saved, formats, reach;
  int64_t record, before, unit, following, alive;
};

struct np_ideal_set {
  int64_t key;
  double rest;
  int64_t ready_begin, ready_end;
};

struct np_record {
  int64_t before, unit, target, first;
};

struct np_landing {
  int64_t following;
  double cost, formats, reach;
  int64_t record;
};

struct np_ideal_search {
  int64_t *at;
  double *bounds;
  int64_t *n_ideals, *n_labels, *n_ready;
  struct np_ideal_set *ideals;
  int64_t *bits;
  double *joining;
  int64_t *slot_value, *ready, *head, *table;
  struct np_label *labels;
  double *use;
  int64_t *present, *owed, *as_float, *as_int8;
  struct np_record *records;
  int64_t *landing_head;
  struct np_landing *landings;
  int64_t *landing_bits;
  double *landing_use;
  int64_t *landing_float, *landing_int8;
};

/* Continues a search for about `steps` steps; search/tables.py names the results. */
int64_t np_ideals_advance(const struct np_ideal_sizes *sizes, const struct np_ideal_tables *tables,
                          struct np_ideal_search *search, int64_t steps);

/* Enters all ideals into a table that has grown. */
void np_ideals_rehash(const struct np_ideal_sizes *sizes, struct np_ideal_search *search);

#endif
