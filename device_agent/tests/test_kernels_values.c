/* Elementwise, softmax and reducing kernels against plain loops. */
#include "np_test_shapes.h"

static void test_binary(uint64_t *seed) {
  static const int32_t CODES[8] = {
      ANEURALNETWORKS_ADD,     ANEURALNETWORKS_SUB,     ANEURALNETWORKS_MUL, ANEURALNETWORKS_DIV,
      ANEURALNETWORKS_MAXIMUM, ANEURALNETWORKS_MINIMUM, ANEURALNETWORKS_POW, ANEURALNETWORKS_PRELU};
  uint32_t out_dims[4];
  uint32_t dims[2][4];
  uint32_t ranks[2];
  const uint32_t rank = random_shape(seed, out_dims);
  const uint32_t short_one = np_test_between(seed, 0, 1);
  for (uint32_t i = 0; i < 2; i++) { /* drop leading dimensions of one, and make some 1 */
    ranks[i] = i == short_one ? np_test_between(seed, 1, rank) : rank;
    for (uint32_t d = 0; d < ranks[i]; d++) {
      dims[i][d] = out_dims[rank - ranks[i] + d];
    }
  }
  for (uint32_t d = 0; d < ranks[short_one]; d++) {
    dims[short_one][d] = np_test_between(seed, 0, 1) != 0 ? 1 : dims[short_one][d];
  }
  const int32_t code = CODES[np_test_between(seed, 0, 7)];
  const int32_t fuse = (int32_t)np_test_between(seed, 0, 3);
  const int fuses = code != ANEURALNETWORKS_MAXIMUM && code != ANEURALNETWORKS_MINIMUM &&
                    code != ANEURALNETWORKS_POW && code != ANEURALNETWORKS_PRELU;
  struct model *model = model_new();
  const uint32_t a = tensor_of(model, NP_INPUT, ranks[0], dims[0]);
  const uint32_t b = tensor_of(model, NP_CONSTANT, ranks[1], dims[1]);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, out_dims);
  const size_t n = product(rank, out_dims);
  float *x = random_floats(seed, product(ranks[0], dims[0]));
  float *y = random_floats(seed, product(ranks[1], dims[1]));
  for (size_t i = 0; code == ANEURALNETWORKS_POW && i < product(ranks[0], dims[0]); i++) {
    x[i] = fabsf(x[i]) + 0.1f;
  }
  for (size_t i = 0; code == ANEURALNETWORKS_DIV && i < product(ranks[1], dims[1]); i++) {
    y[i] = fabsf(y[i]) + 0.1f;
  }
  model_value(model, b, y);
  model_operation(model, code, out, fuses ? 3 : 2, a, b, model_i32(model, fuse));
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t at[4];
    float values[2];
    unravel(i, rank, out_dims, at);
    for (uint32_t k = 0; k < 2; k++) {
      size_t from = 0;
      for (uint32_t d = 0; d < ranks[k]; d++) {
        from = from * dims[k][d] + (dims[k][d] == 1 ? 0 : at[rank - ranks[k] + d]);
      }
      values[k] = k == 0 ? x[from] : y[from];
    }
    const float p = values[0];
    const float q = values[1];
    float result = code == ANEURALNETWORKS_ADD       ? p + q
                   : code == ANEURALNETWORKS_SUB     ? p - q
                   : code == ANEURALNETWORKS_MUL     ? p * q
                   : code == ANEURALNETWORKS_DIV     ? p / q
                   : code == ANEURALNETWORKS_MAXIMUM ? fmaxf(p, q)
                   : code == ANEURALNETWORKS_MINIMUM ? fminf(p, q)
                   : code == ANEURALNETWORKS_POW     ? powf(p, q)
                   : p >= 0                          ? p
                                                     : p * q;
    if (fuses && fuse != ANEURALNETWORKS_FUSED_NONE) {
      result = fmaxf(fuse == ANEURALNETWORKS_FUSED_RELU1 ? -1.0f : 0.0f, result);
      result = fuse == ANEURALNETWORKS_FUSED_RELU1   ? fminf(1.0f, result)
               : fuse == ANEURALNETWORKS_FUSED_RELU6 ? fminf(6.0f, result)
                                                     : result;
    }
    wanted[i] = result;
  }
  expect(model, x, wanted, n, 1e-6f);
  free(y);
}

