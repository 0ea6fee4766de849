#define _POSIX_C_SOURCE 200809L

#include "timing.h"

#include <time.h>

static uint64_t monotonic_ns(void *ctx) {
  (void)ctx;
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now); /* fails for unknown clocks only */
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct np_clock np_monotonic_clock(void) {
  return (struct np_clock){.now_ns = monotonic_ns, .ctx = NULL};
}

/* Orders a run's samples before the count that publishes them, for a reader in another process. */
static void publish(uint32_t *where, uint32_t value) {
  __atomic_store_n(where, value, __ATOMIC_RELEASE);
}

/* One run of all steps. Step times go to column `run` of the samples, also for a warm-up run, whose
 * column is written again by the next one. */
static enum np_status run_once(const struct np_step *steps, uint32_t n_steps, struct np_clock clock,
                               uint32_t max_runs, uint32_t run, const struct np_samples *samples) {
  publish(samples->started_runs, *samples->started_runs + 1);
  const uint64_t start = clock.now_ns(clock.ctx);
  uint64_t before = start;
  for (uint32_t i = 0; i < n_steps; i++) {
    publish(samples->step, i);
    const enum np_status status = steps[i].run(steps[i].ctx);
    if (status != NP_OK)
      return status;
    const uint64_t after = clock.now_ns(clock.ctx);
    samples->step_ns[(size_t)i * max_runs + run] = after - before;
    before = after;
  }
  samples->total_ns[run] = before - start;

  for (uint32_t i = 0; i < n_steps; i++) {
    struct np_durations durations = {NP_NO_DURATION, NP_NO_DURATION};
    publish(samples->step, i);
    if (steps[i].settle)
      steps[i].settle(steps[i].ctx, &durations);
    samples->hardware_ns[(size_t)i * max_runs + run] = durations.hardware_ns;
    samples->driver_ns[(size_t)i * max_runs + run] = durations.driver_ns;
  }
  return NP_OK;
}

enum np_status np_time_steps(const struct np_step *steps, uint32_t n_steps, struct np_clock clock,
                             const struct np_timing_plan *plan, const struct np_samples *samples) {
  *samples->n_runs = 0;
  *samples->started_runs = 0;
  *samples->step = 0;
  *samples->first_ns = 0;
  if (n_steps == 0 || plan->min_runs == 0 || plan->max_runs < plan->min_runs) {
    return NP_BAD_ARGUMENT;
  }
  for (uint32_t i = 0; i < plan->warmup_runs; i++) {
    const enum np_status status = run_once(steps, n_steps, clock, plan->max_runs, 0, samples);
    if (status != NP_OK)
      return status;
    if (i == 0)
      *samples->first_ns = samples->total_ns[0];
  }
  uint64_t spent = 0;
  for (uint32_t i = 0; i < plan->max_runs; i++) {
    const enum np_status status = run_once(steps, n_steps, clock, plan->max_runs, i, samples);
    if (status != NP_OK)
      return status;
    if (*samples->started_runs == 1)
      *samples->first_ns = samples->total_ns[0];
    publish(samples->n_runs, i + 1);
    spent += samples->total_ns[i];
    if (i + 1 >= plan->min_runs && spent >= plan->budget_ns)
      break;
  }
  return NP_OK;
}
