/* Converts arguments of operations to XNNPACK's form. */
#include <float.h>
#include <math.h>

#include "backends/xnnpack_rules.h"

/* Maximum number of pointers to pixels for a sliding window: XNNPACK keeps one for each tap of each
 * output. */
#define MOST_POINTERS ((size_t)1 << 26)

static int is_constant(const struct np_call *call, uint32_t input) {
  return np_has(call, input) && np_in_operand(call, input)->lifetime == NP_CONSTANT;
}

int np_xnn_i32(const struct np_call *call, uint32_t input, int32_t *value) {
  return is_constant(call, input) && np_read_i32(call, input, value) == NP_OK;
}

int np_xnn_bool(const struct np_call *call, uint32_t input, int *value) {
  *value = 0;
  if (!np_has(call, input)) {
    return 1;
  }
  return is_constant(call, input) && np_read_bool(call, input, value) == NP_OK;
}

int np_xnn_f32(const struct np_call *call, uint32_t input, float *value) {
  return is_constant(call, input) && np_in_operand(call, input)->type == NP_TYPE_FLOAT32 &&
         np_read_f32(call, input, value) == NP_OK;
}

int np_xnn_list(const struct np_call *call, uint32_t input, const int32_t **values, size_t *n) {
  return is_constant(call, input) && np_in_operand(call, input)->type == NP_TYPE_TENSOR_INT32 &&
         np_read_list(call, input, values, n) == NP_OK;
}

int np_xnn_fuse(const struct np_call *call, uint32_t input, float *low, float *high) {
  int32_t fuse;
  return np_xnn_i32(call, input, &fuse) && np_xnn_limits(call, fuse, low, high);
}

int np_xnn_limits(const struct np_call *call, int32_t fuse, float *low, float *high) {
  if (np_fuse_limits(call, fuse, low, high) != NP_OK) {
    return 0;
  }
  const struct np_operand *output = np_out_operand(call, 0);
  if (output->type == NP_TYPE_TENSOR_FLOAT32) {
    /* With any other limits XNNPACK turns NaN into one of them. */
    *low = *low == -FLT_MAX ? -INFINITY : *low;
    *high = *high == FLT_MAX ? INFINITY : *high;
    return 1;
  }
  /* XNNPACK requires two quantised values between the limits. */
  const float zero = (float)output->zero_point;
  const float type_low = output->type == NP_TYPE_TENSOR_QUANT8_ASYMM ? 0.0f : -128.0f;
  const float lowest = fmaxf(rintf(*low / output->scale) + zero, type_low);
  const float highest = fminf(rintf(*high / output->scale) + zero, type_low + 255.0f);
  return lowest < highest;
}

int np_xnn_same_values(const struct np_call *call, uint32_t input, uint32_t output) {
  const struct np_operand *from = np_in_operand(call, input);
  const struct np_operand *to = np_out_operand(call, output);
  return from->type == to->type &&
         (from->type == NP_TYPE_TENSOR_FLOAT32 || from->type == NP_TYPE_TENSOR_FLOAT16 ||
          (from->scale == to->scale && from->zero_point == to->zero_point));
}

/* Finds paddings of one axis with which XNNPACK computes the output's size: `before` is given or,
 * if it is negative, half of what a window of `reach` needs. */
static int fit(uint32_t size, uint32_t out, uint32_t stride, uint64_t reach, int64_t before,
               uint32_t pads[2]) {
  const int64_t needed = (int64_t)((uint64_t)(out - 1) * stride + reach) - (int64_t)size;
  const int64_t first = before >= 0 ? before : needed > 0 ? needed / 2 : 0;
  const int64_t rest = needed - first > 0 ? needed - first : 0;
  /* The same computation as in XNNPACK. */
  const int64_t padded = (int64_t)size + first + rest;
  if (out == 0 || reach > UINT32_MAX || first > INT32_MAX || rest > INT32_MAX ||
      padded < (int64_t)reach) {
    return 0;
  }
  pads[0] = (uint32_t)first;
  pads[1] = (uint32_t)rest;
  return (padded - (int64_t)reach) / stride + 1 == (int64_t)out;
}

int np_xnn_pointers_fit(const struct np_call *call, const uint32_t filter[2]) {
  const uint32_t *out = np_out(call, 0)->dims;
  return np_mul_saturated(np_mul_saturated(filter[0], filter[1]),
                          np_mul_saturated(out[1], out[2])) <= MOST_POINTERS;
}

int np_xnn_read_window(const struct np_call *call, uint32_t at, const uint32_t filter[2],
                       const uint32_t dilation[2], struct np_xnn_window *window) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const int is_explicit = call->form->variant == NP_EXPLICIT;
  int32_t pads[4] = {-1, 0, -1, 0}; /* left, right, top, bottom */
  for (uint32_t i = 0; i < 4 && is_explicit; i++) {
    if (!np_xnn_i32(call, at + i, &pads[i]) || pads[i] < 0) {
      return 0;
    }
  }
  if (!is_explicit) {
    int32_t code;
    if (!np_xnn_i32(call, at, &code)) {
      return 0;
    }
    pads[0] = code == ANEURALNETWORKS_PADDING_SAME ? -1 : 0;
    pads[2] = pads[0];
  }
  window->next = at + (is_explicit ? 6 : 3);
  int32_t stride_w;
  int32_t stride_h;
  if (!np_xnn_i32(call, window->next - 2, &stride_w) ||
      !np_xnn_i32(call, window->next - 1, &stride_h) || stride_w < 1 || stride_h < 1 ||
      input->rank != 4 || output->rank != 4 || filter[0] == 0 || filter[1] == 0) {
    return 0;
  }
  if (!np_xnn_pointers_fit(call, filter)) {
    return 0;
  }
  window->stride_h = (uint32_t)stride_h;
  window->stride_w = (uint32_t)stride_w;
  uint32_t vertical[2];
  uint32_t horizontal[2];
  if (!fit(input->dims[1], output->dims[1], window->stride_h,
           (uint64_t)(filter[0] - 1) * dilation[0] + 1, pads[2], vertical) ||
      !fit(input->dims[2], output->dims[2], window->stride_w,
           (uint64_t)(filter[1] - 1) * dilation[1] + 1, pads[0], horizontal)) {
    return 0;
  }
  window->top = vertical[0];
  window->bottom = vertical[1];
  window->left = horizontal[0];
  window->right = horizontal[1];
  return 1;
}
