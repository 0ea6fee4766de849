/* Moves of units between the phases of a monotone labelling, shared by the annealing of plans and
 * of schedules. The structures mirror those of search/annealing.py. */
#ifndef NP_MOVES_H
#define NP_MOVES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "arrays.h"

struct np_move_sizes {
  int64_t n; /* units */
  int64_t t; /* targets */
  int64_t phases;
  int64_t table;    /* size of the table of regions: a power of two */
  int64_t converts; /* whether conversions have a cost */
  int64_t words;    /* 64-bit words of a set of phases; schedules only */
  int64_t lanes;    /* schedules only */
};

struct np_move_tables {
  NP_ARRAYS;
  const int64_t *phase_target, *counted, *unit_key, *region_key;
  const double *region_ns;
};

struct np_labelling {
  int64_t *phase, *best, *n_units, *key, *n_readers, *n_int8, *random;
  double *cost;
};

enum { NOW, BEST }; /* places in `cost` */

struct np_moves {
  const struct np_move_sizes *sz;
  const struct np_move_tables *tb;
  struct np_labelling *st;
  struct np_timeline *tl; /* for a schedule; else NULL */
};

/* Marsaglia's xorshift of 32 bits ("Xorshift RNGs", J. Stat. Softw. 8, 2003). */
static inline int64_t np_draw(struct np_labelling *st) {
  int64_t x = st->random[0];
  x ^= (x << 13) & 0xffffffff;
  x ^= x >> 17;
  x ^= (x << 5) & 0xffffffff;
  st->random[0] = x;
  return x;
}

static inline int64_t np_below(struct np_labelling *st, int64_t most) {
  return (np_draw(st) * most) >> 32;
}

static inline int64_t np_readers_in(const struct np_moves *r, int64_t value, int64_t phase) {
  const struct np_move_tables *tb = r->tb;
  if (tb->counted[value] >= 0) {
    return r->st->n_readers[tb->counted[value] * r->sz->phases + phase];
  }
  int64_t count = 0;
  for (int64_t e = tb->reader_at[value]; e < tb->reader_at[value + 1]; e++) {
    count += r->st->phase[tb->readers[e]] == phase;
  }
  return count;
}

/* Returns the excess in ns of a set of units as one segment over its parts, where measured. */
static inline double np_region_ns(const struct np_moves *r, int64_t key, int64_t k) {
  const int64_t mask = r->sz->table - 1, own = key ^ (k + 1);
  for (int64_t place = own & mask; r->tb->region_key[place] != 0; place = (place + 1) & mask) {
    if (r->tb->region_key[place] == own) {
      return r->tb->region_ns[place];
    }
  }
  return 0;
}

/* Adds the changes in ns when unit u moves from phase a to phase b: of phase a to *from, of phase b
 * to *to, which may be the same. Excludes regions measured whole and conversions. */
static inline void np_reprice(const struct np_moves *r, int64_t u, int64_t a, int64_t b,
                              double *from, double *to) {
  const struct np_move_tables *tb = r->tb;
  const struct np_labelling *st = r->st;
  const int64_t t = r->sz->t, ka = tb->phase_target[a], kb = tb->phase_target[b];
  *to += tb->unit_ns[u * t + kb];
  *from -= tb->unit_ns[u * t + ka];
  if (st->n_units[a] == 1) {
    *from -= tb->overhead_ns[ka];
  }
  if (st->n_units[b] == 0) {
    *to += tb->overhead_ns[kb];
  }
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t value = tb->reader_value[tb->reads[j]], maker = tb->producer[value];
    const int64_t home = maker < 0 ? -1 : st->phase[maker];
    const int64_t in_a = np_readers_in(r, value, a), in_b = np_readers_in(r, value, b);
    if (home != a && in_a == 1) {
      *from -= tb->in_ns[value * t + ka];
    }
    if (home != b && in_b == 0) {
      *to += tb->in_ns[value * t + kb];
    }
    if (tb->is_output[value]) {
      continue;
    }
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    if (home == a && in_a == total) {
      *from += tb->out_ns[value * t + ka];
    }
    if (home == b && in_b + 1 == total) {
      *to -= tb->out_ns[value * t + kb];
    }
  }
  for (int64_t j = tb->make_at[u]; j < tb->make_at[u + 1]; j++) {
    const int64_t value = tb->makes[j];
    const int64_t in_a = np_readers_in(r, value, a), in_b = np_readers_in(r, value, b);
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    if (in_a > 0) {
      *from += tb->in_ns[value * t + ka];
    }
    if (in_b > 0) {
      *to -= tb->in_ns[value * t + kb];
    }
    if (tb->is_output[value] || in_a < total) {
      *from -= tb->out_ns[value * t + ka];
    }
    if (tb->is_output[value] || in_b < total) {
      *to += tb->out_ns[value * t + kb];
    }
  }
}

/* Moves unit u from phase a to phase b. */
static inline void np_move(const struct np_moves *r, int64_t u, int64_t a, int64_t b) {
  const struct np_move_tables *tb = r->tb;
  struct np_labelling *st = r->st;
  st->phase[u] = b;
  st->n_units[a]--;
  st->n_units[b]++;
  st->key[a] ^= tb->unit_key[u];
  st->key[b] ^= tb->unit_key[u];
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t value = tb->reader_value[tb->reads[j]], row = tb->counted[value];
    if (r->sz->converts) {
      st->n_int8[value] += tb->format[tb->phase_target[b]] - tb->format[tb->phase_target[a]];
    }
    if (row >= 0) {
      st->n_readers[row * r->sz->phases + a]--;
      st->n_readers[row * r->sz->phases + b]++;
    }
  }
}

/* Returns the earliest phase that a unit may be in. */
static inline int64_t np_earliest(const struct np_moves *r, int64_t u) {
  const struct np_move_tables *tb = r->tb;
  int64_t phase = 0;
  for (int64_t i = tb->predecessor_at[u]; i < tb->predecessor_at[u + 1]; i++) {
    const int64_t other = r->st->phase[tb->predecessors[i]];
    if (other > phase) {
      phase = other;
    }
  }
  return phase;
}

static inline int64_t np_latest(const struct np_moves *r, int64_t u) {
  const struct np_move_tables *tb = r->tb;
  int64_t phase = r->sz->phases - 1;
  for (int64_t i = tb->successor_at[u]; i < tb->successor_at[u + 1]; i++) {
    const int64_t other = r->st->phase[tb->successors[i]];
    if (other < phase) {
      phase = other;
    }
  }
  return phase;
}

/* Draws a phase from `low` to `high` that is at most `reach` from another. */
static inline int64_t np_near(const struct np_moves *r, int64_t phase, int64_t reach, int64_t low,
                              int64_t high) {
  const int64_t first = phase - reach > low ? phase - reach : low;
  const int64_t last = phase + reach < high ? phase + reach : high;
  return first + np_below(r->st, last - first + 1);
}

/* Whether a change of so many ns is accepted at a temperature. */
static inline bool np_accepts(const struct np_moves *r, double ns, double temperature) {
  return ns <= 0 || (double)np_draw(r->st) * 0x1p-32 < exp(-ns / temperature);
}

static inline void np_keep_best(const struct np_moves *r) {
  struct np_labelling *st = r->st;
  if (!(st->cost[NOW] < st->cost[BEST])) {
    return;
  }
  st->cost[BEST] = st->cost[NOW];
  for (int64_t u = 0; u < r->sz->n; u++) {
    st->best[u] = st->phase[u];
  }
}

#endif
