/* Weighted sums and poolings where the C API cannot lead: batches of none, matrix products of a
 * later feature level, and quantised models with things changed at random. (Their results are
 * checked against torch and exact integers by tests/emulator/kernels/test_conv.py.) */
#include "np_test_model.h"

enum { CONV, DEPTHWISE, GROUPED, TRANSPOSED, LINEAR, AVERAGE, MAXIMUM, OPERATIONS };

static unsigned char WEIGHTS[4096];
static const float SCALES[8] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};

static uint32_t quantised(struct model *m, int32_t type, enum np_lifetime lifetime, uint32_t rank,
                          const uint32_t *dims) {
  const uint32_t index = model_operand(m, type, lifetime, rank, dims);
  m->operands[index].scale = 0.5f;
  m->operands[index].zero_point = type == NP_TYPE_TENSOR_QUANT8_ASYMM ? 131 : -4;
  if (lifetime == NP_CONSTANT) {
    model_value(m, index, WEIGHTS);
  }
  return index;
}

static uint32_t weights_of(struct model *m, int32_t type, int per_channel, uint32_t channel_dim,
                           uint32_t rank, const uint32_t *dims) {
  const uint32_t index = quantised(m, per_channel ? NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL : type,
                                   NP_CONSTANT, rank, dims);
  if (per_channel) {
    m->operands[index].scale = 0.0f;
    m->operands[index].zero_point = 0;
    m->operands[index].channel_scales = SCALES;
    m->operands[index].channel_dim = channel_dim;
  }
  return index;
}

/* A model of one operation on input [batches, 4, 5, 6] of a quantised type. */
static void build(struct model *m, int which, int32_t type, int per_channel, uint32_t batches) {
  const uint32_t in_dims[4] = {batches, 4, 5, 6};
  const uint32_t bias_dims[1] = {6};
  const uint32_t conv[4] = {6, 3, 2, 6};
  const uint32_t depthwise[4] = {1, 3, 3, 6};
  const uint32_t grouped[4] = {6, 2, 2, 3};
  const uint32_t linear[2] = {6, 30};
  const uint32_t in = quantised(m, type, NP_INPUT, 4, in_dims);
  const uint32_t out = quantised(m, type, NP_OUTPUT, 0, NULL);
  const uint32_t bias = model_operand(m, NP_TYPE_TENSOR_INT32, NP_CONSTANT, 1, bias_dims);
  model_value(m, bias, WEIGHTS);
  m->operands[bias].scale = per_channel ? 0.0f : 0.25f;
  const uint32_t zero = model_i32(m, 0);
  const uint32_t one = model_i32(m, 1);
  const uint32_t two = model_i32(m, 2);
  const uint32_t no = model_bool(m, 0);
  switch (which) {
  case CONV:
    model_operation(m, ANEURALNETWORKS_CONV_2D, out, 13, in,
                    weights_of(m, type, per_channel, 0, 4, conv), bias, one, one, zero, one, two,
                    one, one, no, one, two);
    break;
  case DEPTHWISE:
    model_operation(m, ANEURALNETWORKS_DEPTHWISE_CONV_2D, out, 11, in,
                    weights_of(m, type, per_channel, 3, 4, depthwise), bias, one, one, two, one,
                    two, no, one, one);
    break;
  case GROUPED:
    model_operation(m, ANEURALNETWORKS_GROUPED_CONV_2D, out, 9, in,
                    weights_of(m, type, per_channel, 0, 4, grouped), bias, two, one, one, two, zero,
                    no);
    break;
  case TRANSPOSED:
    model_operation(m, ANEURALNETWORKS_TRANSPOSE_CONV_2D, out, 11, in,
                    weights_of(m, type, per_channel, 0, 4, conv), bias, one, zero, zero, one, two,
                    two, one, no);
    break;
  case LINEAR:
    model_operation(m, ANEURALNETWORKS_FULLY_CONNECTED, out, 4, in,
                    weights_of(m, type, 0, 0, 2, linear), bias, one);
    m->operands[bias].scale = 0.25f;
    break;
  case AVERAGE:
  case MAXIMUM:
    model_operation(
        m, which == AVERAGE ? ANEURALNETWORKS_AVERAGE_POOL_2D : ANEURALNETWORKS_MAX_POOL_2D, out,
        11, in, one, one, zero, zero, one, two, two, two, zero, no);
    break;
  default:
    break;
  }
}

