/* Runs steps repeatedly and records their times. Knows neither engines nor files. */
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

/* CLOCK_MONOTONIC, as a clock and as the present time in ns. */
struct np_clock np_monotonic_clock(void);
uint64_t np_now_ns(void);

void np_sleep_ns(uint64_t ns);

/* Number of runs: at least min_runs, at most max_runs, and no further ones once they took budget_ns
 * in total. For unrecorded runs, least_ns is the minimum busy time, whatever the other limits
 * say. */
struct np_timing_plan {
  uint32_t min_runs;
  uint32_t max_runs; /* at least min_runs */
  uint64_t budget_ns;
  uint64_t least_ns;
};

/* Looks at the processor's clock between runs, never within one. May be NULL: no pace. */
struct np_pace {
  void (*look)(void *ctx);                     /* records the present clock */
  int (*settled)(void *ctx, uint64_t busy_ns); /* whether the clock has settled after busy_ns */
  /* Optional: keeps a simulated processor busy for `ns` instead of many short runs. */
  void (*stretch)(void *ctx, uint64_t ns);
  void *ctx;
};

/* One part of a run. settle is optional and not timed. */
struct np_step {
  enum np_status (*run)(void *ctx);
  void (*settle)(void *ctx, struct np_durations *durations);
  void *ctx;
};

/* A repeatable run: its steps in order, and around them the copies of the caller's inputs and
 * outputs, which count towards the whole but not towards any step. */
struct np_run {
  uint32_t n_steps;
  const struct np_step *steps;
  void (*take)(void *ctx); /* copies inputs in; like `give`, which copies outputs out, may be
                              NULL */
  void (*give)(void *ctx);
  void *ctx;
};

/* Runs once. Writes the time of step i to step_ns[i * stride] and that of take and give to
 * *copies_ns, which *total_ns includes. *step is always the step that is running or has failed, for
 * other processes to read. Does not settle the steps. */
enum np_status np_run_once(const struct np_run *run, struct np_clock clock, uint32_t *step,
                           uint64_t *step_ns, size_t stride, uint64_t *copies_ns,
                           uint64_t *total_ns);

/* Settles a step that has run; returns the durations that its engine reports, or unknown ones. */
struct np_durations np_step_settle(const struct np_step *step);

/* Destination of samples: memory of the caller, [room] or [n_steps][room] values. The first *n_runs
 * runs are complete at any moment, so that another process can read them when this one dies. */
struct np_samples {
  uint32_t room;
  uint32_t *n_runs;       /* recorded so far */
  uint32_t *started_runs; /* runs started, unrecorded ones included */
  uint32_t *step;         /* the step that is running or has failed */
  uint64_t *first_ns;     /* the first run of all, recorded or not */
  uint64_t *total_ns;     /* [room] of the whole run, take and give included */
  uint64_t *copies_ns;    /* [room] of take and give */
  uint64_t *step_ns;      /* [n_steps][room] */
};

/* How a warm-up went. */
struct np_warmth {
  uint32_t runs;
  uint32_t stable;     /* its later half was as fast as the earlier one, within 2 % */
  uint64_t fastest_ns; /* mean time of a run in the fastest stretch if least_ns is given, 0: none */
};

/* Runs all steps in order, unrecorded, until the runs are stable or the plan's max_runs or budget
 * is reached; in any case for least_ns, and until the pace has settled, which may take at most
 * NP_MOST_SETTLING_NS more. Runs are stable if the median of the last 5 times is within 2 % of that
 * of the 5 before them. A time is that of one run or, if least_ns is given, the mean over a tenth
 * of it: a governor takes tens of ms to raise a clock, and short runs look alike meanwhile. *warmth
 * is up to date at any moment. NP_OK; a failed step's status, with *samples->step naming it;
 * NP_BAD_ARGUMENT if there are no steps or no room, or the plan contradicts itself. */
enum np_status np_warm_up(const struct np_run *run, struct np_clock clock,
                          const struct np_timing_plan *plan, const struct np_pace *pace,
                          const struct np_samples *samples, struct np_warmth *warmth);

#define NP_MOST_SETTLING_NS UINT64_C(150000000)

/* Runs all steps in order, recorded, until the plan is fulfilled. Appends the samples to those
 * already there, and looks at the pace before, after and now and then in between. Nothing is
 * sorted, averaged or dropped: statistics belong to the host. NP_OK; a failed step's status, with
 * *samples->step naming it and earlier runs kept; NP_BAD_ARGUMENT if min_runs or the number of
 * steps is 0, the plan contradicts itself or there is no room. */
enum np_status np_time_round(const struct np_run *run, struct np_clock clock,
                             const struct np_timing_plan *plan, const struct np_pace *pace,
                             const struct np_samples *samples);

#endif
