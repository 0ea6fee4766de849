/* The latency model of simulated phones: PHONES.md, section "Latency". Times are ns. */
#ifndef NP_LATENCY_H
#define NP_LATENCY_H

#include "np_executor.h"
#include "phone.h"

/* One operation, or several that run as one. */
struct np_cost {
  double compute; /* ns at the unit's rates, of its slowest operation */
  double bytes;   /* moved */
};

/* Returns the parts of one operation's time: macs / (peak of its data x efficiency), and its bytes.
 * `speed_up` multiplies the peak rate (threads); `code` may be one of ours beyond NNAPI's. */
struct np_cost np_cost_of(const struct np_unit_model *unit, int32_t code,
                          const struct np_work *work, bool relaxed, double speed_up);

/* Returns max(compute, bytes / bandwidth) + operation_overhead, in ns. */
double np_cost_ns(const struct np_unit_model *unit, const struct np_cost *cost);

/* Returns the part of np_cost_ns spent waiting for memory: bytes / bandwidth if that is the longer,
 * else 0. */
double np_cost_memory_ns(const struct np_unit_model *unit, const struct np_cost *cost);

/* Returns how many times faster `number` threads compute than one: by the phone's rows, else 1 + s
 * + s^2 + ..., where each further thread adds the fraction s = `scaling` of what the one before it
 * added. 0 threads count as 1, and more threads than cores as the number of cores. */
double np_thread_speed_up(const struct np_threads *threads, uint32_t number);

/* One step of a compiled model: neighbouring operations on one accelerator. */
struct np_step {
  const struct np_accelerator *accelerator;
  double operations_ns;    /* sum over its operations, before the preference */
  double memory_ns;        /* part of it spent waiting for memory */
  double bytes;            /* moved by its operations */
  uint64_t boundary_bytes; /* activations that enter or leave the step */
  uint64_t constant_bytes;
  uint32_t n_operations;
};

/* The time of one execution in ns, without noise. */
struct np_latency {
  double hardware; /* the operations, times preference and throttling */
  double driver;   /* + transfer of inputs and outputs */
  double wall;     /* + invocation */
  double cpu;      /* part of the wall on accelerators of type CPU */
  double heat;     /* degrees above ambient towards which it warms, weighted by time */
  double memory;   /* part of the wall spent waiting for memory, transfers included */
  double bytes;    /* moved, transfers included */
  double drivers;  /* share of the CPU engine's cores used by drivers, weighted by time */
};

/* Returns the execution time of the steps in turn. `preference` is ANEURALNETWORKS_PREFER_*,
 * `throttle` the factor due to the phone's temperature. */
struct np_latency np_steps_latency(const struct np_step *steps, uint32_t n_steps,
                                   int32_t preference, bool burst, double throttle);

/* Returns the time to compile the steps, a fixed part for each included; from a cache if the step's
 * driver caches. */
double np_steps_compile_ns(const struct np_step *steps, uint32_t n_steps, bool from_cache);

#endif