/* Runs a graph whose output is as large as the run says; its status. */
static enum np_status run(struct model *m, uint32_t batches, size_t *bytes,
                          struct np_message *why) {
  static unsigned char input[4096];
  struct np_executor *executor = NULL;
  enum np_status status = model_check(m, why);
  *bytes = SIZE_MAX;
  if (status == NP_OK) {
    status = np_executor_create(&m->graph, NULL, &executor, why);
  }
  if (status != NP_OK) {
    return status;
  }
  struct np_buffer in = {
      .data = input, .length = sizeof input, .rank = 4, .dims = {batches, 4, 5, 6}};
  struct np_buffer out = {.data = NULL};
  uint32_t too_small;
  status = np_executor_run(executor, &in, &out, NULL, &too_small, why);
  *bytes = out.rank == 0 ? SIZE_MAX : 1;
  for (uint32_t d = 0; d < out.rank; d++) {
    *bytes *= out.dims[d];
  }
  if (too_small != UINT32_MAX && *bytes <= 100000) {
    out.length = *bytes;
    out.data = malloc(*bytes);
    status = np_executor_run(executor, &in, &out, NULL, &too_small, why);
    free(out.data);
  }
  np_executor_free(executor);
  return status;
}

static void batches_may_be_empty(void) {
  for (int which = 0; which < OPERATIONS; which++) {
    for (int per_channel = 0; per_channel < 2; per_channel++) {
      struct model *m = model_new();
      struct np_message why = {""};
      size_t bytes;
      build(m, which, NP_TYPE_TENSOR_QUANT8_ASYMM, per_channel, 0);
      if (!CHECK(run(m, 0, &bytes, &why) == NP_OK && bytes == 0)) {
        (void)fprintf(stderr, "operation %d: %s\n", which, why.text);
      }
      free(m);
    }
  }
}

static void mutate(struct model *m, uint64_t *seed) {
  static const int32_t VALUES[] = {-5, -1, 0, 1, 2, 3, 4, 7, 1000, INT32_MIN};
  static const float SCALE[] = {0.0f, 0.25f, 0.5f, 1e-38f, 1e38f, -1.0f, INFINITY, NAN};
  struct np_operand *operand = &m->operands[np_test_between(seed, 0, m->graph.n_operands - 1)];
  switch (np_test_between(seed, 0, 6)) {
  case 0:
  case 1: /* a small constant's value */
    m->scalars[operand - m->operands][0] = VALUES[np_test_between(seed, 0, 9)];
    break;
  case 2: /* a dimension; a constant's length goes with it */
    operand->dims[np_test_between(seed, 0, 3)] = np_test_between(seed, 0, 6);
    if (operand->value == WEIGHTS && np_operand_bytes(operand) <= sizeof WEIGHTS) {
      operand->length = np_operand_bytes(operand);
    }
    break;
  case 3:
    operand->scale = SCALE[np_test_between(seed, 0, 7)];
    break;
  case 4:
    operand->zero_point = VALUES[np_test_between(seed, 0, 9)];
    break;
  case 5:
    operand->channel_dim = np_test_between(seed, 0, 5);
    break;
  default:
    operand->type = (int32_t)np_test_between(seed, 0, 15);
    break;
  }
}

static void mutations_stay_in_bounds(void) {
  uint64_t seed = 29;
  uint32_t accepted = 0;
  const uint32_t total = OPERATIONS * 1500;
  for (uint32_t i = 0; i < total; i++) {
    struct model *m = model_new();
    struct np_message why = {""};
    size_t bytes;
    const int32_t type =
        i % 2 == 0 ? NP_TYPE_TENSOR_QUANT8_ASYMM : NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
    build(m, (int)(i % OPERATIONS), type, i % 3 == 0, np_test_between(&seed, 0, 2));
    for (uint32_t k = np_test_between(&seed, 0, 2); k < 3; k++) {
      mutate(m, &seed);
    }
    const enum np_status status = run(m, 1, &bytes, &why);
    accepted += status == NP_OK;
    CHECK(status == NP_OK || why.text[0] != '\0');
    free(m);
  }
  CHECK(accepted > total / 20 && accepted < total);
}

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
  batches_may_be_empty();
  mutations_stay_in_bounds();
  for (size_t t = 0; t < 3; t++) {
    for (int adjoint = 0; adjoint < 4; adjoint++) {
      check_matmul(TYPES[t], adjoint & 1, adjoint >> 1, &seed);
    }
  }
  matrices_that_do_not_fit();
  return np_test_exit();
}
