#include "schedule.h"

/* Moves between two temperatures. */
#define STRETCH 256
/* Longest run of units, each reading from the one before, that moves at once. */
#define LONGEST_RUN 12

enum { PRICED = BEST + 1 }; /* index in `cost`: makespan plus the price of the load */

static void link(const struct np_moves *r, int64_t later, int64_t earlier, int64_t more) {
  if (later == earlier) {
    return;
  }
  int64_t *count = &r->tl->n_links[later * r->sz->phases + earlier];
  uint64_t *word = &r->tl->needs[later * r->sz->words + earlier / 64];
  const uint64_t bit = (uint64_t)1 << (earlier % 64);
  *count += more;
  *word = *count > 0 ? *word | bit : *word & ~bit;
}

/* Updates the times of phases a and b for unit u, which moves from the first to the second. */
static void reprice(const struct np_moves *r, int64_t u, int64_t a, int64_t b) {
  const struct np_move_tables *tb = r->tb;
  const struct np_labelling *st = r->st;
  double from = 0, to = 0;
  np_reprice(r, u, a, b, &from, &to);
  if (r->sz->table > 1) {
    const int64_t own = tb->unit_key[u], ka = tb->phase_target[a], kb = tb->phase_target[b];
    from += np_region_ns(r, st->key[a] ^ own, ka) - np_region_ns(r, st->key[a], ka);
    to += np_region_ns(r, st->key[b] ^ own, kb) - np_region_ns(r, st->key[b], kb);
  }
  r->tl->phase_ns[a] = st->n_units[a] == 1 ? 0 : r->tl->phase_ns[a] + from;
  r->tl->phase_ns[b] += to;
}

static void move(const struct np_moves *r, int64_t u, int64_t a, int64_t b) {
  const struct np_move_tables *tb = r->tb;
  struct np_labelling *st = r->st;
  reprice(r, u, a, b);
  for (int64_t i = tb->predecessor_at[u]; i < tb->predecessor_at[u + 1]; i++) {
    const int64_t other = st->phase[tb->predecessors[i]];
    link(r, a, other, -1);
    link(r, b, other, 1);
  }
  for (int64_t i = tb->successor_at[u]; i < tb->successor_at[u + 1]; i++) {
    const int64_t other = st->phase[tb->successors[i]];
    link(r, other, a, -1);
    link(r, other, b, 1);
  }
  np_move(r, u, a, b);
}

static bool is_ready(const struct np_moves *r, int64_t phase) {
  for (int64_t w = 0; w < r->sz->words; w++) {
    if (r->tl->needs[phase * r->sz->words + w] & ~r->tl->done[w]) {
      return false;
    }
  }
  return true;
}

/* Returns the end of all phases; each lane takes its own in order, once their inputs exist. */
static double makespan(const struct np_moves *r) {
  const int64_t lanes = r->sz->lanes, phases = r->sz->phases;
  struct np_labelling *st = r->st;
  int64_t count[NP_MOST_LANES] = {0}, next[NP_MOST_LANES] = {0};
  double left[NP_MOST_LANES] = {0};
  for (int64_t w = 0; w < r->sz->words; w++) {
    r->tl->done[w] = 0;
  }
  for (int64_t f = 0; f < phases; f++) {
    if (st->n_units[f] > 0) {
      const int64_t lane = r->tl->lane_of_target[r->tb->phase_target[f]];
      r->tl->order[lane * phases + count[lane]++] = f;
    }
  }
  double now = 0;
  int64_t busy = 0;
  for (;;) {
    for (int64_t lane = 0; lane < lanes; lane++) {
      if (busy >> lane & 1 || next[lane] == count[lane]) {
        continue;
      }
      const int64_t f = r->tl->order[lane * phases + next[lane]];
      if (is_ready(r, f)) {
        busy |= (int64_t)1 << lane;
        left[lane] = r->tl->phase_ns[f];
      }
    }
    if (busy == 0) {
      return now;
    }
    const double *rates = &r->tl->rates[busy * lanes];
    double passing = INFINITY;
    for (int64_t lane = 0; lane < lanes; lane++) {
      if (busy >> lane & 1 && left[lane] < passing * rates[lane]) {
        passing = left[lane] / rates[lane];
      }
    }
    passing = passing > 0 ? passing : 0;
    now += passing;
    for (int64_t lane = 0; lane < lanes; lane++) {
      if (!(busy >> lane & 1)) {
        continue;
      }
      const int64_t f = r->tl->order[lane * phases + next[lane]];
      left[lane] -= passing * rates[lane];
      if (left[lane] <= 1e-12 * r->tl->phase_ns[f]) {
        busy &= ~((int64_t)1 << lane);
        next[lane]++;
        r->tl->done[f / 64] |= (uint64_t)1 << (f % 64);
      }
    }
  }
}

