/* Segments that run at once, each on a thread of its own, and how long they take alone and beside
 * each other (PROTOCOL.md, "Side by side"). */
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
  struct np_fault fault; /* of its runs */
  uint64_t cpu_mask;     /* that its thread keeps to; 0: as it is */
  int on_cpu;            /* the CPU engine runs it, with so many threads */
  uint32_t threads;
};

/* Where their samples go: columns of [n_lanes][room], n_runs of which are whole at any moment. */
struct np_corun_samples {
  uint32_t room;
  uint32_t *n_runs;
  uint32_t *started_runs; /* unrecorded ones included */
  uint32_t *lane;         /* that runs, or failed; the first on NNAPI while all run */
  uint64_t *total_ns;     /* [room] the longest of the lanes' runs beside each other */
  uint64_t *alone_ns;
  uint64_t *cpu_ns; /* CPU time that this process took for a run alone */
  uint64_t *corun_ns;
};

/* One round: each lane alone, then all at once, n_runs recorded of each both times, after one that
 * is not and as many as take spin_ns. While all run, a lane that has its runs goes on until the
 * others have theirs. Simulated time is that of the simulator's lanes; a simulator without a phone
 * is real time.
 *
 * NP_OK; a failed lane's status, with *samples->lane naming it and its fault in the lane: the
 * others end after the run that they are at; NP_NO_MEMORY where there is no thread to be had,
 * NP_BAD_ARGUMENT where there are more lanes than NP_MAX_CORUN or there is no room. */
enum np_status np_corun_round(struct np_corun_lane *lanes, uint32_t n_lanes, struct np_clock clock,
                              const struct np_simulator *simulator, uint64_t spin_ns,
                              uint32_t n_runs, const struct np_corun_samples *samples);

#endif
