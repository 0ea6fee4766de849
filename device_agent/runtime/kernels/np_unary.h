/* Operations on one tensor: kernel_unary.c, and kernel_unary_quant.c for quantised ones. */
#ifndef NP_UNARY_H
#define NP_UNARY_H

#include "kernels/np_kernel.h"

enum np_unary {
  NP_UNARY_RELU,
  NP_UNARY_RELU1,
  NP_UNARY_RELU6,
  NP_UNARY_LOGISTIC,
  NP_UNARY_TANH,
  NP_UNARY_HARD_SWISH,
  NP_UNARY_ELU,
  NP_UNARY_FLOOR,
  NP_UNARY_ABS,
  NP_UNARY_EXP,
  NP_UNARY_NEG,
  NP_UNARY_SQRT,
  NP_UNARY_RSQRT,
  NP_UNARY_LOG,
  NP_UNARY_SIN,
};

/* Checks that a quantised operation's output has the scale and zero point that it requires. */
enum np_status np_unary_quant_check(const struct np_call *call);

/* Computes a quantised operation. */
enum np_status np_unary_quant_run(const struct np_call *call);

#endif
