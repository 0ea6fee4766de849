/* CONCATENATION and SPLIT: several tensors in or out. */
#include "backends/xnnpack_rules.h"

enum { MOST_PARTS = 5 };

/* Returns whether XNNPACK can convert between the scales; it does not check itself. */
static int converts(const struct np_operand *from, const struct np_operand *to) {
  const float ratio = from->scale / to->scale;
  return ratio >= 0x1.0p-8f && ratio <= 0x1.0p+7f;
}

/* Defines the value of an input, converted to the output's scale and zero point if they differ. */
static enum xnn_status part(struct np_xnn_graph *graph, const struct np_call *call, uint32_t input,
                            uint32_t *id) {
  const struct np_operand *from = np_in_operand(call, input);
  const struct np_operand *to = np_out_operand(call, 0);
  const struct np_tensor *tensor = np_in(call, input);
  NP_XNN_TRY(np_xnn_in(graph, call, input, id));
  if (np_xnn_same_values(call, input, 0)) {
    return xnn_status_success;
  }
  NP_XNN_NEED(from->type == to->type && converts(from, to));
  size_t dims[XNN_MAX_TENSOR_DIMS];
  for (uint32_t d = 0; d < tensor->rank; d++) {
    dims[d] = tensor->dims[d];
  }
  const uint32_t given = *id;
  NP_XNN_TRY(np_xnn_inner(graph, to, tensor->rank, dims, id));
  return xnn_define_unary(graph->subgraph, xnn_unary_convert, NULL, given, *id, 0);
}

static enum xnn_status concatenation(struct np_xnn_graph *graph, const struct np_call *call,
                                     const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t n = call->operation->n_inputs - 1;
  xnn_subgraph_t to = graph->subgraph;
  int32_t axis;
  uint32_t in[MOST_PARTS], out;
  NP_XNN_NEED(n >= 2 && n <= MOST_PARTS && np_xnn_i32(call, n, &axis));
  for (uint32_t i = 0; i < n; i++) {
    NP_XNN_TRY(part(graph, call, i, &in[i]));
  }
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  NP_XNN_NEED(axis >= 0 && axis < (int32_t)np_out(call, 0)->rank);
  switch (n) {
  case 2:
    return xnn_define_concatenate2(to, axis, in[0], in[1], out, 0);
  case 3:
    return xnn_define_concatenate3(to, axis, in[0], in[1], in[2], out, 0);
  case 4:
    return xnn_define_concatenate4(to, axis, in[0], in[1], in[2], in[3], out, 0);
  default:
    return xnn_define_concatenate5(to, axis, in[0], in[1], in[2], in[3], in[4], out, 0);
  }
}

/* Defines a slice for each output. */
static enum xnn_status split(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *input = np_in(call, 0);
  int32_t given;
  uint32_t axis, in, out;
  size_t first[XNN_MAX_TENSOR_DIMS] = {0};
  size_t sizes[XNN_MAX_TENSOR_DIMS];
  NP_XNN_NEED(np_xnn_i32(call, 1, &given) && np_axis(call, given, input->rank, &axis) == NP_OK);
  NP_XNN_NEED(input->rank <= XNN_MAX_TENSOR_DIMS);
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    const struct np_tensor *output = np_out(call, i);
    NP_XNN_NEED(output->rank == input->rank && np_xnn_same_values(call, 0, i));
    for (uint32_t d = 0; d < output->rank; d++) {
      sizes[d] = output->dims[d];
    }
    NP_XNN_TRY(np_xnn_out(graph, call, i, &out));
    NP_XNN_TRY(xnn_define_static_slice(graph->subgraph, output->rank, first, sizes, in, out, 0));
    first[axis] += output->dims[axis];
  }
  return xnn_status_success;
}

const struct np_xnn_rule np_xnn_join_rules[] = {
    {ANEURALNETWORKS_CONCATENATION, NP_XNN_MOVES, 0, concatenation},
    {ANEURALNETWORKS_SPLIT, NP_XNN_MOVES, 0, split},
    {0, 0, 0, NULL},
};
