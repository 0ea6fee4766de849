/* Operations that move values of one tensor. */
#include <math.h>

#include "backends/xnnpack_rules.h"

enum { TO_DEPTH, TO_SPACE };

static enum xnn_status reshape(struct np_xnn_graph *graph, const struct np_call *call,
                               const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *output = np_out(call, 0);
  size_t dims[XNN_MAX_TENSOR_DIMS];
  uint32_t in, out;
  NP_XNN_NEED(np_xnn_same_values(call, 0, 0));
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  for (uint32_t d = 0; d < output->rank; d++) {
    dims[d] = output->dims[d];
  }
  return xnn_define_static_reshape(graph->subgraph, output->rank, dims, in, out, 0);
}

static enum xnn_status transpose(struct np_xnn_graph *graph, const struct np_call *call,
                                 const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t rank = np_in(call, 0)->rank;
  const int32_t *order = NULL;
  size_t n = 0;
  size_t axes[XNN_MAX_TENSOR_DIMS];
  NP_XNN_NEED(rank > 0 && rank <= XNN_MAX_TENSOR_DIMS && np_xnn_same_values(call, 0, 0));
  const int reversed = !np_has(call, 1);
  NP_XNN_NEED(reversed || (np_xnn_list(call, 1, &order, &n) && n == rank));
  for (uint32_t d = 0; d < rank; d++) {
    NP_XNN_NEED(reversed || (order[d] >= 0 && order[d] < (int32_t)rank));
    axes[d] = reversed ? rank - 1 - d : (size_t)order[d];
  }
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_static_transpose(graph->subgraph, rank, axes, in, out, 0);
}

/* PAD, and PAD_V2 of floats only, since its value for quantised tensors is a number of steps. */
static enum xnn_status pad(struct np_xnn_graph *graph, const struct np_call *call,
                           const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t rank = np_in(call, 0)->rank;
  const int32_t *pads;
  size_t n;
  size_t before[XNN_MAX_TENSOR_DIMS];
  size_t after[XNN_MAX_TENSOR_DIMS];
  float fill = 0.0f;
  NP_XNN_NEED(rank > 0 && rank <= XNN_MAX_TENSOR_DIMS && np_xnn_same_values(call, 0, 0));
  NP_XNN_NEED(np_xnn_list(call, 1, &pads, &n) && n == 2 * (size_t)rank);
  NP_XNN_NEED(!np_has(call, 2) || (np_xnn_f32(call, 2, &fill) && isfinite(fill)));
  for (uint32_t d = 0; d < rank; d++) {
    NP_XNN_NEED(pads[2 * d] >= 0 && pads[2 * d + 1] >= 0);
    before[d] = (size_t)pads[2 * d];
    after[d] = (size_t)pads[2 * d + 1];
  }
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_static_constant_pad(graph->subgraph, before, after, fill, in, out, 0);
}

static enum xnn_status cut(struct np_xnn_graph *graph, const struct np_call *call,
                           const size_t *first) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  size_t sizes[XNN_MAX_TENSOR_DIMS];
  NP_XNN_NEED(input->rank == output->rank && np_xnn_same_values(call, 0, 0));
  for (uint32_t d = 0; d < output->rank; d++) {
    sizes[d] = output->dims[d];
    NP_XNN_NEED(first[d] <= input->dims[d] && sizes[d] <= input->dims[d] - first[d]);
  }
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_static_slice(graph->subgraph, output->rank, first, sizes, in, out, 0);
}

static enum xnn_status slice(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t rank = np_in(call, 0)->rank;
  const int32_t *begin;
  size_t n;
  size_t first[XNN_MAX_TENSOR_DIMS];
  NP_XNN_NEED(rank > 0 && rank <= XNN_MAX_TENSOR_DIMS);
  NP_XNN_NEED(np_xnn_list(call, 1, &begin, &n) && n == rank);
  for (uint32_t d = 0; d < rank; d++) {
    NP_XNN_NEED(begin[d] >= 0);
    first[d] = (size_t)begin[d];
  }
  return cut(graph, call, first);
}

/* STRIDED_SLICE with steps of 1 that drops no axis. */
static enum xnn_status strided(struct np_xnn_graph *graph, const struct np_call *call,
                               const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *begin;
  const int32_t *steps;
  size_t n;
  size_t n_steps;
  int32_t begin_mask, shrink_mask;
  size_t first[XNN_MAX_TENSOR_DIMS];
  NP_XNN_NEED(input->rank > 0 && input->rank <= XNN_MAX_TENSOR_DIMS);
  NP_XNN_NEED(np_xnn_list(call, 1, &begin, &n) && np_xnn_list(call, 3, &steps, &n_steps));
  NP_XNN_NEED(n == input->rank && n_steps == input->rank);
  NP_XNN_NEED(np_xnn_i32(call, 4, &begin_mask) && np_xnn_i32(call, 6, &shrink_mask));
  NP_XNN_NEED(shrink_mask == 0);
  for (uint32_t d = 0; d < input->rank; d++) {
    NP_XNN_NEED(steps[d] == 1);
    const int64_t wrapped = begin[d] < 0 ? (int64_t)begin[d] + input->dims[d] : begin[d];
    first[d] = (begin_mask >> d & 1) != 0 || wrapped < 0 ? 0 : (size_t)wrapped;
  }
  return cut(graph, call, first);
}

static enum xnn_status blocks(struct np_xnn_graph *graph, const struct np_call *call,
                              const struct np_xnn_rule *rule) {
  int32_t size;
  NP_XNN_NEED(np_xnn_i32(call, 1, &size) && size > 1 && np_xnn_same_values(call, 0, 0));
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return rule->extra == TO_DEPTH
             ? xnn_define_space_to_depth_2d(graph->subgraph, (uint32_t)size, in, out, 0)
             : xnn_define_depth_to_space_2d(graph->subgraph, (uint32_t)size, in, out, 0);
}

#define TYPES NP_XNN_MOVES

const struct np_xnn_rule np_xnn_shape_rules[] = {
    {ANEURALNETWORKS_RESHAPE, TYPES, 0, reshape},
    {ANEURALNETWORKS_SQUEEZE, TYPES, 0, reshape},
    {ANEURALNETWORKS_EXPAND_DIMS, TYPES, 0, reshape},
    {ANEURALNETWORKS_TRANSPOSE, TYPES, 0, transpose},
    {ANEURALNETWORKS_PAD, TYPES, 0, pad},
    {ANEURALNETWORKS_PAD_V2, NP_FLOATS, 0, pad},
    {ANEURALNETWORKS_SLICE, TYPES, 0, slice},
    {ANEURALNETWORKS_STRIDED_SLICE, TYPES, 0, strided},
    {ANEURALNETWORKS_SPACE_TO_DEPTH, TYPES, TO_DEPTH, blocks},
    {ANEURALNETWORKS_DEPTH_TO_SPACE, TYPES, TO_SPACE, blocks},
    {0, 0, 0, NULL},
};
