/* Matrix products, of a later feature level than the emulator's C API. */
#include "np_test_model.h"

/* ---- BATCH_MATMUL --------------------------------------------------------------------------- */

enum { MATRICES = 3 * 2, ROWS = 4, COLUMNS = 5, DEPTH = 19 };

/* Builds x [3, 2, ROWS, DEPTH] times y [3, 2, DEPTH, COLUMNS], either given transposed; y is a
 * constant. */
static struct model *build_matmul(int32_t type, int adj_x, int adj_y, const void *y_values) {
  struct model *m = model_new();
  const uint32_t x_dims[4] = {3, 2, adj_x ? DEPTH : ROWS, adj_x ? ROWS : DEPTH};
  const uint32_t y_dims[4] = {3, 2, adj_y ? COLUMNS : DEPTH, adj_y ? DEPTH : COLUMNS};
  const uint32_t x = model_operand(m, type, NP_INPUT, 4, x_dims);
  const uint32_t y = model_operand(m, type, NP_CONSTANT, 4, y_dims);
  const uint32_t out = model_operand(m, type, NP_OUTPUT, 0, NULL);
  model_value(m, y, y_values);
  if (type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED) {
    m->operands[x].scale = m->operands[y].scale = 0.5f;
    m->operands[x].zero_point = 3;
    m->operands[y].zero_point = -7;
    m->operands[out].scale = 256.0f; /* sums * 2^-10, exact */
    m->operands[out].zero_point = 5;
  }
  model_operation(m, ANEURALNETWORKS_BATCH_MATMUL, out, 4, x, y, model_bool(m, adj_x),
                  model_bool(m, adj_y));
  return m;
}

static double value_at(int32_t type, const void *values, size_t i) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT32:
    return (double)((const float *)values)[i];
  case NP_TYPE_TENSOR_INT32:
    return ((const int32_t *)values)[i];
  default:
    return ((const signed char *)values)[i];
  }
}

/* Element (i, j) of product b, by the definition. */
static double wanted_at(int32_t type, const void *x, const void *y, int adj_x, int adj_y, size_t b,
                        size_t i, size_t j) {
  const int is_quant = type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
  double sum = 0.0;
  for (size_t d = 0; d < DEPTH; d++) {
    const size_t at_x = adj_x ? d * ROWS + i : i * DEPTH + d;
    const size_t at_y = adj_y ? j * DEPTH + d : d * COLUMNS + j;
    sum += (value_at(type, x, b * ROWS * DEPTH + at_x) - (is_quant ? 3 : 0)) *
           (value_at(type, y, b * COLUMNS * DEPTH + at_y) + (is_quant ? 7 : 0));
  }
  return is_quant ? fmin(fmax(round(sum / 1024.0) + 5.0, -128.0), 127.0) : sum;
}

static void check_matmul(int32_t type, int adj_x, int adj_y, uint64_t *seed) {
  static union {
    float floats[MATRICES * DEPTH * COLUMNS];
    int32_t integers[MATRICES * DEPTH * COLUMNS];
    signed char bytes[MATRICES * DEPTH * COLUMNS];
  } values[2], found;
  for (size_t i = 0; i < MATRICES * DEPTH * COLUMNS; i++) {
    for (size_t k = 0; k < 2; k++) {
      const int32_t number = (int32_t)np_test_between(seed, 0, 255) - 128;
      if (type == NP_TYPE_TENSOR_FLOAT32) {
        values[k].floats[i] = (float)number / 128.0f;
      } else if (type == NP_TYPE_TENSOR_INT32) {
        values[k].integers[i] = number * 100;
      } else {
        values[k].bytes[i] = (signed char)number;
      }
    }
  }
  struct model *m = build_matmul(type, adj_x, adj_y, &values[1]);
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  uint32_t too_small;
  struct np_buffer in = {.data = &values[0], .length = sizeof values[0]};
  struct np_buffer out = {.data = &found, .length = sizeof found};
  CHECK(np_graph_check(&m->graph, ANEURALNETWORKS_FEATURE_LEVEL_6, &why) == NP_OK);
  CHECK(np_executor_create(&m->graph, NULL, &executor, &why) == NP_OK);
  if (executor != NULL) {
    CHECK(np_executor_run(executor, &in, &out, NULL, &too_small, &why) == NP_OK);
  }
  CHECK(out.rank == 4 && out.dims[0] == 3 && out.dims[2] == ROWS && out.dims[3] == COLUMNS);
  for (size_t i = 0; i < (size_t)MATRICES * ROWS * COLUMNS; i++) {
    const double wanted = wanted_at(type, &values[0], &values[1], adj_x, adj_y,
                                    i / (ROWS * COLUMNS), i / COLUMNS % ROWS, i % COLUMNS);
    if (!CHECK(fabs(value_at(type, &found, i) - wanted) < 1e-5)) {
      (void)fprintf(stderr, "type %d, %d %d, element %zu: %g, wanted %g. %s\n", type, adj_x, adj_y,
                    i, value_at(type, &found, i), wanted, why.text);
      break;
    }
  }
  np_executor_free(executor);
  free(m);
}

static void matrices_that_do_not_fit(void) {
  static const float values[64] = {0};
  struct model *m = model_new();
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  const uint32_t x = model_tensor(m, NP_INPUT, 3, 2u, 3u, 4u);
  const uint32_t y = model_tensor(m, NP_CONSTANT, 3, 2u, 3u, 4u);
  model_value(m, y, values);
  model_operation(m, ANEURALNETWORKS_BATCH_MATMUL, model_tensor(m, NP_OUTPUT, 0), 4, x, y,
                  model_bool(m, 0), model_bool(m, 0));
  CHECK(np_graph_check(&m->graph, ANEURALNETWORKS_FEATURE_LEVEL_6, &why) == NP_OK);
  CHECK(np_executor_create(&m->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "do not multiply");
  free(m);
}

int main(void) {
  static const int32_t TYPES[3] = {NP_TYPE_TENSOR_FLOAT32, NP_TYPE_TENSOR_INT32,
                                   NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED};
  uint64_t seed = 31;
  for (size_t t = 0; t < 3; t++) {
    for (int adjoint = 0; adjoint < 4; adjoint++) {
      check_matmul(TYPES[t], adjoint & 1, adjoint >> 1, &seed);
    }
  }
  matrices_that_do_not_fit();
  return np_test_exit();
}
