#include "anneal.h"

#include <math.h>
#include <stdbool.h>

/* Moves between two temperatures. */
#define STRETCH 1024

enum { NOW, BEST };                 /* places in `cost` */
enum { AS_FLOAT = 1, AS_INT8 = 2 }; /* formats of a value, as bits */

struct run {
  const struct np_anneal_sizes *sz;
  const struct np_anneal_tables *tb;
  struct np_anneal_state *st;
};

/* Marsaglia's xorshift of 32 bits ("Xorshift RNGs", J. Stat. Softw. 8, 2003). */
static int64_t draw(struct np_anneal_state *st) {
  int64_t x = st->random[0];
  x ^= (x << 13) & 0xffffffff;
  x ^= x >> 17;
  x ^= (x << 5) & 0xffffffff;
  st->random[0] = x;
  return x;
}

static int64_t below(struct np_anneal_state *st, int64_t most) { return (draw(st) * most) >> 32; }

static int64_t readers_in(const struct run *r, int64_t value, int64_t phase) {
  const struct np_anneal_tables *tb = r->tb;
  if (tb->counted[value] >= 0) {
    return r->st->n_readers[tb->counted[value] * r->sz->phases + phase];
  }
  int64_t count = 0;
  for (int64_t e = tb->reader_at[value]; e < tb->reader_at[value + 1]; e++) {
    count += r->st->phase[tb->readers[e]] == phase;
  }
  return count;
}

/* ns that a set of units costs more as one segment than by its parts, where it was measured. */
static double region_ns(const struct run *r, int64_t key, int64_t k) {
  const int64_t mask = r->sz->table - 1, own = key ^ (k + 1);
  for (int64_t place = own & mask; r->tb->region_key[place] != 0; place = (place + 1) & mask) {
    if (r->tb->region_key[place] == own) {
      return r->tb->region_ns[place];
    }
  }
  return 0;
}

/* What converting a value costs that is made in some format and that so many readers read as 8-bit
 * integers, in ns. */
static double converting_ns(const struct run *r, int64_t value, int64_t there, int64_t n_int8) {
  const struct np_anneal_tables *tb = r->tb;
  const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
  int64_t needed = tb->formats_out[value];
  if (n_int8 > 0) {
    needed |= AS_INT8;
  }
  if (n_int8 < total) {
    needed |= AS_FLOAT;
  }
  const int64_t lacking = needed & ~there;
  double ns = 0;
  if (lacking & AS_INT8) {
    ns += tb->to_int8_ns[value];
  }
  if (lacking & AS_FLOAT) {
    ns += tb->to_float_ns[value];
  }
  return ns;
}

/* Formats that a value is made in, as bits. */
static int64_t formats_made(const struct run *r, int64_t value) {
  const int64_t maker = r->tb->producer[value];
  if (maker < 0) {
    return r->tb->formats_in[value];
  }
  return (int64_t)1 << r->tb->format[r->tb->phase_target[r->st->phase[maker]]];
}

/* What conversions change by where unit u runs in a format instead of the other, in ns. */
static double reformat(const struct run *r, int64_t u, int64_t format) {
  const struct np_anneal_tables *tb = r->tb;
  const int64_t *n_int8 = r->st->n_int8, more = format ? 1 : -1;
  double ns = 0;
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t value = tb->reader_value[tb->reads[j]], there = formats_made(r, value);
    ns -= converting_ns(r, value, there, n_int8[value]);
    ns += converting_ns(r, value, there, n_int8[value] + more);
  }
  for (int64_t j = tb->make_at[u]; j < tb->make_at[u + 1]; j++) {
    const int64_t value = tb->makes[j];
    ns -= converting_ns(r, value, (int64_t)1 << (1 - format), n_int8[value]);
    ns += converting_ns(r, value, (int64_t)1 << format, n_int8[value]);
  }
  return ns;
}

