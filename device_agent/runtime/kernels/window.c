#include "kernels/np_window.h"

/* Returns the output size of a window along one axis and sets the leading padding, as NNAPI
 * documents ANEURALNETWORKS_PADDING_SAME and _VALID. Returns 0 if the window does not fit. */
static uint32_t same_padding(uint32_t size, uint32_t stride, uint64_t reach, uint32_t *before) {
  const uint32_t out = size / stride + (size % stride != 0);
  const uint64_t needed = out == 0 ? 0 : (uint64_t)(out - 1) * stride + reach;
  *before = needed > size ? (uint32_t)((needed - size) / 2) : 0;
  return out;
}

static uint32_t fit(uint64_t padded, uint32_t stride, uint64_t reach) {
  const uint64_t out = padded < reach ? 0 : (padded - reach) / stride + 1;
  return out > UINT32_MAX ? UINT32_MAX : (uint32_t)out;
}

uint32_t np_window_inputs(const struct np_call *call) {
  return call->form->variant == NP_EXPLICIT ? 6 : 3;
}

/* Reads a positive number. */
static enum np_status read_positive(const struct np_call *call, uint32_t input, const char *what,
                                    uint32_t *value) {
  int32_t number;
  NP_TRY(np_read_i32(call, input, &number));
  if (number <= 0) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %d, wanted at least 1", what, input,
                   number);
  }
  *value = (uint32_t)number;
  return NP_OK;
}

enum np_status np_window_dilations(const struct np_call *call, uint32_t at,
                                   struct np_window *window) {
  window->dilation_w = 1;
  window->dilation_h = 1;
  if (!np_has(call, at + 1)) {
    return NP_OK;
  }
  NP_TRY(read_positive(call, at, "dilation over width", &window->dilation_w));
  return read_positive(call, at + 1, "dilation over height", &window->dilation_h);
}

static enum np_status explicit_padding(const struct np_call *call, uint32_t at,
                                       struct np_window *window) {
  static const char *const NAMES[4] = {"left padding", "right padding", "top padding",
                                       "bottom padding"};
  uint32_t pads[4];
  for (uint32_t i = 0; i < 4; i++) {
    int32_t pad;
    NP_TRY(np_read_i32(call, at + i, &pad));
    if (pad < 0) {
      return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %d, wanted at least 0", NAMES[i], at + i,
                     pad);
    }
    pads[i] = (uint32_t)pad;
  }
  const uint64_t reach_h = (uint64_t)(window->filter_h - 1) * window->dilation_h + 1;
  const uint64_t reach_w = (uint64_t)(window->filter_w - 1) * window->dilation_w + 1;
  window->pad_left = pads[0];
  window->pad_top = pads[2];
  window->out_w = fit((uint64_t)window->width + pads[0] + pads[1], window->stride_w, reach_w);
  window->out_h = fit((uint64_t)window->height + pads[2] + pads[3], window->stride_h, reach_h);
  return NP_OK;
}

static enum np_status implicit_padding(const struct np_call *call, uint32_t at,
                                       struct np_window *window) {
  int32_t code;
  NP_TRY(np_read_i32(call, at, &code));
  const uint64_t reach_h = (uint64_t)(window->filter_h - 1) * window->dilation_h + 1;
  const uint64_t reach_w = (uint64_t)(window->filter_w - 1) * window->dilation_w + 1;
  switch (code) {
  case ANEURALNETWORKS_PADDING_SAME:
    window->out_h = same_padding(window->height, window->stride_h, reach_h, &window->pad_top);
    window->out_w = same_padding(window->width, window->stride_w, reach_w, &window->pad_left);
    return NP_OK;
  case ANEURALNETWORKS_PADDING_VALID:
    window->pad_top = 0;
    window->pad_left = 0;
    window->out_h = fit(window->height, window->stride_h, reach_h);
    window->out_w = fit(window->width, window->stride_w, reach_w);
    return NP_OK;
  default:
    return np_fail(call, NP_BAD_MODEL, "padding code (input %u) is %d, wanted 1 or 2", at, code);
  }
}

enum np_status np_window_fit(const struct np_call *call, uint32_t at, struct np_window *window) {
  const struct np_tensor *input = np_in(call, 0);
  if (!input->known) {
    return NP_MISSING;
  }
  if (input->rank != 4) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has rank %u, wanted 4", input->rank);
  }
  window->batches = input->dims[0];
  window->channels = input->dims[3];
  window->height = input->dims[1];
  window->width = input->dims[2];
  const uint32_t strides = at + (call->form->variant == NP_EXPLICIT ? 4 : 1);
  NP_TRY(read_positive(call, strides, "stride over width", &window->stride_w));
  NP_TRY(read_positive(call, strides + 1, "stride over height", &window->stride_h));
  if (window->filter_h == 0 || window->filter_w == 0 || window->dilation_h == 0 ||
      window->dilation_w == 0) {
    return np_fail(call, NP_BAD_MODEL, "a filter of %u x %u, dilated %u x %u, is empty",
                   window->filter_h, window->filter_w, window->dilation_h, window->dilation_w);
  }
  NP_TRY(call->form->variant == NP_EXPLICIT ? explicit_padding(call, at, window)
                                            : implicit_padding(call, at, window));
  if ((window->out_h == 0 || window->out_w == 0) && input->elements > 0) {
    return np_fail(call, NP_BAD_MODEL, "a filter of %u x %u does not fit the %u x %u image",
                   window->filter_h, window->filter_w, window->height, window->width);
  }
  return NP_OK;
}

enum np_status np_window_shape(const struct np_call *call, const struct np_window *window,
                               uint32_t channels) {
  const uint32_t dims[4] = {window->batches, window->out_h, window->out_w, channels};
  return np_set_shape(call, 0, 4, dims);
}
