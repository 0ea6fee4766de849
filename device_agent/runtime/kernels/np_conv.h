/* Shared by the float and quantised forms of CONV_2D and GROUPED_CONV_2D. */
#ifndef NP_CONV_H
#define NP_CONV_H

#include "kernels/np_window.h"

struct np_conv {
  struct np_window window;
  uint32_t groups;
  uint32_t out_channels;
  uint32_t group_in;  /* input channels of a group */
  uint32_t group_out; /* output channels of a group */
  size_t depth;       /* products summed into one output */
  uint32_t fuse;      /* index of the input that is the fuse code */
};

/* Layouts of the inputs, in kernel->extra. */
enum np_conv_form { NP_CONV_ONE_GROUP, NP_CONV_GROUPS };

/* Reads and checks shapes and arguments. NP_MISSING if one is not known yet. */
enum np_status np_conv_read(const struct np_call *call, struct np_conv *conv);

/* The kernel's functions for quantised data. */
enum np_status np_conv_quant_prepare(const struct np_call *call, uint32_t groups, void **state);
size_t np_conv_quant_scratch(const struct np_call *call, const struct np_conv *conv);
enum np_status np_conv_quant_run(const struct np_call *call, const struct np_conv *conv);

#endif
