/* The functions of the kernel families, for the registry. */
#ifndef NP_FAMILIES_H
#define NP_FAMILIES_H

#include "kernels/np_kernel.h"

#define NP_KERNEL_FUNCTIONS(family)                                                                \
  enum np_status np_##family##_infer(const struct np_call *call);                                  \
  enum np_status np_##family##_run(const struct np_call *call);

/* kernel_reduce.c */
enum np_reduce {
  NP_REDUCE_MEAN,
  NP_REDUCE_SUM,
  NP_REDUCE_PROD,
  NP_REDUCE_MAX,
  NP_REDUCE_MIN,
};
NP_KERNEL_FUNCTIONS(reduce)

#undef NP_KERNEL_FUNCTIONS

#endif