static double load(const struct np_moves *r) {
  double ns = 0;
  for (int64_t f = 0; f < r->sz->phases; f++) {
    ns += r->tl->phase_ns[f];
  }
  return ns;
}

/* Moves a unit of a try, if that keeps the order; records it for undo. */
static bool try_move(const struct np_moves *r, int64_t u, int64_t b, int64_t *n_moved) {
  struct np_labelling *st = r->st;
  if (!isfinite(r->tb->unit_ns[u * r->sz->t + r->tb->phase_target[b]]) || np_earliest(r, u) > b ||
      np_latest(r, u) < b) {
    return false;
  }
  r->tl->moved[3 * *n_moved] = u;
  r->tl->moved[3 * *n_moved + 1] = st->phase[u];
  r->tl->moved[3 * *n_moved + 2] = b;
  (*n_moved)++;
  move(r, u, st->phase[u], b);
  return true;
}

static void undo(const struct np_moves *r, int64_t n_moved) {
  while (n_moved > 0) {
    n_moved--;
    const int64_t *m = &r->tl->moved[3 * n_moved];
    move(r, m[0], m[2], m[1]);
  }
}

/* Moves all units of a phase to another one. */
static bool move_phase(const struct np_moves *r, int64_t a, int64_t b, int64_t *n_moved) {
  const int64_t n = r->sz->n;
  for (int64_t i = 0; i < n && r->st->n_units[a] > 0; i++) {
    const int64_t u = b > a ? n - 1 - i : i; /* units on which others depend, last */
    if (r->st->phase[u] == a && !try_move(r, u, b, n_moved)) {
      return false;
    }
  }
  return true;
}

/* Moves a unit, and a run of units of its phase that each read from the one before, to a phase. */
static bool move_run(const struct np_moves *r, int64_t u, int64_t b, int64_t longest,
                     int64_t *n_moved) {
  const struct np_move_tables *tb = r->tb;
  const int64_t a = r->st->phase[u], up = b < a;
  int64_t run[LONGEST_RUN], n_run = 0;
  for (int64_t at = u; n_run < longest;) {
    run[n_run++] = at;
    /* upwards, predecessors go first: the run grows towards successors; downwards vice versa */
    const int64_t first = up ? tb->successor_at[at] : tb->predecessor_at[at];
    const int64_t last = up ? tb->successor_at[at + 1] : tb->predecessor_at[at + 1];
    if (first == last) {
      break;
    }
    const int64_t which = first + np_below(r->st, last - first);
    at = up ? tb->successors[which] : tb->predecessors[which];
    if (r->st->phase[at] != a) {
      break;
    }
  }
  for (int64_t i = 0; i < n_run; i++) {
    if (!try_move(r, run[i], b, n_moved)) {
      return i > 0;
    }
  }
  return true;
}

/* Marks the units of phase a that depend on marked ones, from unit u on, or clears all marks. */
static void mark_behind(const struct np_moves *r, int64_t u, int64_t a) {
  const struct np_move_tables *tb = r->tb;
  int64_t *mark = r->tl->mark;
  for (int64_t v = u + 1; v < r->sz->n; v++) {
    for (int64_t i = tb->predecessor_at[v]; i < tb->predecessor_at[v + 1]; i++) {
      if (r->st->phase[v] == a && mark[tb->predecessors[i]]) {
        mark[v] = 1;
        break;
      }
    }
  }
}

static bool move_marked(const struct np_moves *r, int64_t b, int64_t *n_moved) {
  bool is_possible = true;
  for (int64_t v = r->sz->n - 1; v >= 0; v--) {
    if (r->tl->mark[v]) {
      is_possible = is_possible && try_move(r, v, b, n_moved);
      r->tl->mark[v] = 0;
    }
  }
  return is_possible;
}

/* Returns the first empty phase of the same target behind another one, or -1. */
static int64_t next_empty(const struct np_moves *r, int64_t phase, int64_t target) {
  for (int64_t f = phase + 1; f < r->sz->phases; f++) {
    if (r->st->n_units[f] == 0 && r->tb->phase_target[f] == target) {
      return f;
    }
  }
  return -1;
}

