#include "schedules.h"

#include <math.h>
#include <stdbool.h>

#include "schedule.h"

struct segment {
  int64_t units, lane, needs; /* units and segments before it, as bits */
  double ns, end;             /* its earliest end, if no other lane delays it */
};

struct run {
  int64_t n, lanes;
  const struct np_schedules_tables *tb;
  struct segment segment[NP_MOST_UNITS];
  int64_t depth;
  double best;
  int64_t *best_units, *best_lane, *n_best, *steps;
};

/* Returns the end of all segments; each lane takes its own in order, once their inputs exist. */
static double makespan(const struct run *r) {
  int64_t done = 0, busy = 0, at[NP_MOST_LANES];
  double left[NP_MOST_LANES] = {0}, now = 0;
  for (int64_t lane = 0; lane < r->lanes; lane++) {
    at[lane] = -1;
  }
  for (;;) {
    for (int64_t lane = 0; lane < r->lanes; lane++) {
      if (busy >> lane & 1) {
        continue;
      }
      int64_t next = at[lane] + 1;
      while (next < r->depth && r->segment[next].lane != lane) {
        next++;
      }
      if (next < r->depth && !(r->segment[next].needs & ~done)) {
        at[lane] = next;
        left[lane] = r->segment[next].ns;
        busy |= (int64_t)1 << lane;
      }
    }
    if (busy == 0) {
      return now;
    }
    const double *rates = &r->tb->rates[busy * r->lanes];
    double passing = INFINITY;
    for (int64_t lane = 0; lane < r->lanes; lane++) {
      if (busy >> lane & 1) {
        passing = fmin(passing, left[lane] / rates[lane]);
      }
    }
    now += passing;
    for (int64_t lane = 0; lane < r->lanes; lane++) {
      if (!(busy >> lane & 1)) {
        continue;
      }
      left[lane] -= passing * rates[lane];
      if (left[lane] <= 1e-12 * r->segment[at[lane]].ns) {
        busy &= ~((int64_t)1 << lane);
        done |= (int64_t)1 << at[lane];
      }
    }
  }
}

static void judge(struct run *r) {
  const double ns = makespan(r);
  if (!(ns < r->best)) {
    return;
  }
  r->best = ns;
  *r->n_best = r->depth;
  for (int64_t i = 0; i < r->depth; i++) {
    r->best_units[i] = r->segment[i].units;
    r->best_lane[i] = r->segment[i].lane;
  }
}

/* Returns whether no schedule that continues these segments ends before the best one, even if the
 * rest runs unit by unit at its cheapest, or is shared among the lanes. */
static bool is_hopeless(const struct run *r, int64_t rest) {
  double work = 0, last = 0, free[NP_MOST_LANES] = {0}, end[NP_MOST_UNITS] = {0};
  for (int64_t i = 0; i < r->depth; i++) {
    const struct segment *s = &r->segment[i];
    free[s->lane] = s->end;
    last = fmax(last, s->end);
    for (int64_t u = 0; u < r->n; u++) {
      if (s->units >> u & 1) {
        end[u] = s->end;
      }
    }
  }
  for (int64_t lane = 0; lane < r->lanes; lane++) {
    work += free[lane];
  }
  for (int64_t u = 0; u < r->n; u++) {
    if (!(rest >> u & 1)) {
      continue;
    }
    for (int64_t p = 0; p < u; p++) {
      end[u] = r->tb->needs[u] >> p & 1 ? fmax(end[u], end[p]) : end[u];
    }
    end[u] += r->tb->least_ns[u];
    last = fmax(last, end[u]);
    work += r->tb->least_ns[u];
  }
  return fmax(last, work / (double)r->lanes) >= r->best * (1 - 1e-12);
}

/* Returns the units that a set of units reads from, as bits. */
static int64_t needs_of(const struct run *r, int64_t units) {
  int64_t needs = 0;
  for (int64_t u = 0; u < r->n; u++) {
    needs |= units >> u & 1 ? r->tb->needs[u] : 0;
  }
  return needs;
}

static void extend(struct run *r, int64_t done) {
  const int64_t rest = (((int64_t)1 << r->n) - 1) & ~done;
  if (rest == 0) {
    judge(r);
    return;
  }
  for (int64_t units = rest; units > 0; units = (units - 1) & rest) {
    const int64_t needs = needs_of(r, units);
    if (needs & ~(done | units)) {
      continue;
    }
    for (int64_t lane = 0; lane < r->lanes; lane++) {
      const double ns = r->tb->segment_ns[units * r->lanes + lane];
      if (!isfinite(ns)) {
        continue;
      }
      if (--*r->steps < 0) {
        return;
      }
      const struct segment *last = r->depth > 0 ? &r->segment[r->depth - 1] : 0;
      if (last && last->lane != lane && !(needs & last->units) &&
          (units & -units) < (last->units & -last->units)) {
        continue; /* the opposite order is the same schedule */
      }
      struct segment *own = &r->segment[r->depth];
      double start = 0;
      own->needs = 0;
      for (int64_t i = 0; i < r->depth; i++) {
        const bool is_read = (r->segment[i].units & needs) != 0;
        own->needs |= is_read ? (int64_t)1 << i : 0;
        if (is_read || r->segment[i].lane == lane) {
          start = fmax(start, r->segment[i].end);
        }
      }
      own->units = units;
      own->lane = lane;
      own->ns = ns;
      own->end = start + ns;
      r->depth++;
      if (!is_hopeless(r, rest & ~units)) {
        extend(r, done | units);
      }
      r->depth--;
    }
  }
}

double np_schedules(int64_t units, int64_t lanes, const struct np_schedules_tables *tables,
                    double upper, int64_t *best_units, int64_t *best_lane, int64_t *n_best,
                    int64_t *steps) {
  struct run r = {.n = units,
                  .lanes = lanes,
                  .tb = tables,
                  .best = upper,
                  .best_units = best_units,
                  .best_lane = best_lane,
                  .n_best = n_best,
                  .steps = steps};
  *n_best = 0;
  extend(&r, 0);
  return r.best;
}
