#define _POSIX_C_SOURCE 200809L

#include "timing.h"

#include <string.h>
#include <time.h>

#define WINDOW 5u /* times whose median is compared with that of as many before them */
/* Busy time between two looks at the clock: in a round, and while waiting for it to settle. */
#define LOOK_NS UINT64_C(4000000)
#define WAIT_LOOK_NS UINT64_C(1000000)

uint64_t np_now_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now); /* fails for unknown clocks only */
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t monotonic_ns(void *ctx) {
  (void)ctx;
  return np_now_ns();
}

void np_sleep_ns(uint64_t ns) {
  const struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
  (void)nanosleep(&pause, NULL);
}

struct np_clock np_monotonic_clock(void) {
  return (struct np_clock){.now_ns = monotonic_ns, .ctx = NULL};
}

/* Stores a count after the samples that it publishes, for a reader in another process. */
static void publish(uint32_t *where, uint32_t value) {
  __atomic_store_n(where, value, __ATOMIC_RELEASE);
}

enum np_status np_run_once(const struct np_run *run, struct np_clock clock, uint32_t *step,
                           uint64_t *step_ns, size_t stride, uint64_t *copies_ns,
                           uint64_t *total_ns) {
  const uint64_t start = clock.now_ns(clock.ctx);
  uint64_t before = start;
  if (run->take) {
    run->take(run->ctx);
    before = clock.now_ns(clock.ctx);
  }
  *copies_ns = before - start;
  for (uint32_t i = 0; i < run->n_steps; i++) {
    publish(step, i);
    NP_TRY(run->steps[i].run(run->steps[i].ctx));
    const uint64_t after = clock.now_ns(clock.ctx);
    step_ns[i * stride] = after - before;
    before = after;
  }
  if (run->give) {
    run->give(run->ctx);
    const uint64_t after = clock.now_ns(clock.ctx);
    *copies_ns += after - before;
    before = after;
  }
  *total_ns = before - start;
  return NP_OK;
}

struct np_durations np_step_settle(const struct np_step *step) {
  struct np_durations durations = {NP_NO_DURATION, NP_NO_DURATION};
  if (step->settle) {
    step->settle(step->ctx, &durations);
  }
  return durations;
}

/* Runs once. Writes the times to the next column of the samples; the next run overwrites those of
 * an unrecorded one. */
static enum np_status run_once(const struct np_run *run, struct np_clock clock,
                               const struct np_samples *samples, uint64_t *total_ns) {
  const size_t room = samples->room;
  const uint32_t column = *samples->n_runs;
  publish(samples->started_runs, *samples->started_runs + 1);
  NP_TRY(np_run_once(run, clock, samples->step, samples->step_ns + column, room,
                     samples->copies_ns + column, total_ns));
  samples->total_ns[column] = *total_ns;
  if (*samples->started_runs == 1) {
    *samples->first_ns = *total_ns;
  }
  for (uint32_t i = 0; i < run->n_steps; i++) {
    publish(samples->step, i);
    (void)np_step_settle(&run->steps[i]);
  }
  return NP_OK;
}

static uint64_t median(const uint64_t values[WINDOW]) {
  uint64_t sorted[WINDOW];
  for (uint32_t i = 0; i < WINDOW; i++) {
    uint32_t at = i;
    for (; at > 0 && sorted[at - 1] > values[i]; at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = values[i];
  }
  return sorted[WINDOW / 2];
}

/* Whether the later half of recent[2 * WINDOW] times is as long as the earlier one. */
static uint32_t is_stable(const uint64_t *recent) {
  const uint64_t earlier = median(recent);
  const uint64_t later = median(recent + WINDOW);
  const uint64_t apart = later > earlier ? later - earlier : earlier - later;
  return apart <= earlier / 50; /* 2 % */
}

/* Times by which runs are judged stable: the means of stretches of at least slot_ns. */
struct stretches {
  uint64_t slot_ns;
  uint64_t recent[2 * WINDOW];
  uint32_t n;  /* so far, of which the last are in `recent` */
  uint64_t ns; /* time of the present stretch */
  uint32_t runs;
};

static void add_run(struct stretches *all, uint64_t ns, uint64_t *fastest_ns) {
  all->ns += ns;
  all->runs++;
  if (all->ns < all->slot_ns) {
    return;
  }
  memmove(all->recent, all->recent + 1, sizeof all->recent - sizeof *all->recent);
  const uint64_t mean_ns = all->ns / all->runs;
  all->recent[2 * WINDOW - 1] = mean_ns;
  if (all->slot_ns != 0 && (*fastest_ns == 0 || mean_ns < *fastest_ns)) {
    *fastest_ns = mean_ns;
  }
  all->n += all->n < 2 * WINDOW;
  all->ns = 0;
  all->runs = 0;
}

enum np_status np_warm_up(const struct np_run *run, struct np_clock clock,
                          const struct np_timing_plan *plan, const struct np_pace *pace,
                          const struct np_samples *samples, struct np_warmth *warmth) {
  *warmth = (struct np_warmth){0, 0, 0};
  if (run->n_steps == 0 || *samples->n_runs >= samples->room || plan->max_runs < plan->min_runs) {
    return NP_BAD_ARGUMENT;
  }
  struct stretches all = {.slot_ns = plan->least_ns / (2 * WINDOW)};
  uint64_t spent = 0, looked = 0;
  int settled = pace == NULL;
  for (;;) {
    const int enough = warmth->runs >= plan->min_runs && spent >= plan->least_ns;
    const int over = warmth->stable || warmth->runs >= plan->max_runs || spent >= plan->budget_ns;
    if (enough && over && (settled || spent >= plan->least_ns + NP_MOST_SETTLING_NS)) {
      return NP_OK;
    }
    uint64_t ns;
    NP_TRY(run_once(run, clock, samples, &ns));
    spent += ns;
    if (pace && pace->stretch && ns < WAIT_LOOK_NS) {
      pace->stretch(pace->ctx, WAIT_LOOK_NS - ns);
      spent += WAIT_LOOK_NS - ns;
    }
    publish(&warmth->runs, warmth->runs + 1);
    add_run(&all, ns, &warmth->fastest_ns);
    warmth->stable = all.n == 2 * WINDOW && is_stable(all.recent);
    if (pace && spent - looked >= WAIT_LOOK_NS) {
      looked = spent;
      settled = pace->settled(pace->ctx, spent);
    }
  }
}

enum np_status np_time_round(const struct np_run *run, struct np_clock clock,
                             const struct np_timing_plan *plan, const struct np_pace *pace,
                             const struct np_samples *samples) {
  const uint32_t first = *samples->n_runs;
  if (run->n_steps == 0 || plan->min_runs == 0 || plan->max_runs < plan->min_runs ||
      first > samples->room || plan->max_runs > samples->room - first) {
    return NP_BAD_ARGUMENT;
  }
  uint64_t spent = 0, looked = 0, total;
  if (pace) {
    pace->look(pace->ctx);
  }
  for (uint32_t i = 0; i < plan->max_runs; i++) {
    NP_TRY(run_once(run, clock, samples, &total));
    publish(samples->n_runs, first + i + 1);
    spent += total;
    const int last =
        i + 1 == plan->max_runs || (i + 1 >= plan->min_runs && spent >= plan->budget_ns);
    if (pace && (last || spent - looked >= LOOK_NS)) {
      looked = spent;
      pace->look(pace->ctx);
    }
    if (last) {
      break;
    }
  }
  return NP_OK;
}
