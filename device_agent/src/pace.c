#define _GNU_SOURCE /* sched_getcpu */

#include "pace.h"

#include <sched.h>

#define PERCENT_MOVED 3

/* Returns whether a clock is significantly lower than another. */
static int is_below(int64_t khz, int64_t other) {
  return khz / (100 - PERCENT_MOVED) < other / 100;
}

/* Returns whether a clock is impossibly far above (boosts included) or below the allowed one. */
static int is_odd(int64_t khz, int64_t most) {
  return khz > 0 && most > 0 && (khz / 2 > most || khz < most / 50);
}

static int64_t read_clock(struct np_pace_watch *watch, int *cpu, int64_t *most) {
  int64_t khz = -1;
  *cpu = -1;
  *most = -1;
  if (watch->simulator) {
    *most = watch->simulator->cpu_top_khz ? watch->simulator->cpu_top_khz() : -1;
    khz = watch->simulator->cpu_khz ? watch->simulator->cpu_khz() : -1;
  } else {
    *cpu = sched_getcpu();
    khz = *cpu < 0 ? -1 : np_sysfs_khz(watch->sysfs, (uint32_t)*cpu, most);
  }
  watch->is_odd |= is_odd(khz, *most);
  if (watch->is_odd) {
    watch->level_khz = 0;
    return -1;
  }
  if (khz > 0) {
    watch->first_khz = watch->first_khz == 0 ? khz : watch->first_khz;
    watch->moves |= is_below(khz, watch->first_khz) || is_below(watch->first_khz, khz);
  }
  return khz;
}

int np_pace_tells(struct np_pace_watch *watch) {
  int cpu;
  int64_t most;
  return read_clock(watch, &cpu, &most) > 0 && watch->moves;
}

void np_pace_begin(struct np_pace_watch *watch) {
  watch->goal_khz = watch->level_khz;
  watch->highest_khz = 0;
  watch->risen_ns = 0;
}

static int settled(void *ctx, uint64_t busy_ns) {
  struct np_pace_watch *watch = ctx;
  int cpu;
  int64_t most;
  const int64_t khz = read_clock(watch, &cpu, &most);
  if (khz <= 0) {
    return 1;
  }
  if (is_below(watch->highest_khz, khz)) {
    watch->highest_khz = khz;
    watch->risen_ns = busy_ns;
  }
  const int64_t goal = watch->goal_khz;
  if (khz > watch->level_khz) {
    watch->level_khz = khz;
  }
  return (most > 0 && !is_below(khz, most)) || (goal > 0 && !is_below(khz, goal)) ||
         busy_ns - watch->risen_ns >= NP_FLAT_NS;
}

static void look(void *ctx) {
  struct np_pace_watch *watch = ctx;
  struct np_pace_facts *facts = watch->facts;
  int cpu;
  int64_t most;
  const int64_t khz = read_clock(watch, &cpu, &most);
  facts->n_looks++;
  if (cpu >= 0 && cpu < 64) {
    facts->cpus |= UINT64_C(1) << cpu;
  }
  if (khz <= 0) {
    return;
  }
  facts->first_khz = facts->first_khz == 0 ? khz : facts->first_khz;
  facts->last_khz = khz;
  facts->least_khz = facts->least_khz == 0 || khz < facts->least_khz ? khz : facts->least_khz;
  facts->most_khz = khz > facts->most_khz ? khz : facts->most_khz;
  watch->level_khz = khz > watch->level_khz ? khz : watch->level_khz;
}

static void stretch(void *ctx, uint64_t ns) {
  const struct np_pace_watch *watch = ctx;
  watch->simulator->busy(ns);
}

struct np_pace np_pace_of(struct np_pace_watch *watch, int on_cpu) {
  return (struct np_pace){.look = look,
                          .settled = settled,
                          .stretch =
                              on_cpu && watch->simulator && watch->simulator->busy ? stretch : NULL,
                          .ctx = watch};
}

int np_pace_moved(const struct np_pace_facts *facts, int64_t level_khz, int cores_count) {
  const int is_low = facts->most_khz > 0 && is_below(facts->most_khz, level_khz);
  return is_below(facts->least_khz, facts->most_khz) || is_low ||
         (cores_count && (facts->cpus & (facts->cpus - 1)) != 0);
}
