/* The engine `cpu`: this device's CPU, by XNNPACK where it is built in and takes an operation, by
 * the portable kernels for the rest. */
#ifndef NP_CPU_H
#define NP_CPU_H

#include "engine.h"
#include "simulator.h"

/* The engine. With a simulator whose phone is simulated (else NULL) every run also advances the
 * simulated clock by what the phone's CPU would take, and a run whose inputs are byte for byte
 * those of the run before gives that one's outputs instead of computing them again: real time is
 * not what is measured. The simulator must outlive the engine.
 *
 * XNNPACK computes with options->threads threads, which keep to the CPUs of the thread that
 * compiles; the portable kernels use the caller's alone. A simulated phone computes with the
 * portable kernels, whose results are the same on every machine. */
struct np_engine np_cpu_engine(struct np_simulator *simulator);

#endif
