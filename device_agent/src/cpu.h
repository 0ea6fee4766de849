/* The engine `cpu`: runs models on this device's CPU, with XNNPACK where it is built in and
 * supports an operation, and with the portable kernels otherwise. */
#ifndef NP_CPU_H
#define NP_CPU_H

#include "engine.h"
#include "simulator.h"

/* Returns the engine. `simulator` is NULL unless a phone is simulated. With it, every run also
 * advances the simulated clock by the time that the phone's CPU would take, and a run whose inputs
 * equal those of the run before, byte for byte, returns the same outputs without computing them
 * again, since real time is not measured. The simulator must outlive the engine.
 *
 * XNNPACK computes with options->threads threads, which run on the CPUs of the thread that
 * compiles; the portable kernels use only the calling thread. A simulated phone computes with the
 * portable kernels, whose results are the same on every machine. */
struct np_engine np_cpu_engine(struct np_simulator *simulator);

#endif