/* What moving unit u from phase a to phase b changes, in ns. */
static double change(const struct run *r, int64_t u, int64_t a, int64_t b) {
  const struct np_anneal_tables *tb = r->tb;
  const struct np_anneal_state *st = r->st;
  const int64_t t = r->sz->t, ka = tb->phase_target[a], kb = tb->phase_target[b];
  double ns = tb->unit_ns[u * t + kb] - tb->unit_ns[u * t + ka];
  if (st->n_units[a] == 1) {
    ns -= tb->overhead_ns[ka];
  }
  if (st->n_units[b] == 0) {
    ns += tb->overhead_ns[kb];
  }
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t value = tb->reader_value[tb->reads[j]], maker = tb->producer[value];
    const int64_t home = maker < 0 ? -1 : st->phase[maker];
    const int64_t in_a = readers_in(r, value, a), in_b = readers_in(r, value, b);
    if (home != a && in_a == 1) {
      ns -= tb->in_ns[value * t + ka];
    }
    if (home != b && in_b == 0) {
      ns += tb->in_ns[value * t + kb];
    }
    if (tb->is_output[value]) {
      continue;
    }
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    if (home == a && in_a == total) {
      ns += tb->out_ns[value * t + ka];
    }
    if (home == b && in_b + 1 == total) {
      ns -= tb->out_ns[value * t + kb];
    }
  }
  for (int64_t j = tb->make_at[u]; j < tb->make_at[u + 1]; j++) {
    const int64_t value = tb->makes[j];
    const int64_t in_a = readers_in(r, value, a), in_b = readers_in(r, value, b);
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    if (in_a > 0) {
      ns += tb->in_ns[value * t + ka];
    }
    if (in_b > 0) {
      ns -= tb->in_ns[value * t + kb];
    }
    if (tb->is_output[value] || in_a < total) {
      ns -= tb->out_ns[value * t + ka];
    }
    if (tb->is_output[value] || in_b < total) {
      ns += tb->out_ns[value * t + kb];
    }
  }
  if (r->sz->converts && tb->format[ka] != tb->format[kb]) {
    ns += reformat(r, u, tb->format[kb]);
  }
  if (r->sz->table > 1) {
    const int64_t own = tb->unit_key[u];
    ns -= region_ns(r, st->key[a], ka);
    ns -= region_ns(r, st->key[b], kb);
    ns += region_ns(r, st->key[a] ^ own, ka);
    ns += region_ns(r, st->key[b] ^ own, kb);
  }
  return ns;
}

static void move(const struct run *r, int64_t u, int64_t a, int64_t b) {
  const struct np_anneal_tables *tb = r->tb;
  struct np_anneal_state *st = r->st;
  st->phase[u] = b;
  st->n_units[a]--;
  st->n_units[b]++;
  st->key[a] ^= tb->unit_key[u];
  st->key[b] ^= tb->unit_key[u];
  if (r->sz->converts) {
    const int64_t more = tb->format[tb->phase_target[b]] - tb->format[tb->phase_target[a]];
    for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
      st->n_int8[tb->reader_value[tb->reads[j]]] += more;
    }
  }
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t row = tb->counted[tb->reader_value[tb->reads[j]]];
    if (row < 0) {
      continue;
    }
    st->n_readers[row * r->sz->phases + a]--;
    st->n_readers[row * r->sz->phases + b]++;
  }
}

/* The earliest phase that a unit may be in. */
static int64_t earliest(const struct run *r, int64_t u) {
  const struct np_anneal_tables *tb = r->tb;
  int64_t phase = 0;
  for (int64_t i = tb->predecessor_at[u]; i < tb->predecessor_at[u + 1]; i++) {
    const int64_t other = r->st->phase[tb->predecessors[i]];
    if (other > phase) {
      phase = other;
    }
  }
  return phase;
}

static int64_t latest(const struct run *r, int64_t u) {
  const struct np_anneal_tables *tb = r->tb;
  int64_t phase = r->sz->phases - 1;
  for (int64_t i = tb->successor_at[u]; i < tb->successor_at[u + 1]; i++) {
    const int64_t other = r->st->phase[tb->successors[i]];
    if (other < phase) {
      phase = other;
    }
  }
  return phase;
}

/* A phase to move unit u to: that of a unit it shares a value with, a used one near its own, or any
 * one near. */
