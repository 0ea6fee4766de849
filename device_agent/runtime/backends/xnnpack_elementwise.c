/* Operations on each element, and SOFTMAX. */
#include <math.h>

#include "backends/xnnpack_rules.h"

/* Returns whether XNNPACK's fixed-point arithmetic is valid for these scales; its release build
 * does not check. */
static int scales_fit(const struct np_call *call, int kind) {
  const struct np_operand *output = np_out_operand(call, 0);
  if (output->type == NP_TYPE_TENSOR_FLOAT32) {
    return 1;
  }
  const float a = np_in_operand(call, 0)->scale / output->scale;
  const float b = np_in_operand(call, 1)->scale;
  if (kind == xnn_binary_multiply) {
    return a * b >= 0x1.0p-16f && a * b < 0x1.0p+8f;
  }
  const float ratio = b / output->scale;
  return a >= 0x1.0p-10f && a < 0x1.0p+8f && ratio >= 0x1.0p-10f && ratio < 0x1.0p+8f;
}

static enum xnn_status binary(struct np_xnn_graph *graph, const struct np_call *call,
                              const struct np_xnn_rule *rule) {
  struct xnn_binary_params limits = {-INFINITY, INFINITY};
  const int fused = rule->extra == xnn_binary_add || rule->extra == xnn_binary_subtract ||
                    rule->extra == xnn_binary_multiply || rule->extra == xnn_binary_divide;
  if (fused) {
    float low;
    float high;
    NP_XNN_NEED(np_xnn_fuse(call, 2, &low, &high));
    limits.output_min = (double)low;
    limits.output_max = (double)high;
  }
  NP_XNN_NEED(np_in(call, 0)->rank > 0 && np_in(call, 1)->rank > 0);
  NP_XNN_NEED(scales_fit(call, rule->extra));
  uint32_t a, b, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &a));
  NP_XNN_TRY(np_xnn_in(graph, call, 1, &b));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_binary(graph->subgraph, (enum xnn_binary_operator)rule->extra, &limits, a, b,
                           out, 0);
}

static enum xnn_status unary_with(struct np_xnn_graph *graph, const struct np_call *call,
                                  enum xnn_unary_operator operator,
                                  const union xnn_unary_params *params) {
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_unary(graph->subgraph, operator, params, in, out, 0);
}

static enum xnn_status unary(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  return unary_with(graph, call, (enum xnn_unary_operator)rule->extra, NULL);
}

/* 1 / sqrt(x): XNNPACK's own, an estimate that Newton's method refines, is NaN for 0. */
static enum xnn_status rsqrt(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  (void)rule;
  const struct np_tensor *tensor = np_in(call, 0);
  NP_XNN_NEED(tensor->rank > 0);
  size_t dims[NP_MAX_RANK];
  for (uint32_t d = 0; d < tensor->rank; d++) {
    dims[d] = tensor->dims[d];
  }
  const size_t single = 1;
  float *one = np_xnn_room(graph, sizeof *one);
  if (one == NULL) {
    return xnn_status_out_of_memory;
  }
  *one = 1.0f;
  uint32_t in, root, dividend, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_inner(graph, np_in_operand(call, 0), tensor->rank, dims, &root));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  NP_XNN_TRY(xnn_define_tensor_value(graph->subgraph, xnn_datatype_fp32, 1, &single, one,
                                     XNN_INVALID_VALUE_ID, 0, &dividend));
  NP_XNN_TRY(xnn_define_unary(graph->subgraph, xnn_unary_square_root, NULL, in, root, 0));
  return xnn_define_binary(graph->subgraph, xnn_binary_divide, NULL, dividend, root, out, 0);
}

/* Casts between the two float types, as lowering inserts around arithmetic on FLOAT16. */
static enum xnn_status cast(struct np_xnn_graph *graph, const struct np_call *call,
                            const struct np_xnn_rule *rule) {
  (void)rule;
  const int32_t from = np_in_operand(call, 0)->type;
  const int32_t to = np_out_operand(call, 0)->type;
  NP_XNN_NEED((from == NP_TYPE_TENSOR_FLOAT16 && to == NP_TYPE_TENSOR_FLOAT32) ||
              (from == NP_TYPE_TENSOR_FLOAT32 && to == NP_TYPE_TENSOR_FLOAT16));
  return unary_with(graph, call, xnn_unary_convert, NULL);
}