/* Splits a segment before unit u, which moves to phase b with its dependents in the segment. */
static bool split(const struct np_moves *r, int64_t u, int64_t b, int64_t *n_moved) {
  r->tl->mark[u] = 1;
  mark_behind(r, u, r->st->phase[u]);
  return move_marked(r, b, n_moved);
}

/* Moves a run of a segment to phase b behind it, and the run's dependents to a phase of the same
 * target behind both, so that other work can overlap with the rest. */
static bool extract(const struct np_moves *r, int64_t u, int64_t b, int64_t longest,
                    int64_t *n_moved) {
  const struct np_move_tables *tb = r->tb;
  struct np_labelling *st = r->st;
  const int64_t a = st->phase[u], c = next_empty(r, b, tb->phase_target[a]);
  int64_t run[LONGEST_RUN], n_run = 0;
  if (c < 0) {
    return false;
  }
  for (int64_t at = u; n_run < longest;) {
    run[n_run++] = at;
    const int64_t first = tb->successor_at[at], last = tb->successor_at[at + 1];
    if (last - first != 1 || st->phase[tb->successors[first]] != a) {
      break;
    }
    at = tb->successors[first];
  }
  for (int64_t i = 0; i < n_run; i++) {
    r->tl->mark[run[i]] = 1;
  }
  mark_behind(r, u, a);
  for (int64_t i = 0; i < n_run; i++) {
    r->tl->mark[run[i]] = 0;
  }
  bool is_possible = move_marked(r, c, n_moved);
  for (int64_t i = n_run - 1; i >= 0 && is_possible; i--) {
    is_possible = try_move(r, run[i], b, n_moved);
  }
  return is_possible;
}

/* Proposes a phase for unit u: that of a unit it shares a value with, a used one nearby, or any
 * nearby one. */
static int64_t proposed(const struct np_moves *r, int64_t u) {
  const struct np_move_tables *tb = r->tb;
  struct np_labelling *st = r->st;
  const int64_t own = st->phase[u], how = np_below(st, 16), phases = r->sz->phases;
  if (how < 5) {
    const int64_t n_before = tb->predecessor_at[u + 1] - tb->predecessor_at[u];
    const int64_t n_behind = tb->successor_at[u + 1] - tb->successor_at[u];
    if (n_before + n_behind == 0) {
      return own;
    }
    const int64_t which = np_below(st, n_before + n_behind);
    return st->phase[which < n_before ? tb->predecessors[tb->predecessor_at[u] + which]
                                      : tb->successors[tb->successor_at[u] + which - n_before]];
  }
  if (how < 12) {
    const int64_t step = how % 2 ? 1 : -1;
    int64_t skip = np_below(st, 3);
    for (int64_t phase = own + step; phase >= 0 && phase < phases; phase += step) {
      if (st->n_units[phase] > 0 && skip-- == 0) {
        return phase;
      }
    }
    return own;
  }
  return np_near(r, own, 3 * (r->sz->lanes + 1), 0, phases - 1);
}

void np_schedule(const struct np_move_sizes *sizes, const struct np_move_tables *tables,
                 struct np_labelling *state, struct np_timeline *timeline, int64_t moves,
                 double hot, double factor, double load_price) {
  const struct np_moves r = {sizes, tables, state, timeline};
  double temperature = hot;
  for (int64_t i = 0; i < moves; i++) {
    if (i % STRETCH == STRETCH - 1) {
      temperature *= factor;
    }
    const int64_t u = np_below(state, sizes->n), a = state->phase[u], how = np_below(state, 32);
    const int64_t b = proposed(&r, u);
    if (a == b) {
      continue;
    }
    int64_t n_moved = 0;
    bool is_possible = false;
    if (how == 0) {
      is_possible = move_phase(&r, a, b, &n_moved);
    } else if (how == 1 && b > a) {
      is_possible = split(&r, u, b, &n_moved);
    } else if (how <= 4 && b > a) {
      is_possible = extract(&r, u, b, 1 + np_below(state, LONGEST_RUN), &n_moved);
    } else {
      const int64_t longest = how < 14 ? 1 + np_below(state, LONGEST_RUN) : 1;
      is_possible = move_run(&r, u, b, longest, &n_moved);
    }
    if (!is_possible) {
      undo(&r, n_moved);
      continue;
    }
    const double span = makespan(&r), priced = span + load_price * load(&r);
    if (!np_accepts(&r, priced - state->cost[PRICED], temperature)) {
      undo(&r, n_moved);
      continue;
    }
    state->cost[NOW] = span;
    state->cost[PRICED] = priced;
    np_keep_best(&r);
  }
}