static int64_t proposed(const struct run *r, int64_t u, int64_t low, int64_t high) {
  const struct np_anneal_tables *tb = r->tb;
  struct np_anneal_state *st = r->st;
  const int64_t own = st->phase[u], how = below(st, 16);
  if (how < 9) {
    const int64_t n_read = tb->read_at[u + 1] - tb->read_at[u];
    const int64_t n_made = tb->make_at[u + 1] - tb->make_at[u];
    if (n_read + n_made == 0) {
      return own;
    }
    const int64_t which = below(st, n_read + n_made);
    const int64_t value = which < n_read ? tb->reader_value[tb->reads[tb->read_at[u] + which]]
                                         : tb->makes[tb->make_at[u] + which - n_read];
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    const int64_t maker = tb->producer[value];
    const int64_t other = below(st, total + 1);
    if (other == total) {
      return maker < 0 ? own : st->phase[maker];
    }
    return st->phase[tb->readers[tb->reader_at[value] + other]];
  }
  if (how < 13) {
    const int64_t step = how % 2 ? 1 : -1;
    for (int64_t phase = own + step; phase >= low && phase <= high; phase += step) {
      if (st->n_units[phase] > 0) {
        return phase;
      }
    }
    return own;
  }
  const int64_t reach = 2 * (r->sz->t + 1);
  const int64_t first = own - reach > low ? own - reach : low;
  const int64_t last = own + reach < high ? own + reach : high;
  return first + below(st, last - first + 1);
}

static bool accepts(const struct run *r, double ns, double temperature) {
  if (ns <= 0) {
    return true;
  }
  const double chance = (double)draw(r->st) * 0x1p-32;
  return chance < exp(-ns / temperature);
}

/* Moves all units of one phase to another, or none. */
static void move_segment(const struct run *r, double temperature) {
  struct np_anneal_state *st = r->st;
  const int64_t n = r->sz->n, t = r->sz->t;
  const int64_t u = below(st, n), a = st->phase[u];
  const int64_t reach = 2 * (t + 1);
  const int64_t first = a > reach ? a - reach : 0;
  const int64_t last = a + reach < r->sz->phases ? a + reach : r->sz->phases - 1;
  const int64_t b = first + below(st, last - first + 1), kb = r->tb->phase_target[b];
  if (a == b) {
    return;
  }
  double ns = 0;
  int64_t moved = 0;
  bool is_possible = true;
  const int64_t wanted = st->n_units[a];
  for (int64_t i = 0; i < n && moved < wanted && is_possible; i++) {
    const int64_t unit = b > a ? n - 1 - i : i; /* those that others wait for, last */
    if (st->phase[unit] != a) {
      continue;
    }
    is_possible =
        isfinite(r->tb->unit_ns[unit * t + kb]) && earliest(r, unit) <= b && latest(r, unit) >= b;
    if (!is_possible) {
      break;
    }
    ns += change(r, unit, a, b);
    move(r, unit, a, b);
    st->random[1 + moved++] = unit;
  }
  if (is_possible && accepts(r, ns, temperature)) {
    st->cost[NOW] += ns;
    return;
  }
  while (moved > 0) {
    move(r, st->random[moved--], b, a);
  }
}

static void keep_best(const struct run *r) {
  struct np_anneal_state *st = r->st;
  if (!(st->cost[NOW] < st->cost[BEST])) {
    return;
  }
  st->cost[BEST] = st->cost[NOW];
  for (int64_t u = 0; u < r->sz->n; u++) {
    st->best[u] = st->phase[u];
  }
}

void np_anneal(const struct np_anneal_sizes *sizes, const struct np_anneal_tables *tables,
               struct np_anneal_state *state, int64_t moves, double hot, double factor) {
  const struct run r = {sizes, tables, state};
  double temperature = hot;
  for (int64_t i = 0; i < moves; i++) {
    if (i % STRETCH == STRETCH - 1) {
      temperature *= factor;
      keep_best(&r);
    }
    if (below(state, 64) == 0) {
      move_segment(&r, temperature);
      continue;
    }
    const int64_t u = below(state, sizes->n), a = state->phase[u];
    const int64_t low = earliest(&r, u), high = latest(&r, u);
    const int64_t b = proposed(&r, u, low, high);
    if (b == a || b < low || b > high) {
      continue;
    }
    if (!isfinite(tables->unit_ns[u * sizes->t + tables->phase_target[b]])) {
      continue;
    }
    const double ns = change(&r, u, a, b);
    if (!accepts(&r, ns, temperature)) {
      continue;
    }
    move(&r, u, a, b);
    state->cost[NOW] += ns;
  }
  keep_best(&r);
}
