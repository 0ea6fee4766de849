/* What steps check before and between operations. */
#ifndef NP_CLOCK_H
#define NP_CLOCK_H

#include "kernels/np_kernel.h"

/* CLOCK_MONOTONIC in ns. */
uint64_t np_monotonic_ns(void);

/* That every input has values, but for those that the operation can do without. */
enum np_status np_check_inputs(const struct np_call *call);

#endif