static void test_integers(void) {
  const struct {
    int32_t code, a, b, result;
  } cases[] = {
      {ANEURALNETWORKS_ADD, INT32_MAX, 1, INT32_MIN},
      {ANEURALNETWORKS_SUB, 3, 5, -2},
      {ANEURALNETWORKS_MUL, -7, 6, -42},
      {ANEURALNETWORKS_DIV, -7, 2, -4},
      {ANEURALNETWORKS_DIV, 7, -2, -4},
      {ANEURALNETWORKS_DIV, -7, -2, 3},
      {ANEURALNETWORKS_DIV, INT32_MIN, -1, INT32_MIN},
      {ANEURALNETWORKS_DIV, 7, 0, 0}, /* NNAPI leaves it open; AOSP's CPU path gives 0 */
      {ANEURALNETWORKS_DIV, INT32_MIN, 0, 0},
      {ANEURALNETWORKS_MAXIMUM, -7, 2, 2},
      {ANEURALNETWORKS_MINIMUM, -7, 2, -7},
  };
  const uint32_t dims[1] = {1};
  struct np_message why = {""};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct model *model = model_new();
    const uint32_t in = model_operand(model, NP_TYPE_TENSOR_INT32, NP_INPUT, 1, dims);
    const uint32_t b = model_list(model, 1, &cases[i].b, 0);
    const uint32_t out = model_operand(model, NP_TYPE_TENSOR_INT32, NP_OUTPUT, 1, dims);
    const int fuses =
        cases[i].code != ANEURALNETWORKS_MAXIMUM && cases[i].code != ANEURALNETWORKS_MINIMUM;
    model_operation(model, cases[i].code, out, fuses ? 3 : 2, in, b, model_i32(model, 0));
    int32_t a = cases[i].a;
    float found;
    float a_bits;
    memcpy(&a_bits, &a, sizeof a);
    const float *const inputs[1] = {&a_bits};
    CHECK(model_run(model, inputs, &found, 1, &why) == NP_OK);
    int32_t result;
    memcpy(&result, &found, sizeof result);
    CHECK(result == cases[i].result);
    free(model);
  }
}

static double unary_value(int32_t code, double x) {
  switch (code) {
  case ANEURALNETWORKS_RELU:
    return fmax(0, x);
  case ANEURALNETWORKS_RELU1:
    return fmax(-1, fmin(1, x));
  case ANEURALNETWORKS_RELU6:
    return fmax(0, fmin(6, x));
  case ANEURALNETWORKS_LOGISTIC:
    return 1 / (1 + exp(-x));
  case ANEURALNETWORKS_TANH:
    return tanh(x);
  case ANEURALNETWORKS_HARD_SWISH:
    return x * fmax(0, fmin(6, x + 3)) / 6;
  case ANEURALNETWORKS_FLOOR:
    return floor(x);
  case ANEURALNETWORKS_ABS:
    return fabs(x);
  case ANEURALNETWORKS_EXP:
    return exp(x);
  case ANEURALNETWORKS_NEG:
    return -x;
  case ANEURALNETWORKS_SQRT:
    return sqrt(x);
  case ANEURALNETWORKS_RSQRT:
    return 1 / sqrt(x);
  case ANEURALNETWORKS_LOG:
    return log(x);
  case ANEURALNETWORKS_SIN:
    return sin(x);
  default:
    return x;
  }
}

static void test_unary(uint64_t *seed) {
  static const int32_t CODES[] = {
      ANEURALNETWORKS_RELU,     ANEURALNETWORKS_RELU1,      ANEURALNETWORKS_RELU6,
      ANEURALNETWORKS_LOGISTIC, ANEURALNETWORKS_TANH,       ANEURALNETWORKS_FLOOR,
      ANEURALNETWORKS_ABS,      ANEURALNETWORKS_HARD_SWISH, ANEURALNETWORKS_EXP,
      ANEURALNETWORKS_NEG,      ANEURALNETWORKS_SQRT,       ANEURALNETWORKS_RSQRT,
      ANEURALNETWORKS_LOG,      ANEURALNETWORKS_SIN,
  };
  for (size_t k = 0; k < sizeof CODES / sizeof CODES[0]; k++) {
    uint32_t dims[4];
    const uint32_t rank = random_shape(seed, dims);
    const size_t n = product(rank, dims);
    struct model *model = model_new();
    const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
    const uint32_t out = tensor_of(model, NP_OUTPUT, rank, dims);
    model_operation(model, CODES[k], out, 1, in);
    float *x = random_floats(seed, n);
    float *wanted = random_floats(seed, n);
    const int positive = CODES[k] == ANEURALNETWORKS_SQRT || CODES[k] == ANEURALNETWORKS_RSQRT ||
                         CODES[k] == ANEURALNETWORKS_LOG;
    for (size_t i = 0; i < n; i++) {
      x[i] = positive ? fabsf(x[i]) + 0.05f : x[i] * 9.0f;
      wanted[i] = (float)unary_value(CODES[k], (double)x[i]);
    }
    expect(model, x, wanted, n, 2e-6f);
  }
}

