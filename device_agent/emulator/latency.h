/* The latency model of simulated phones: PHONES.md, section "Latency". Times are ns. */
#ifndef NP_LATENCY_H
#define NP_LATENCY_H

#include "np_executor.h"
#include "phone.h"

/* Time of one operation: max(macs / (peak x efficiency), bytes / bandwidth) + overhead.
 * `speed_up` multiplies the peak rate (threads); code may be one of ours beyond NNAPI's. */
double np_operation_ns(const struct np_unit_model *unit, int32_t code, const struct np_work *work,
                       bool relaxed, double speed_up);

/* How much faster `threads` threads compute than one: 1 + s + s^2 + ..., each further thread
 * adding the fraction `scaling` of what the one before it added. 0 threads count as 1. */
double np_thread_speed_up(double scaling, uint32_t threads);

/* One step of a compiled model: neighbouring operations on one accelerator. */
struct np_step {
  const struct np_accelerator *accelerator;
  double operations_ns;    /* sum over its operations, before the preference */
  uint64_t boundary_bytes; /* activations that enter or leave the step */
  uint64_t constant_bytes;
  uint32_t n_operations;
};

/* What one execution takes, without noise. */
struct np_latency {
  double hardware; /* the operations, times the preference factor */
  double driver;   /* + transfer of inputs and outputs */
  double wall;     /* + invocation */
};

/* Adds the execution time of the steps in turn. `preference` is ANEURALNETWORKS_PREFER_*. */
struct np_latency np_steps_latency(const struct np_step *steps, uint32_t n_steps,
                                   int32_t preference, bool burst);

/* What compiling the steps takes, each paying its fixed part. */
double np_steps_compile_ns(const struct np_step *steps, uint32_t n_steps);

#endif
