/* CONCATENATION and SPLIT: several tensors in or out. */
#include "backends/xnnpack_rules.h"

enum { MOST_PARTS = 5 };

static enum xnn_status concatenation(struct np_xnn_graph *graph, const struct np_call *call,
                                     const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t n = call->operation->n_inputs - 1;
  xnn_subgraph_t to = graph->subgraph;
  int32_t axis;
  uint32_t in[MOST_PARTS], out;
  NP_XNN_NEED(n >= 2 && n <= MOST_PARTS && np_xnn_i32(call, n, &axis));
  for (uint32_t i = 0; i < n; i++) {
    NP_XNN_NEED(np_xnn_same_values(call, i, 0));
    NP_XNN_TRY(np_xnn_in(graph, call, i, &in[i]));
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

static enum xnn_status split(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  (void)rule;
  const uint32_t n = call->operation->n_outputs;
  int32_t axis;
  uint32_t in, out[4];
  NP_XNN_NEED(n >= 2 && n <= 4 && np_xnn_i32(call, 1, &axis));
  const int32_t rank = (int32_t)np_in(call, 0)->rank;
  NP_XNN_NEED(axis >= -rank && axis < rank);
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  for (uint32_t i = 0; i < n; i++) {
    NP_XNN_NEED(np_xnn_same_values(call, 0, i));
    NP_XNN_TRY(np_xnn_out(graph, call, i, &out[i]));
  }
  switch (n) {
  case 2:
    return xnn_define_even_split2(graph->subgraph, axis, in, out[0], out[1], 0);
  case 3:
    return xnn_define_even_split3(graph->subgraph, axis, in, out[0], out[1], out[2], 0);
  default:
    return xnn_define_even_split4(graph->subgraph, axis, in, out[0], out[1], out[2], out[3], 0);
  }
}

const struct np_xnn_rule np_xnn_join_rules[] = {
    {ANEURALNETWORKS_CONCATENATION, NP_FLOATS | NP_QUANT8, 0, concatenation},
    {ANEURALNETWORKS_SPLIT, NP_FLOATS | NP_QUANT8, 0, split},
    {0, 0, 0, NULL},
};
