/* Runs steps again and again and records how long they took. Knows neither engines nor files. */
#ifndef NP_TIMING_H
#define NP_TIMING_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"

/* A source of time, in ns. */
struct np_clock {
  uint64_t (*now_ns)(void *ctx);
  void *ctx;
};

/* CLOCK_MONOTONIC. */
struct np_clock np_monotonic_clock(void);

struct np_timing_plan {
  uint32_t warmup_runs; /* unrecorded */
  uint32_t min_runs;    /* recorded, at least 1 */
  uint32_t max_runs;    /* at least min_runs */
  uint64_t budget_ns;   /* no further run once min_runs took this long in total */
};

/* One part of a run. settle is optional and stands outside of all times. */
struct np_step {
  enum np_status (*run)(void *ctx);
  void (*settle)(void *ctx, struct np_durations *durations);
  void *ctx;
};

/* Where samples go: memory of the caller, [max_runs] or [n_steps][max_runs] values. All of the
 * first *n_runs runs are whole at any moment, so that another process may read them when this one
 * dies. */
struct np_samples {
  uint32_t *n_runs;
  uint32_t *started_runs; /* runs that were begun, warm-up included */
  uint32_t *step;         /* the step that runs now, or that failed */
  uint64_t *first_ns;     /* the first run of all, warm-up included */
  uint64_t *total_ns;     /* [max_runs] from the first step's start to the last one's end */
  uint64_t *step_ns;      /* [n_steps][max_runs] */
  uint64_t *hardware_ns;  /* [n_steps][max_runs], NP_NO_DURATION where unknown */
  uint64_t *driver_ns;
};

/* Runs all steps in order, plan->warmup_runs times unrecorded and then recorded until the plan is
 * fulfilled. Nothing is sorted, averaged or dropped: statistics belong to the host. NP_OK; a failed
 * step's status, with *samples->step naming it and earlier runs kept; NP_BAD_ARGUMENT where
 * min_runs or n_steps is 0 or max_runs < min_runs. */
enum np_status np_time_steps(const struct np_step *steps, uint32_t n_steps, struct np_clock clock,
                             const struct np_timing_plan *plan, const struct np_samples *samples);

#endif
