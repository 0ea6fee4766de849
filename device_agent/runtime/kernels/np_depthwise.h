/* Shared by the float and quantised forms of DEPTHWISE_CONV_2D. */
#ifndef NP_DEPTHWISE_H
#define NP_DEPTHWISE_H

#include "kernels/np_window.h"

struct np_depthwise {
  struct np_window window;
  uint32_t multiplier;
  uint32_t out_channels;
  uint32_t fuse; /* index of the input that is the fuse code */
};

/* The kernel's functions for quantised data. prepare does nothing for floats. */
enum np_status np_depthwise_quant_prepare(const struct np_call *call, void **state);
size_t np_depthwise_quant_scratch(const struct np_call *call, const struct np_depthwise *depthwise);
enum np_status np_depthwise_quant_run(const struct np_call *call,
                                      const struct np_depthwise *depthwise);

#endif
