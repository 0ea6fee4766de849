/* The engine `cpu`: the portable kernels on this device's CPU. */
#ifndef NP_CPU_H
#define NP_CPU_H

#include "engine.h"
#include "simulator.h"

/* The engine. With a simulator whose phone is simulated (else NULL) every run also advances the
 * simulated clock by what the phone's CPU would take, and a run whose inputs are byte for byte
 * those of the run before leaves its outputs as they are instead of computing them again: nobody
 * else writes them, and real time is not what is measured. The simulator must outlive the engine.
 *
 * The portable kernels use one thread; options->threads reaches the simulated CPU only. */
struct np_engine np_cpu_engine(struct np_simulator *simulator);

#endif
