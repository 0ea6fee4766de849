/* Convolutions and FULLY_CONNECTED, whose constant weights and bias XNNPACK packs once; and
 * BATCH_MATMUL. */
#include "backends/xnnpack_rules.h"

enum { PLAIN, GROUPED };

/* Reads two optional dilations, width first; the default is 1. */
static int read_dilations(const struct np_call *call, uint32_t input, uint32_t dilation[2]) {
  dilation[0] = 1;
  dilation[1] = 1;
  if (!np_has(call, input)) {
    return 1;
  }
  int32_t width;
  int32_t height;
  if (!np_xnn_i32(call, input, &width) || !np_xnn_i32(call, input + 1, &height) || width < 1 ||
      height < 1) {
    return 0;
  }
  dilation[0] = (uint32_t)height;
  dilation[1] = (uint32_t)width;
  return 1;
}

/* Inputs before the fuse code: data, weights, bias, then paddings and strides. */
static uint32_t after_strides(const struct np_call *call) {
  return call->form->variant == NP_EXPLICIT ? 9 : 6;
}

static enum xnn_status conv(struct np_xnn_graph *graph, const struct np_call *call,
                            const struct np_xnn_rule *rule) {
  const struct np_tensor *weights = np_in(call, 1);
  const uint32_t next = after_strides(call);
  int32_t groups = 1;
  uint32_t dilation[2] = {1, 1};
  uint32_t fuse = next;
  if (rule->extra == GROUPED) {
    NP_XNN_NEED(np_xnn_i32(call, next, &groups));
    fuse = next + 1;
  } else {
    NP_XNN_NEED(read_dilations(call, next + 2, dilation));
  }
  NP_XNN_NEED(groups > 0 && weights->rank == 4 && weights->dims[0] % (uint32_t)groups == 0);
  struct np_xnn_window window;
  float low;
  float high;
  NP_XNN_NEED(np_xnn_read_window(call, 3, &weights->dims[1], dilation, &window));
  NP_XNN_NEED(np_xnn_fuse(call, fuse, &low, &high));
  uint32_t in, filter, bias, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_weights(graph, call, 1, &filter, &bias));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_convolution_2d(graph->subgraph, window.top, window.right, window.bottom,
                                   window.left, weights->dims[1], weights->dims[2], window.stride_h,
                                   window.stride_w, dilation[0], dilation[1], (uint32_t)groups,
                                   weights->dims[3], weights->dims[0] / (uint32_t)groups, low, high,
                                   in, filter, bias, out, 0);
}

static enum xnn_status depthwise(struct np_xnn_graph *graph, const struct np_call *call,
                                 const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *weights = np_in(call, 1);
  const uint32_t next = after_strides(call);
  int32_t multiplier;
  uint32_t dilation[2];
  struct np_xnn_window window;
  float low;
  float high;
  NP_XNN_NEED(np_xnn_i32(call, next, &multiplier) && multiplier > 0);
  NP_XNN_NEED(weights->rank == 4 && np_in(call, 0)->rank == 4);
  const uint32_t channels = np_in(call, 0)->dims[3];
  NP_XNN_NEED(np_mul_saturated(channels, (uint32_t)multiplier) == weights->dims[3]);
  NP_XNN_NEED(read_dilations(call, next + 3, dilation));
  NP_XNN_NEED(np_xnn_read_window(call, 3, &weights->dims[1], dilation, &window));
  NP_XNN_NEED(np_xnn_fuse(call, next + 1, &low, &high));
  uint32_t in, filter, bias, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_weights(graph, call, 1, &filter, &bias));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_depthwise_convolution_2d(
      graph->subgraph, window.top, window.right, window.bottom, window.left, weights->dims[1],
      weights->dims[2], window.stride_h, window.stride_w, dilation[0], dilation[1],
      (uint32_t)multiplier, channels, low, high, in, filter, bias, out, 0);
}

/* Computes how much a transposed convolution cuts off an axis' full output, stride * (in - 1) +
 * filter, before and after; `added` is appended if the full output is too small. */
static int cut(uint32_t in, uint32_t out, uint32_t stride, uint32_t filter, int64_t before,
               uint32_t pads[2], uint32_t *added) {
  const int64_t whole = (int64_t)stride * (in - 1) + filter;
  const int64_t excess = whole - (int64_t)out;
  const int64_t first = before >= 0 ? before : excess > 0 ? excess / 2 : 0;
  const int64_t last = excess - first;
  if (first > UINT32_MAX || (last < 0 && -last >= stride)) {
    return 0;
  }
  pads[0] = (uint32_t)first;
  pads[1] = (uint32_t)(last > 0 ? last : 0);
  *added = (uint32_t)(last < 0 ? -last : 0);
  return 1;
}