/* RELU, RELU1 and RELU6: `extra` is the equivalent fuse code. */
static enum xnn_status clamp(struct np_xnn_graph *graph, const struct np_call *call,
                             const struct np_xnn_rule *rule) {
  union xnn_unary_params params;
  NP_XNN_NEED(np_xnn_same_values(call, 0, 0));
  NP_XNN_NEED(np_xnn_limits(call, rule->extra, &params.clamp.min, &params.clamp.max));
  return unary_with(graph, call, xnn_unary_clamp, &params);
}

static enum xnn_status elu(struct np_xnn_graph *graph, const struct np_call *call,
                           const struct np_xnn_rule *rule) {
  (void)rule;
  union xnn_unary_params params;
  NP_XNN_NEED(np_xnn_f32(call, 1, &params.elu.alpha) && isnormal(params.elu.alpha) &&
              params.elu.alpha > 0.0f);
  return unary_with(graph, call, xnn_unary_elu, &params);
}

/* XNNPACK supports only the last axis and beta 1. */
static enum xnn_status softmax(struct np_xnn_graph *graph, const struct np_call *call,
                               const struct np_xnn_rule *rule) {
  (void)rule;
  float beta;
  int32_t axis = -1;
  NP_XNN_NEED(np_xnn_f32(call, 1, &beta) && beta == 1.0f);
  NP_XNN_NEED(!np_has(call, 2) || np_xnn_i32(call, 2, &axis));
  NP_XNN_NEED(axis == -1 || axis == (int32_t)np_in(call, 0)->rank - 1);
  uint32_t in, out;
  NP_XNN_TRY(np_xnn_in(graph, call, 0, &in));
  NP_XNN_TRY(np_xnn_out(graph, call, 0, &out));
  return xnn_define_softmax(graph->subgraph, in, out, 0);
}

const struct np_xnn_rule np_xnn_elementwise_rules[] = {
    {ANEURALNETWORKS_ADD, NP_FLOATS | NP_QUANT8, xnn_binary_add, binary},
    {ANEURALNETWORKS_SUB, NP_FLOATS | NP_QUANT8, xnn_binary_subtract, binary},
    {ANEURALNETWORKS_MUL, NP_FLOATS | NP_QUANT8, xnn_binary_multiply, binary},
    {ANEURALNETWORKS_DIV, NP_FLOATS, xnn_binary_divide, binary},
    {ANEURALNETWORKS_MAXIMUM, NP_FLOATS, xnn_binary_maximum, binary},
    {ANEURALNETWORKS_MINIMUM, NP_FLOATS, xnn_binary_minimum, binary},
    {ANEURALNETWORKS_PRELU, NP_FLOATS, xnn_binary_prelu, binary},
    {ANEURALNETWORKS_RELU, NP_FLOATS | NP_QUANT8, ANEURALNETWORKS_FUSED_RELU, clamp},
    {ANEURALNETWORKS_RELU1, NP_FLOATS | NP_QUANT8, ANEURALNETWORKS_FUSED_RELU1, clamp},
    {ANEURALNETWORKS_RELU6, NP_FLOATS | NP_QUANT8, ANEURALNETWORKS_FUSED_RELU6, clamp},
    {ANEURALNETWORKS_LOGISTIC, NP_FLOATS | NP_QUANT8, xnn_unary_sigmoid, unary},
    {ANEURALNETWORKS_TANH, NP_FLOATS | NP_QUANT8, xnn_unary_tanh, unary},
    {ANEURALNETWORKS_HARD_SWISH, NP_FLOATS | NP_QUANT8, xnn_unary_hardswish, unary},
    {ANEURALNETWORKS_ABS, NP_FLOATS, xnn_unary_abs, unary},
    {ANEURALNETWORKS_NEG, NP_FLOATS, xnn_unary_negate, unary},
    {ANEURALNETWORKS_SQRT, NP_FLOATS, xnn_unary_square_root, unary},
    {ANEURALNETWORKS_RSQRT, NP_FLOATS, 0, rsqrt},
    /* not LOG: XNNPACK's of infinity is 88.4 by some of its kernels */
    {ANEURALNETWORKS_EXP, NP_FLOATS, xnn_unary_exp, unary},
    {ANEURALNETWORKS_FLOOR, NP_FLOATS, xnn_unary_floor, unary},
    {ANEURALNETWORKS_QUANTIZE, NP_FLOATS, xnn_unary_convert, unary},
    {ANEURALNETWORKS_DEQUANTIZE, NP_QUANT8, xnn_unary_convert, unary},
    {ANEURALNETWORKS_CAST, NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16), 0, cast},
    {ANEURALNETWORKS_ELU, NP_FLOATS, 0, elu},
    {ANEURALNETWORKS_SOFTMAX, NP_FLOATS, 0, softmax},
    {0, 0, 0, NULL},
};
