/* Measures how long segments take alone and at the same time, each on its own thread (PROTOCOL.md,
 * "Side by side"). */
#ifndef NP_CORUN_H
#define NP_CORUN_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"
#include "simulator.h"
#include "timing.h"

#define NP_MAX_CORUN 8u

/* One of the segments. */
struct np_corun_lane {
  const struct np_step *step;
  struct np_fault fault; /* failure of its runs */
  uint64_t cpu_mask;     /* CPUs that its thread runs on; 0: unchanged */
  int on_cpu;            /* the CPU engine runs it, with `threads` threads */
  uint32_t threads;
};

/* Destination of the samples: columns of [n_lanes][room], of which n_runs are complete at any
 * moment. */
struct np_corun_samples {
  uint32_t room;
  uint32_t *n_runs;
  uint32_t *started_runs; /* including unrecorded ones */
  uint32_t *lane;         /* the lane that runs or failed; the first on NNAPI while all run */
  uint64_t *total_ns;     /* [room] the longest of the lanes' simultaneous runs */
  uint64_t *alone_ns;
  uint64_t *cpu_ns; /* CPU time of this process for a run alone */
  uint64_t *corun_ns;
};

/* Runs one round: each lane alone, then all at once. Both times n_runs of each lane are recorded,
 * after one unrecorded run and as many more as take spin_ns. While all run, a lane that has its
 * runs continues until the others have theirs. Simulated time is that of the simulator's lanes;
 * with a simulator that has no phone, time is real.
 *
 * NP_OK; or a failed lane's status, with *samples->lane naming it and its fault in the lane: the
 * others end after their current run; NP_NO_MEMORY if no thread could be made; NP_BAD_ARGUMENT if
 * there are more than NP_MAX_CORUN lanes or there is no room. */
enum np_status np_corun_round(struct np_corun_lane *lanes, uint32_t n_lanes, struct np_clock clock,
                              const struct np_simulator *simulator, uint64_t spin_ns,
                              uint32_t n_runs, const struct np_corun_samples *samples);

#endif
