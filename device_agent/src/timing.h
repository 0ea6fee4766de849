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

/* CLOCK_MONOTONIC, as a clock and as what it says now. */
struct np_clock np_monotonic_clock(void);
uint64_t np_now_ns(void);

void np_sleep_ns(uint64_t ns);

/* How often: at least min_runs, at most max_runs, and none once they took budget_ns in total. Of
 * unrecorded runs least_ns is the busy time that there is at the least, whatever the others say. */
struct np_timing_plan {
  uint32_t min_runs;
  uint32_t max_runs; /* at least min_runs */
  uint64_t budget_ns;
  uint64_t least_ns;
};

/* Looks at the clock of the processor between runs, never within one. A NULL pace sees nothing. */
struct np_pace {
  void (*look)(void *ctx);                     /* how fast is it now? */
  int (*settled)(void *ctx, uint64_t busy_ns); /* is it as fast as it will be, after so long? */
  /* Optional: keeps it busy for so long, in simulated time, in place of as many short runs. */
  void (*stretch)(void *ctx, uint64_t ns);
  void *ctx;
};

/* One part of a run. settle is optional and stands outside of all times. */
struct np_step {
  enum np_status (*run)(void *ctx);
  void (*settle)(void *ctx, struct np_durations *durations);
  void *ctx;
};

/* What is run again and again: its steps in order, and around them what takes the caller's inputs
 * and gives its outputs, which counts to the whole and to no step. */
struct np_run {
  uint32_t n_steps;
  const struct np_step *steps;
  void (*take)(void *ctx); /* NULL: nothing; so is `give` */
  void (*give)(void *ctx);
  void *ctx;
};

/* Runs once: step i's time goes to step_ns[i * stride], that of taking and giving to *copies_ns,
 * which *total_ns includes; *step names the one that runs, or that
 * failed, to other processes at any moment. What a run leaves is not settled. */
enum np_status np_run_once(const struct np_run *run, struct np_clock clock, uint32_t *step,
                           uint64_t *step_ns, size_t stride, uint64_t *copies_ns,
                           uint64_t *total_ns);

/* Settles a step that has run: what its engine tells of it, or does not know. */
struct np_durations np_step_settle(const struct np_step *step);

/* Where samples go: memory of the caller, [room] or [n_steps][room] values. All of the first
 * *n_runs runs are whole at any moment, so that another process may read them when this one dies.
 */
struct np_samples {
  uint32_t room;
  uint32_t *n_runs;       /* recorded so far */
  uint32_t *started_runs; /* runs that were begun, unrecorded ones included */
  uint32_t *step;         /* the step that runs now, or that failed */
  uint64_t *first_ns;     /* the first run of all, recorded or not */
  uint64_t *total_ns;     /* [room] of the whole, what takes and gives included */
  uint64_t *copies_ns;    /* [room] of what takes and gives */
  uint64_t *step_ns;      /* [n_steps][room] */
};

/* How a warm-up went. */
struct np_warmth {
  uint32_t runs;
  uint32_t stable;     /* the later half of it was as fast as the one before, within 2 % */
  uint64_t fastest_ns; /* mean of a run in the fastest stretch where least_ns is given, 0: none */
};

/* Runs all steps in order, unrecorded, until the runs are stable, the plan's max_runs or its budget
 * ends that; but for its least_ns in any case, and until the pace has settled, for
 * NP_MOST_SETTLING_NS more at the most. Runs are stable where the median of the last 5 times is
 * within 2 % of that of the 5 before them; a time is that of a run, or where least_ns is given, the
 * mean over a tenth of it: a governor takes tens of ms to raise a clock, in which short runs look
 * alike. *warmth is up to date at any moment. NP_OK; a failed step's status, with *samples->step
 * naming it; NP_BAD_ARGUMENT where there are no steps or no room, or the plan contradicts itself.
 */
enum np_status np_warm_up(const struct np_run *run, struct np_clock clock,
                          const struct np_timing_plan *plan, const struct np_pace *pace,
                          const struct np_samples *samples, struct np_warmth *warmth);

#define NP_MOST_SETTLING_NS UINT64_C(150000000)

/* Runs all steps in order, recorded, until the plan is fulfilled; the samples go behind those that
 * are there, and the pace is looked at before, after and now and then in between. Nothing is
 * sorted, averaged or dropped: statistics belong to the host. NP_OK; a failed step's status, with
 * *samples->step naming it and earlier runs kept; NP_BAD_ARGUMENT where min_runs or the number of
 * steps is 0, the plan contradicts itself or there is no room. */
enum np_status np_time_round(const struct np_run *run, struct np_clock clock,
                             const struct np_timing_plan *plan, const struct np_pace *pace,
                             const struct np_samples *samples);

#endif
