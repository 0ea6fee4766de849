/* Windows that slide over images: shared by convolutions and poolings. */
#ifndef NP_WINDOW_H
#define NP_WINDOW_H

#include "kernels/np_kernel.h"

struct np_window {
  uint32_t batches, height, width, channels; /* the input's, [N, H, W, C] */
  uint32_t filter_h, filter_w;
  uint32_t stride_h, stride_w;
  uint32_t dilation_h, dilation_w;
  uint32_t pad_top, pad_left;
  uint32_t out_h, out_w;
};

/* Reads the shape of input 0 and, from input `at` on, paddings and strides. The caller sets
 * filter_* and dilation_* before; this sets all other fields. NP_MISSING if a value is not known
 * yet. */
enum np_status np_window_fit(const struct np_call *call, uint32_t at, struct np_window *window);

/* Returns the number of inputs for paddings and strides: 6 if explicit, else 3. */
uint32_t np_window_inputs(const struct np_call *call);

/* Reads the optional pair of dilations, over width and height, from input `at` on; the default is
 * 1. */
enum np_status np_window_dilations(const struct np_call *call, uint32_t at,
                                   struct np_window *window);

/* Sets output 0 to [N, out_h, out_w, channels]. */
enum np_status np_window_shape(const struct np_call *call, const struct np_window *window,
                               uint32_t channels);

/* Finds the taps of a window along one axis that are inside the image: from *first, before
 * *last. */
static inline void np_window_taps(uint32_t out, uint32_t stride, uint32_t pad, uint32_t dilation,
                                  uint32_t filter, uint32_t size, uint32_t *first, uint32_t *last) {
  const uint64_t start = (uint64_t)out * stride; /* in the padded image */
  const uint64_t end = (uint64_t)pad + size;
  uint64_t low = start >= pad ? 0 : (pad - start + dilation - 1) / dilation;
  uint64_t high = start >= end ? 0 : (end - start + dilation - 1) / dilation;
  high = high > filter ? filter : high;
  low = low > high ? high : low;
  *first = (uint32_t)low;
  *last = (uint32_t)high;
}

#endif
