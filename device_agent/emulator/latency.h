/* The latency model of simulated phones: PHONES.md, section "Latency". Times are ns. */
#ifndef NP_LATENCY_H
#define NP_LATENCY_H

#include "np_executor.h"
#include "phone.h"

/* One operation, or several that run as one. */
struct np_cost {
  double compute; /* ns at the unit's rates: of the slowest of its operations */
  double bytes;   /* moved */
};

/* The parts of one operation's time: macs / (peak of its data x efficiency), and its bytes.
 * `speed_up` multiplies the peak rate (threads); code may be one of ours beyond NNAPI's. */
struct np_cost np_cost_of(const struct np_unit_model *unit, int32_t code,
                          const struct np_work *work, bool relaxed, double speed_up);

/* max(compute, bytes / bandwidth) + operation_overhead. */
double np_cost_ns(const struct np_unit_model *unit, const struct np_cost *cost);

/* Of that, what it waits for memory: bytes / bandwidth where that is the longer, else 0. */
double np_cost_memory_ns(const struct np_unit_model *unit, const struct np_cost *cost);

/* How much faster `number` threads compute than one: by the phone's rows, else 1 + s + s^2 + ...,
 * each further thread adding the fraction `scaling` of what the one before it added. 0 threads
 * count as 1, more than there are cores as these. */
double np_thread_speed_up(const struct np_threads *threads, uint32_t number);

/* One step of a compiled model: neighbouring operations on one accelerator. */
struct np_step {
  const struct np_accelerator *accelerator;
  double operations_ns;    /* sum over its operations, before the preference */
  double memory_ns;        /* of that, waiting for memory */
  double bytes;            /* that its operations move */
  uint64_t boundary_bytes; /* activations that enter or leave the step */
  uint64_t constant_bytes;
  uint32_t n_operations;
};

/* What one execution takes, without noise. */
struct np_latency {
  double hardware; /* the operations, times preference and throttling */
  double driver;   /* + transfer of inputs and outputs */
  double wall;     /* + invocation */
  double cpu;      /* of the wall, on accelerators of type CPU */
  double heat;     /* degrees above the ambient towards which it warms, by share of the wall */
  double memory;   /* of the wall, waiting for memory: transfers included */
  double bytes;    /* moved, transfers included */
  double drivers;  /* of the CPU engine's cores, by share of the wall */
};

/* Adds the execution time of the steps in turn. `preference` is ANEURALNETWORKS_PREFER_*,
 * `throttle` the factor of the phone's temperature. */
struct np_latency np_steps_latency(const struct np_step *steps, uint32_t n_steps,
                                   int32_t preference, bool burst, double throttle);

/* What compiling the steps takes, each paying its fixed part; from a cache where its driver
 * caches. */
double np_steps_compile_ns(const struct np_step *steps, uint32_t n_steps, bool from_cache);

#endif
