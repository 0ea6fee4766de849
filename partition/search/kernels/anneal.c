#include "anneal.h"

/* Moves between two temperatures. */
#define STRETCH 1024

/* Returns the cost in ns of converting a value made in some formats, if n_int8 of its readers need
 * 8-bit integers. */
static double converting_ns(const struct np_moves *r, int64_t value, int64_t there,
                            int64_t n_int8) {
  const struct np_move_tables *tb = r->tb;
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

/* Returns the formats that a value is made in, as bits. */
static int64_t formats_made(const struct np_moves *r, int64_t value) {
  const int64_t maker = r->tb->producer[value];
  if (maker < 0) {
    return r->tb->formats_in[value];
  }
  return (int64_t)1 << r->tb->format[r->tb->phase_target[r->st->phase[maker]]];
}

/* Returns the change of conversions in ns when unit u runs in `format` instead of the other. */
static double reformat(const struct np_moves *r, int64_t u, int64_t format) {
  const struct np_move_tables *tb = r->tb;
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

/* Returns the change of the cost in ns when unit u moves from phase a to phase b. */
static double change(const struct np_moves *r, int64_t u, int64_t a, int64_t b) {
  const struct np_move_tables *tb = r->tb;
  const struct np_labelling *st = r->st;
  const int64_t ka = tb->phase_target[a], kb = tb->phase_target[b];
  double ns = 0;
  np_reprice(r, u, a, b, &ns, &ns);
  if (r->sz->converts && tb->format[ka] != tb->format[kb]) {
    ns += reformat(r, u, tb->format[kb]);
  }
  if (r->sz->table > 1) {
    const int64_t own = tb->unit_key[u];
    ns -= np_region_ns(r, st->key[a], ka);
    ns -= np_region_ns(r, st->key[b], kb);
    ns += np_region_ns(r, st->key[a] ^ own, ka);
    ns += np_region_ns(r, st->key[b] ^ own, kb);
  }
  return ns;
}

/* Proposes a phase for unit u: that of a unit it shares a value with, a used one near its own, or
 * any nearby one. */
static int64_t proposed(const struct np_moves *r, int64_t u, int64_t low, int64_t high) {
  const struct np_move_tables *tb = r->tb;
  struct np_labelling *st = r->st;
  const int64_t own = st->phase[u], how = np_below(st, 16);
  if (how < 9) {
    const int64_t n_read = tb->read_at[u + 1] - tb->read_at[u];
    const int64_t n_made = tb->make_at[u + 1] - tb->make_at[u];
    if (n_read + n_made == 0) {
      return own;
    }
    const int64_t which = np_below(st, n_read + n_made);
    const int64_t value = which < n_read ? tb->reader_value[tb->reads[tb->read_at[u] + which]]
                                         : tb->makes[tb->make_at[u] + which - n_read];
    const int64_t total = tb->reader_at[value + 1] - tb->reader_at[value];
    const int64_t maker = tb->producer[value];
    const int64_t other = np_below(st, total + 1);
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
  return np_near(r, own, 2 * (r->sz->t + 1), low, high);
}

/* Moves all units of one phase to another, or none. */
static void move_segment(const struct np_moves *r, double temperature) {
  struct np_labelling *st = r->st;
  const int64_t n = r->sz->n, t = r->sz->t, a = st->phase[np_below(st, n)];
  const int64_t b = np_near(r, a, 2 * (t + 1), 0, r->sz->phases - 1), kb = r->tb->phase_target[b];
  if (a == b) {
    return;
  }
  double ns = 0;
  int64_t moved = 0;
  bool is_possible = true;
  const int64_t wanted = st->n_units[a];
  for (int64_t i = 0; i < n && moved < wanted && is_possible; i++) {
    const int64_t unit = b > a ? n - 1 - i : i; /* units on which others depend, last */
    if (st->phase[unit] != a) {
      continue;
    }
    is_possible = isfinite(r->tb->unit_ns[unit * t + kb]) && np_earliest(r, unit) <= b &&
                  np_latest(r, unit) >= b;
    if (!is_possible) {
      break;
    }
    ns += change(r, unit, a, b);
    np_move(r, unit, a, b);
    st->random[1 + moved++] = unit;
  }
  if (is_possible && np_accepts(r, ns, temperature)) {
    st->cost[NOW] += ns;
    return;
  }
  while (moved > 0) {
    np_move(r, st->random[moved--], b, a);
  }
}

void np_anneal(const struct np_move_sizes *sizes, const struct np_move_tables *tables,
               struct np_labelling *state, int64_t moves, double hot, double factor) {
  const struct np_moves r = {sizes, tables, state, NULL};
  double temperature = hot;
  for (int64_t i = 0; i < moves; i++) {
    if (i % STRETCH == STRETCH - 1) {
      temperature *= factor;
      np_keep_best(&r);
    }
    if (np_below(state, 64) == 0) {
      move_segment(&r, temperature);
      continue;
    }
    const int64_t u = np_below(state, sizes->n), a = state->phase[u];
    const int64_t low = np_earliest(&r, u), high = np_latest(&r, u);
    const int64_t b = proposed(&r, u, low, high);
    if (b == a || b < low || b > high) {
      continue;
    }
    if (!isfinite(tables->unit_ns[u * sizes->t + tables->phase_target[b]])) {
      continue;
    }
    const double ns = change(&r, u, a, b);
    if (!np_accepts(&r, ns, temperature)) {
      continue;
    }
    np_move(&r, u, a, b);
    state->cost[NOW] += ns;
  }
  np_keep_best(&r);
}