static enum xnn_status transposed(struct np_xnn_graph *graph, const struct np_call *call,
                                  const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *output = np_out(call, 0);
  const int is_explicit = call->form->variant == NP_EXPLICIT;
  /* Implicit: the output's shape, the padding code, strides. */
  const uint32_t strides = is_explicit ? 7 : 5;
  int32_t left = -1;
  int32_t top = -1;
  int32_t stride_w, stride_h;
  if (is_explicit) {
    NP_XNN_NEED(np_xnn_i32(call, 3, &left) && np_xnn_i32(call, 5, &top) && left >= 0 && top >= 0);
  } else {
    int32_t code;
    NP_XNN_NEED(np_xnn_i32(call, 4, &code));
    left = code == ANEURALNETWORKS_PADDING_SAME ? -1 : 0;
    top = left;
  }
  NP_XNN_NEED(np_xnn_i32(call, strides, &stride_w) && np_xnn_i32(call, strides + 1, &stride_h));
  NP_XNN_NEED(stride_w > 0 && stride_h > 0 && input->rank == 4 && weights->rank == 4 &&
              output->rank == 4 && output->elements > 0);
  NP_XNN_NEED(np_xnn_pointers_fit(call, &weights->dims[1]));
  uint32_t vertical[2], horizontal[2], more_h, more_w;
  NP_XNN_NEED(cut(input->dims[1], output->dims[1], (uint32_t)stride_h, weights->dims[1], top,
                  vertical, &more_h));
  NP_XNN_NEED(cut(input->dims[2], output->dims[2], (uint32_t)stride_w, weights->dims[2], left,
                  horizontal, &more_w));
  float low;
  float high;
  NP_XNN_NEED(np_xnn_fuse(call, strides + 2, &low, &high));
  uint32_t in, filter, bias, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_weights(graph, call, 1, &filter, &bias));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_deconvolution_2d(
      graph->subgraph, vertical[0], horizontal[1], vertical[1], horizontal[0], more_h, more_w,
      weights->dims[1], weights->dims[2], (uint32_t)stride_h, (uint32_t)stride_w, 1, 1, 1,
      weights->dims[3], weights->dims[0], low, high, in, filter, bias, out, 0);
}

static enum xnn_status fully_connected(struct np_xnn_graph *graph, const struct np_call *call,
                                       const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *input = np_in(call, 0);
  float low;
  float high;
  NP_XNN_NEED(np_xnn_fuse(call, 3, &low, &high));
  uint32_t in, filter, bias, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_weights(graph, call, 1, &filter, &bias));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  const int flat = input->rank == 2 && input->dims[1] == np_in(call, 1)->dims[1];
  return xnn_define_fully_connected(graph->subgraph, low, high, in, filter, bias, out,
                                    flat ? 0 : XNN_FLAG_TENSORFLOW_RESHAPE_2D);
}

/* Swaps the last two axes of the first matrix. */
static enum xnn_status swap(struct np_xnn_graph *graph, const struct np_call *call, uint32_t *id) {
  const struct np_tensor *tensor = np_in(call, 0);
  const uint32_t rank = tensor->rank;
  size_t dims[XNN_MAX_TENSOR_DIMS];
  size_t axes[XNN_MAX_TENSOR_DIMS];
  for (uint32_t d = 0; d < rank; d++) {
    axes[d] = d + 2 < rank ? d : 2 * rank - 3 - d;
    dims[d] = tensor->dims[axes[d]];
  }
  const uint32_t from = *id;
  NP_XNN_TRY(np_xnn_inner(graph, np_in_operand(call, 0), rank, dims, id));
  return xnn_define_static_transpose(graph->subgraph, rank, axes, from, *id, 0);
}

static enum xnn_status matmul(struct np_xnn_graph *graph, const struct np_call *call,
                              const struct np_xnn_rule *rule) {
  (void)rule;
  int swap_first, swap_second;
  uint32_t a, b, out;
  NP_XNN_NEED(np_xnn_bool(call, 2, &swap_first) && np_xnn_bool(call, 3, &swap_second));
  NP_XNN_NEED(np_in(call, 0)->rank >= 2 && np_in(call, 1)->rank >= 2 &&
              np_in(call, 0)->rank <= XNN_MAX_TENSOR_DIMS);
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &a));
  if (swap_first) {
    NP_XNN_TRY(swap(graph, call, &a));
  }
  NP_XNN_TRY(np_xnn_in(graph, call, 1, &b));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_batch_matrix_multiply(graph->subgraph, a, b, out,
                                          swap_second ? XNN_FLAG_TRANSPOSE_B : 0);
}

#define TYPES (NP_FLOATS | NP_QUANT8)

const struct np_xnn_rule np_xnn_conv_rules[] = {
    {ANEURALNETWORKS_CONV_2D, TYPES, PLAIN, conv},
    {ANEURALNETWORKS_GROUPED_CONV_2D, TYPES, GROUPED, conv},
    {ANEURALNETWORKS_DEPTHWISE_CONV_2D, TYPES, 0, depthwise},
    {ANEURALNETWORKS_TRANSPOSE_CONV_2D, TYPES, 0, transposed},
    {ANEURALNETWORKS_FULLY_CONNECTED, TYPES, 0, fully_connected},
    {ANEURALNETWORKS_BATCH_MATMUL, NP_FLOATS, 0, matmul},
    {0, 0, 0, NULL},
};
