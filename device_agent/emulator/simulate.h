/* The time and the faults of compilations and executions on a simulated phone.
 *
 * The callers compute results, check states and count references; these functions only do what
 * depends on the phone's description. None of them is called in real time. */
#ifndef NP_SIMULATE_H
#define NP_SIMULATE_H

#include "latency.h"
#include "np_executor.h"

/* No deadline. */
#define NP_NEVER UINT64_MAX

/* The inputs and outputs of a compilation's last run. */
struct np_last_run {
  struct np_buffer *inputs;  /* [n_inputs], data are owned copies; NULL before the first run */
  struct np_buffer *outputs; /* [n_outputs] */
  uint32_t n_inputs, n_outputs;
  bool valid;
};

/* The simulated part of a compilation; zeros before np_simulate_compile and in real time. */
struct np_simulation {
  struct np_step *steps;
  uint32_t n_steps;
  struct np_step *fallback; /* the model on the CPU, for runs that fail on NNAPI's choice */
  uint32_t n_fallback;
  uint32_t n_entered; /* steps whose services hold the compilation */
  uint64_t deaths;    /* number of deaths of the steps' services before it */
  uint64_t noise_hash;
  uint32_t faults; /* a bit for each of the phone's faults that executions of the model meet */
  uint64_t n_runs; /* number so far; guarded by the compilation's lock, like `last` */
  struct np_last_run last;
};

struct np_simulate_options {
  bool from_cache;      /* a compilation whose result is in a cache */
  bool burst;           /* an execution under a burst */
  uint64_t deadline_ns; /* deadline by np_clock_now, or NP_NEVER */
};

/* Compiles for a simulated phone: places the model's operations on the compilation's devices, cuts
 * steps, applies injected faults and advances the clock. supported[i * n_operations + k] is whether
 * device i runs operation k; the last row is the host CPU's, used if NNAPI chooses.
 *
 * NO_ERROR; BAD_DATA if no device runs an operation; OP_FAILED if a fault fails;
 * MISSED_DEADLINE_PERSISTENT, with the clock at the deadline; OUT_OF_MEMORY. Does not return if a
 * fault hangs or breaks the process. If NNAPI chooses the devices, a failure puts the model on the
 * CPU, as Android's runtime does. Must be called once per compilation. */
int np_simulate_compile(ANeuralNetworksCompilation *compilation, const bool *supported,
                        const struct np_simulate_options *options);

/* Spends the time of one execution, with the compilation's lock held: advances the clock and sets
 * execution->hardware_ns and driver_ns. To be called before computing, which an error makes
 * unnecessary.
 *
 * NO_ERROR; BAD_DATA or OP_FAILED if a fault refuses or fails and the devices were named, else the
 * CPU takes over; MISSED_DEADLINE_PERSISTENT, with the clock at the deadline. Does not return if a
 * fault hangs or breaks the process. */
int np_simulate_execute(ANeuralNetworksExecution *execution,
                        const struct np_simulate_options *options);

/* Copies the last run's outputs if the last run had these inputs and the outputs fit; else returns
 * false. The compilation's lock is held. */
bool np_repeat_last_run(const struct np_last_run *last, const struct np_buffer *inputs,
                        struct np_buffer *outputs);

/* Keeps a run's inputs and outputs. If memory is short, the next run computes again. */
void np_keep_last_run(struct np_last_run *last, const struct np_graph *graph,
                      const struct np_buffer *inputs, const struct np_buffer *outputs);

/* Frees the kept inputs and outputs. */
void np_forget_last_run(struct np_last_run *last);

/* Advances the clock by `ns` with a load that heats the phone towards `heat` degrees above ambient;
 * 0: idle. */
void np_clock_busy(uint64_t ns, double heat);

/* The load of a run on a simulated phone. */
struct np_load {
  double ns;           /* alone, noise included */
  double heat;         /* degrees above ambient towards which it warms */
  double memory_ns;    /* part of ns spent waiting for memory */
  double bytes;        /* bytes moved */
  double driver_share; /* share of the CPU engine's cores used while it runs */
  bool on_cpu;         /* the CPU engine runs it */
};

/* Advances the clock by a run of a lane (-1: none), beside those of the other lanes. Returns the
 * time that it took, in ns. */
double np_clock_spend(int lane, const struct np_load *load);

void np_simulation_free(struct np_simulation *simulation);

#endif
