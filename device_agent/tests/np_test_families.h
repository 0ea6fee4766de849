/* One small model of every kernel family. */
#ifndef NP_TEST_FAMILIES_H
#define NP_TEST_FAMILIES_H

#include "np_test_model.h"

static float FAMILY_WEIGHTS[4096];

static inline uint32_t family_weights(struct model *model, int rank, uint32_t a, uint32_t b,
                                      uint32_t c, uint32_t d) {
  const uint32_t index = model_tensor(model, NP_CONSTANT, rank, a, b, c, d);
  model_value(model, index, FAMILY_WEIGHTS);
  return index;
}

/* Builds the model of family `which`; returns 0 if there are no more. */
static inline int family_model(struct model *m, uint32_t which) {
  static const int32_t LIST[8] = {0, 1, 1, 2, 0, 1, 2, 1};
  static const int32_t ORDER[4] = {0, 3, 1, 2};
  static const int32_t ENDS[4] = {1, -1, 4, 6};
  static const int32_t ONES[4] = {1, 2, -1, 1};
  const uint32_t in = model_tensor(m, NP_INPUT, 4, 1u, 4u, 5u, 6u);
  const uint32_t mid = model_tensor(m, NP_TEMPORARY, 0);
  const uint32_t out = model_tensor(m, NP_OUTPUT, 0);
  const uint32_t one = model_i32(m, 1);
  const uint32_t two = model_i32(m, 2);
  const uint32_t zero = model_i32(m, 0);
  const uint32_t no = model_bool(m, 0);
  const uint32_t bias = family_weights(m, 1, 6, 0, 0, 0);
  model_operation(m, ANEURALNETWORKS_RELU, mid, 1, in);
  switch (which) {
  case 0:
    model_operation(m, ANEURALNETWORKS_CONV_2D, out, 13, mid, family_weights(m, 4, 6, 3, 2, 6),
                    bias, one, one, zero, one, two, one, one, no, one, two);
    return 1;
  case 1:
    model_operation(m, ANEURALNETWORKS_DEPTHWISE_CONV_2D, out, 11, mid,
                    family_weights(m, 4, 1, 3, 3, 6), bias, one, one, two, one, two, no, one, one);
    return 1;
  case 2:
    model_operation(m, ANEURALNETWORKS_GROUPED_CONV_2D, out, 9, mid,
                    family_weights(m, 4, 6, 2, 2, 3), bias, two, one, one, two, zero, no);
    return 1;
  case 3:
    model_operation(m, ANEURALNETWORKS_AVERAGE_POOL_2D, out, 11, mid, one, one, zero, zero, one,
                    two, two, two, zero, no);
    return 1;
  case 4:
    model_operation(m, ANEURALNETWORKS_FULLY_CONNECTED, out, 4, mid,
                    family_weights(m, 2, 6, 30, 0, 0), bias, one);
    return 1;
  case 5:
    model_operation(m, ANEURALNETWORKS_ADD, out, 3, mid, family_weights(m, 3, 4, 1, 6, 0), one);
    return 1;
  case 6:
    model_operation(m, ANEURALNETWORKS_SOFTMAX, out, 3, mid, model_f32(m, 1.0f), two);
    return 1;
  case 7:
    model_operation(m, ANEURALNETWORKS_TRANSPOSE, out, 2, mid, model_list(m, 4, ORDER, 0));
    return 1;
  case 8: {
    const uint32_t begins = model_list(m, 4, LIST, 0);
    model_operation(m, ANEURALNETWORKS_SLICE, out, 3, mid, begins, model_list(m, 4, LIST + 1, 0));
    return 1;
  }
  case 9: {
    const uint32_t begins = model_list(m, 4, LIST, 0);
    const uint32_t ends = model_list(m, 4, ENDS, 0);
    model_operation(m, ANEURALNETWORKS_STRIDED_SLICE, out, 7, mid, begins, ends,
                    model_list(m, 4, ONES, 0), zero, model_i32(m, 6), one);
    return 1;
  }
  case 10:
    model_operation(m, ANEURALNETWORKS_PAD, out, 2, mid, model_list(m, 8, LIST, 1));
    return 1;
  case 11:
    model_operation(m, ANEURALNETWORKS_CONCATENATION, out, 3, mid, mid, two);
    return 1;
  case 12:
    model_operation(m, ANEURALNETWORKS_MEAN, out, 3, mid, model_list(m, 2, ONES, 0), zero);
    return 1;
  case 13:
    model_operation(m, ANEURALNETWORKS_RESIZE_BILINEAR, out, 6, mid, model_i32(m, 7),
                    model_i32(m, 3), no, no, no);
    return 1;
  case 14:
    model_operation(m, ANEURALNETWORKS_RESHAPE, out, 2, mid, model_list(m, 2, ONES + 1, 0));
    return 1;
  case 15:
    model_operation(m, ANEURALNETWORKS_SQUEEZE, out, 2, mid, model_list(m, 1, LIST, 0));
    return 1;
  case 16:
    model_operation(m, ANEURALNETWORKS_EXPAND_DIMS, out, 2, mid, two);
    return 1;
  case 17:
    model_operation(m, ANEURALNETWORKS_SPLIT, out, 3, mid, two, one);
    return 1;
  case 18:
    model_operation(m, ANEURALNETWORKS_DEPTHWISE_CONV_2D, out, 8, mid,
                    family_weights(m, 4, 1, 3, 3, 12), family_weights(m, 1, 12, 0, 0, 0), one, one,
                    two, two, zero);
    return 1;
  case 19: /* weights known only to the run */
    model_operation(m, ANEURALNETWORKS_CONV_2D, out, 7, mid, mid, family_weights(m, 1, 1, 0, 0, 0),
                    one, one, one, zero);
    return 1;
  case 20: {
    static const int32_t ROWS[2] = {-1, 30};
    const uint32_t rows = model_tensor(m, NP_TEMPORARY, 0);
    model_operation(m, ANEURALNETWORKS_RESHAPE, rows, 2, mid, model_list(m, 2, ROWS, 0));
    model_operation(m, ANEURALNETWORKS_FULLY_CONNECTED, out, 4, mid, rows,
                    family_weights(m, 1, 4, 0, 0, 0), one);
    return 1;
  }
  case 21:
    model_operation(m, ANEURALNETWORKS_L2_POOL_2D, out, 7, mid, one, one, two, two, two, zero);
    return 1;
  case 22:
    model_operation(m, ANEURALNETWORKS_PAD_V2, out, 3, mid, model_list(m, 8, LIST, 1),
                    model_f32(m, 0.5f));
    return 1;
  case 23:
    model_operation(m, ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR, out, 6, mid, model_f32(m, 1.5f),
                    model_f32(m, 2.0f), no, no, model_bool(m, 1));
    return 1;
  case 24: {
    const uint32_t order = model_list(m, 4, ORDER, 0);
    m->operands[order].lifetime = NP_NO_VALUE; /* omitted: dimensions are reversed */
    m->operands[order].dims[0] = 0;
    model_operation(m, ANEURALNETWORKS_TRANSPOSE, out, 2, mid, order);
    return 1;
  }
  default:
    return 0;
  }
}

#endif
