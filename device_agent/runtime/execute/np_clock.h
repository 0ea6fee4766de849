/* Checks before and between operations. */
#ifndef NP_CLOCK_H
#define NP_CLOCK_H

#include "kernels/np_kernel.h"

/* Returns CLOCK_MONOTONIC in ns. */
uint64_t np_monotonic_ns(void);

/* Checks that every input has values, except for optional ones. */
enum np_status np_check_inputs(const struct np_call *call);

#endif
