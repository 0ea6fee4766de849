/* RESIZE_BILINEAR, and reductions over axes. */
#include "backends/xnnpack_rules.h"

/* Inputs 1 and 2 are the size or scales, 3 is the layout, followed by align_corners and
 * half_pixel_centers. */
static enum xnn_status resize(struct np_xnn_graph *graph, const struct np_call *call,
                              const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *output = np_out(call, 0);
  int aligned;
  int centred;
  NP_XNN_NEED(call->form->variant == NP_BY_SIZE && np_xnn_same_values(call, 0, 0));
  NP_XNN_NEED(np_xnn_bool(call, 4, &aligned) && np_xnn_bool(call, 5, &centred));
  NP_XNN_NEED(!(aligned && centred) && output->rank == 4);
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  const uint32_t flags = aligned   ? XNN_FLAG_ALIGN_CORNERS
                         : centred ? 0
                                   : XNN_FLAG_TENSORFLOW_LEGACY_MODE;
  return xnn_define_static_resize_bilinear_2d(graph->subgraph, output->dims[1], output->dims[2], in,
                                              out, flags);
}

/* Reads a list's axes, each once and ascending. Returns how many, 0 if one is not an axis. */
static size_t read_axes(const struct np_call *call, uint32_t rank, size_t *axes) {
  const int32_t *list;
  size_t n;
  uint32_t named = 0;
  if (rank == 0 || rank > XNN_MAX_TENSOR_DIMS || !np_xnn_list(call, 1, &list, &n)) {
    return 0;
  }
  for (size_t i = 0; i < n; i++) {
    uint32_t axis;
    if (np_axis(call, list[i], rank, &axis) != NP_OK) {
      return 0;
    }
    named |= 1u << axis;
  }
  size_t count = 0;
  for (uint32_t axis = 0; axis < rank; axis++) {
    if ((named >> axis & 1) != 0) {
      axes[count++] = axis;
    }
  }
  return count;
}

/* MEAN has an INT32 that keeps axes of size 1, REDUCE_SUM a BOOL. */
static enum xnn_status reduce(struct np_xnn_graph *graph, const struct np_call *call,
                              const struct np_xnn_rule *rule) {
  size_t axes[XNN_MAX_TENSOR_DIMS];
  const size_t n = read_axes(call, np_in(call, 0)->rank, axes);
  int32_t keep = 0;
  int keeps = 0;
  NP_XNN_NEED(n > 0);
  NP_XNN_NEED(rule->extra == xnn_reduce_mean ? np_xnn_i32(call, 2, &keep)
                                             : np_has(call, 2) && np_xnn_bool(call, 2, &keeps));
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_static_reduce(graph->subgraph, (enum xnn_reduce_operator)rule->extra, n, axes,
                                  in, out, keep > 0 || keeps ? XNN_FLAG_KEEP_DIMS : 0);
}

const struct np_xnn_rule np_xnn_image_rules[] = {
    {ANEURALNETWORKS_RESIZE_BILINEAR, NP_FLOATS | NP_QUANT8, 0, resize},
    {ANEURALNETWORKS_MEAN, NP_FLOATS | NP_QUANT8, xnn_reduce_mean, reduce},
    {ANEURALNETWORKS_REDUCE_SUM, NP_FLOATS, xnn_reduce_sum, reduce},
    {0, 0, 0, NULL},
};
