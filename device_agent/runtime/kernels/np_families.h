/* The functions of the kernel families, for the registry. */
#ifndef NP_FAMILIES_H
#define NP_FAMILIES_H

#include "kernels/np_kernel.h"

#define NP_KERNEL_FUNCTIONS(family)                                                                \
  enum np_status np_##family##_infer(const struct np_call *call);                                  \
  enum np_status np_##family##_run(const struct np_call *call);

/* kernel_conv.c: CONV_2D and GROUPED_CONV_2D */
enum np_conv { NP_CONV_PLAIN, NP_CONV_GROUPED };
NP_KERNEL_FUNCTIONS(conv)
enum np_status np_conv_prepare(const struct np_call *call, void **state);
size_t np_conv_scratch(const struct np_call *call);

/* kernel_depthwise.c */
NP_KERNEL_FUNCTIONS(depthwise)
size_t np_depthwise_scratch(const struct np_call *call);

/* kernel_linear.c: FULLY_CONNECTED */
NP_KERNEL_FUNCTIONS(linear)
enum np_status np_linear_prepare(const struct np_call *call, void **state);
size_t np_linear_scratch(const struct np_call *call);

/* kernel_pool.c */
enum np_pool { NP_POOL_AVERAGE, NP_POOL_MAX, NP_POOL_L2 };
NP_KERNEL_FUNCTIONS(pool)
size_t np_pool_scratch(const struct np_call *call);

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
