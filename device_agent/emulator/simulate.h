/* What a compilation or an execution means on a simulated phone: its time and its faults.
 *
 * The callers compute results, check states and count references; here is only what the phone's
 * description decides. Nothing of this is called in real time. */
#ifndef NP_SIMULATE_H
#define NP_SIMULATE_H

#include "latency.h"
#include "np_executor.h"

/* No deadline. */
#define NP_NEVER UINT64_MAX

/* What the last run of a compilation read and wrote. */
struct np_last_run {
  struct np_buffer *inputs;  /* [n_inputs], data are owned copies; NULL before the first run */
  struct np_buffer *outputs; /* [n_outputs] */
  uint32_t n_inputs, n_outputs;
  bool valid;
};

/* A compilation's part that is simulated; zeros before np_simulate_compile and in real time. */
struct np_simulation {
  struct np_step *steps;
  uint32_t n_steps;
  struct np_step *fallback; /* the model on the CPU, for runs that fail where NNAPI chose */
  uint32_t n_fallback;
  uint32_t n_entered; /* steps whose services hold the compilation */
  uint64_t deaths;    /* of the steps' services before it */
  uint64_t noise_hash;
  uint32_t faults; /* a bit for each of the phone's that executions of the model meet */
  uint64_t n_runs; /* so far; guarded by the compilation's lock, as is `last` */
  struct np_last_run last;
};

struct np_simulate_options {
  bool from_cache;      /* a compilation whose result lies in a cache */
  bool burst;           /* an execution under a burst */
  uint64_t deadline_ns; /* of np_clock_now, by which it has to be done, or NP_NEVER */
};

/* Compiles for a simulated phone: places the model's operations on the compilation's devices, cuts
 * steps, meets injected faults and advances the clock. supported[i * n_operations + k] tells
 * whether device i runs operation k; the row behind the devices is the host CPU's, used where NNAPI
 * chooses.
 *
 * NO_ERROR; BAD_DATA where no device runs an operation; OP_FAILED where a fault fails; does not
 * return where a fault hangs or breaks the process; MISSED_DEADLINE_PERSISTENT, with the clock at
 * the deadline; OUT_OF_MEMORY. Where NNAPI chooses the devices, a failure puts the model on the
 * CPU, as Android's runtime does. Once per compilation. */
int np_simulate_compile(ANeuralNetworksCompilation *compilation, const bool *supported,
                        const struct np_simulate_options *options);

/* One execution's time, with the compilation's lock held: advances the clock and sets
 * execution->hardware_ns and driver_ns. Call it before computing: with an error there is nothing to
 * compute.
 *
 * NO_ERROR; BAD_DATA or OP_FAILED where a fault refuses or fails and the devices were named, else
 * the CPU takes over; does not return where a fault hangs or breaks the process;
 * MISSED_DEADLINE_PERSISTENT, with the clock at the deadline. */
int np_simulate_execute(ANeuralNetworksExecution *execution,
                        const struct np_simulate_options *options);

/* Copies the last run's outputs where the last run had these inputs and the outputs fit; else
 * false. With the compilation's lock held. */
bool np_repeat_last_run(const struct np_last_run *last, const struct np_buffer *inputs,
                        struct np_buffer *outputs);

/* Keeps what a run read and wrote. Short memory only means that the next run computes again. */
void np_keep_last_run(struct np_last_run *last, const struct np_graph *graph,
                      const struct np_buffer *inputs, const struct np_buffer *outputs);

/* Frees what was kept. */
void np_forget_last_run(struct np_last_run *last);

/* Advances the clock by `ns` in which something heats the phone towards `heat` degrees above the
 * ambient; 0 is idle. */
void np_clock_busy(uint64_t ns, double heat);

/* What a run takes of a simulated phone. */
struct np_load {
  double ns;           /* alone, noise included */
  double heat;         /* degrees above the ambient towards which it warms */
  double memory_ns;    /* of ns, as long as memory is what it waits for */
  double bytes;        /* that it moves */
  double driver_share; /* of the CPU engine's cores, while it runs */
  bool on_cpu;         /* it is the CPU engine's */
};

/* Advances the clock by a run; of a lane (-1: of none), beside those of the other lanes. Returns
 * how long it took, ns. */
double np_clock_spend(int lane, const struct np_load *load);

void np_simulation_free(struct np_simulation *simulation);

#endif