static void test_softmax(uint64_t *seed) {
  uint32_t dims[4];
  const uint32_t rank = random_shape(seed, dims);
  const size_t n = product(rank, dims);
  const int32_t axis = (int32_t)np_test_between(seed, 0, 2 * rank - 1) - (int32_t)rank;
  const uint32_t along = (uint32_t)(axis < 0 ? axis + (int32_t)rank : axis);
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, dims);
  model_operation(model, ANEURALNETWORKS_SOFTMAX, out, 3, in, model_f32(model, 1.5f),
                  model_i32(model, axis));
  float *x = random_floats(seed, n);
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    x[i] = x[i] * 50.0f + 200.0f; /* overflows unless the largest is subtracted */
  }
  for (size_t i = 0; i < n; i++) {
    const size_t step = product(rank - along - 1, dims + along + 1);
    const size_t first = i - i / step % dims[along] * step;
    double sum = 0;
    for (uint32_t j = 0; j < dims[along]; j++) {
      sum += exp(1.5 * ((double)x[first + j * step] - (double)x[i]));
    }
    wanted[i] = (float)(1 / sum);
  }
  expect(model, x, wanted, n, 2e-6f);
}

static void test_reduce(uint64_t *seed) {
  static const int32_t CODES[4] = {ANEURALNETWORKS_MEAN, ANEURALNETWORKS_REDUCE_SUM,
                                   ANEURALNETWORKS_REDUCE_MAX, ANEURALNETWORKS_REDUCE_PROD};
  uint32_t dims[4];
  uint32_t out_dims[4];
  uint32_t out_rank = 0;
  int32_t axes[5];
  uint32_t n_axes = 0;
  const uint32_t rank = random_shape(seed, dims);
  const int keep = (int)np_test_between(seed, 0, 1);
  const int32_t code = CODES[np_test_between(seed, 0, 3)];
  uint32_t mask = np_test_between(seed, 1, (1u << rank) - 1);
  size_t reduced = 1;
  for (uint32_t d = 0; d < rank; d++) {
    if ((mask >> d & 1) != 0) {
      axes[n_axes++] = np_test_between(seed, 0, 1) != 0 ? (int32_t)d : (int32_t)d - (int32_t)rank;
      reduced *= dims[d];
    }
    if ((mask >> d & 1) == 0 || keep) {
      out_dims[out_rank++] = (mask >> d & 1) != 0 ? 1 : dims[d];
    }
  }
  axes[n_axes++] = axes[0]; /* an axis named twice is reduced once */
  if (out_rank == 0) {
    out_dims[out_rank++] = 1;
  }
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, out_rank, out_dims);
  const uint32_t list = model_list(model, n_axes, axes, 0);
  model_operation(model, code, out, 3, in, list,
                  code == ANEURALNETWORKS_MEAN ? model_i32(model, keep) : model_bool(model, keep));
  const size_t n = product(out_rank, out_dims);
  float *x = random_floats(seed, product(rank, dims));
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    wanted[i] = code == ANEURALNETWORKS_REDUCE_MAX    ? -INFINITY
                : code == ANEURALNETWORKS_REDUCE_PROD ? 1.0f
                                                      : 0.0f;
  }
  for (size_t i = 0; i < product(rank, dims); i++) {
    uint32_t at[4];
    size_t to = 0;
    unravel(i, rank, dims, at);
    for (uint32_t d = 0; d < rank; d++) {
      to = (mask >> d & 1) != 0 ? to : to * dims[d] + at[d];
    }
    wanted[to] = code == ANEURALNETWORKS_REDUCE_MAX    ? fmaxf(wanted[to], x[i])
                 : code == ANEURALNETWORKS_REDUCE_PROD ? wanted[to] * x[i]
                 : code == ANEURALNETWORKS_MEAN        ? wanted[to] + x[i] / (float)reduced
                                                       : wanted[to] + x[i];
  }
  expect(model, x, wanted, n, 2e-5f);
}

int main(void) {
  uint64_t seed = 17;
  for (int i = 0; i < 200; i++) {
    test_binary(&seed);
    test_softmax(&seed);
    test_reduce(&seed);
  }
  test_unary(&seed);
  test_integers();
  return np_test_exit();
}
