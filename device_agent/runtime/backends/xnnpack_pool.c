/* AVERAGE_POOL_2D and MAX_POOL_2D. */
#include <math.h>

#include "backends/xnnpack_rules.h"

enum { AVERAGE, MAXIMUM };

/* Returns whether an average is over the whole image: as a mean XNNPACK computes it faster, and
 * supports integers only so. */
static int is_mean(const struct np_call *call, const struct np_xnn_window *window,
                   const uint32_t filter[2], float low, float high) {
  const uint32_t *dims = np_in(call, 0)->dims;
  return filter[0] == dims[1] && filter[1] == dims[2] && np_out(call, 0)->dims[1] == 1 &&
         np_out(call, 0)->dims[2] == 1 &&
         (window->top | window->bottom | window->left | window->right) == 0 && isinf(low) &&
         isinf(high);
}

static enum xnn_status mean(struct np_xnn_graph *graph, uint32_t in, uint32_t out) {
  static const size_t AXES[2] = {1, 2};
  return xnn_define_static_reduce(graph->subgraph, xnn_reduce_mean, 2, AXES, in, out,
                                  XNN_FLAG_KEEP_DIMS);
}

static enum xnn_status pool(struct np_xnn_graph *graph, const struct np_call *call,
                            const struct np_xnn_rule *rule) {
  static const uint32_t DILATION[2] = {1, 1};
  const uint32_t next = call->form->variant == NP_EXPLICIT ? 7 : 4;
  int32_t width, height;
  struct np_xnn_window window;
  float low;
  float high;
  NP_XNN_NEED(np_xnn_i32(call, next, &width) && np_xnn_i32(call, next + 1, &height));
  NP_XNN_NEED(width > 0 && height > 0 && np_mul_saturated((size_t)width, (size_t)height) > 1);
  const uint32_t filter[2] = {(uint32_t)height, (uint32_t)width};
  NP_XNN_NEED(np_xnn_read_window(call, 1, filter, DILATION, &window));
  NP_XNN_NEED(np_xnn_fuse(call, next + 2, &low, &high) && np_xnn_same_values(call, 0, 0));
  /* Every window must have a cell inside the image, and XNNPACK's maxima allow no gaps between
   * windows. */
  NP_XNN_NEED(window.top < filter[0] && window.bottom < filter[0] && window.left < filter[1] &&
              window.right < filter[1]);
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  if (rule->extra == AVERAGE && is_mean(call, &window, filter, low, high)) {
    return mean(graph, in, out);
  }
  if (rule->extra == AVERAGE) {
    NP_XNN_NEED(np_in_operand(call, 0)->type == NP_TYPE_TENSOR_FLOAT32);
    return xnn_define_average_pooling_2d(graph->subgraph, window.top, window.right, window.bottom,
                                         window.left, filter[0], filter[1], window.stride_h,
                                         window.stride_w, low, high, in, out, 0);
  }
  return xnn_define_max_pooling_2d(graph->subgraph, window.top, window.right, window.bottom,
                                   window.left, filter[0], filter[1], window.stride_h,
                                   window.stride_w, 1, 1, low, high, in, out, 0);
}

const struct np_xnn_rule np_xnn_pool_rules[] = {
    {ANEURALNETWORKS_AVERAGE_POOL_2D, NP_FLOATS | NP_QUANT8, AVERAGE, pool},
    {ANEURALNETWORKS_MAX_POOL_2D, NP_FLOATS | NP_QUANT8, MAXIMUM, pool},
    {0, 0, 0, NULL},
};
