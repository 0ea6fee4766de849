/* The back end `fast`: XNNPACK's results against the reference, on random data, in buffers beyond
 * which no byte may be read. */
#define _DEFAULT_SOURCE
#include "np_test_backends.h"

enum { ROUNDS = 12 };

/* Appends paddings and strides: explicit, SAME or VALID. Returns the next index in arguments. */
static uint32_t add_window(struct bench *bench, uint32_t *arguments, uint32_t at,
                           const uint32_t filter[2], const uint32_t dilation[2],
                           const uint32_t in[2], uint32_t out[2]) {
  uint64_t *seed = bench->seed;
  const uint32_t how = np_test_between(seed, 0, 2);
  uint32_t pads[4] = {0}; /* left, right, top, bottom */
  uint32_t stride[2];
  for (int axis = 0; axis < 2; axis++) {
    const uint32_t reach = (filter[axis] - 1) * dilation[axis] + 1;
    stride[axis] = np_test_between(seed, 1, 2);
    if (how == 0) {
      const uint32_t most = filter[axis] > 1 ? filter[axis] - 1 : 0;
      uint32_t *pair = &pads[axis == 0 ? 2 : 0];
      pair[0] = np_test_between(seed, 0, most);
      pair[1] = np_test_between(seed, 0, most);
      out[axis] = (in[axis] + pair[0] + pair[1] - reach) / stride[axis] + 1;
    } else if (how == ANEURALNETWORKS_PADDING_SAME) {
      out[axis] = (in[axis] + stride[axis] - 1) / stride[axis];
    } else {
      out[axis] = (in[axis] - reach) / stride[axis] + 1;
    }
  }
  for (uint32_t i = 0; i < 4 && how == 0; i++) {
    arguments[at++] = model_i32(bench->model, (int32_t)pads[i]);
  }
  if (how != 0) {
    arguments[at++] = model_i32(bench->model, (int32_t)how);
  }
  arguments[at++] = model_i32(bench->model, (int32_t)stride[1]);
  arguments[at++] = model_i32(bench->model, (int32_t)stride[0]);
  return at;
}

/* CONV_2D, GROUPED_CONV_2D or DEPTHWISE_CONV_2D. */
static void test_conv(uint64_t *seed, enum kind kind, int32_t code) {
  struct bench bench = bench_new(seed, kind);
  struct model *model = bench.model;
  const int grouped = code == ANEURALNETWORKS_GROUPED_CONV_2D;
  const int depthwise = code == ANEURALNETWORKS_DEPTHWISE_CONV_2D;
  const uint32_t groups = grouped ? np_test_between(seed, 1, 3) : 1;
  const uint32_t per_group = np_test_between(seed, 1, 20);
  const uint32_t channels = groups * per_group;
  const uint32_t multiplier = np_test_between(seed, 1, 2);
  const uint32_t filter[2] = {np_test_between(seed, 1, 4), np_test_between(seed, 1, 4)};
  const uint32_t dilation[2] = {grouped ? 1 : np_test_between(seed, 1, 2),
                                grouped ? 1 : np_test_between(seed, 1, 2)};
  const uint32_t size[2] = {np_test_between(seed, 8, 12), np_test_between(seed, 8, 12)};
  const uint32_t dims[4] = {np_test_between(seed, 1, 2), size[0], size[1], channels};
  const uint32_t made = depthwise ? channels * multiplier : groups * np_test_between(seed, 1, 20);
  const uint32_t shape[4] = {depthwise ? 1 : made, filter[0], filter[1],
                             depthwise ? made : per_group};
  uint32_t arguments[16];
  uint32_t out[2];
  arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, 4, dims);
  arguments[1] = bench_weights(&bench, arguments[0], depthwise ? 3 : 0, 4, shape, &arguments[2]);
  uint32_t n = add_window(&bench, arguments, 3, filter, dilation, size, out);
  if (grouped || depthwise) {
    arguments[n++] = model_i32(model, (int32_t)(grouped ? groups : multiplier));
  }
  arguments[n++] = model_i32(model, (int32_t)np_test_between(seed, 0, 3));
  arguments[n++] = model_bool(model, 0);
  if (!grouped) {
    arguments[n++] = model_i32(model, (int32_t)dilation[1]);
    arguments[n++] = model_i32(model, (int32_t)dilation[0]);
  }
  const uint32_t result[4] = {dims[0], out[0], out[1], made};
  bench_operation(&bench, code, bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result), n, arguments);
  bench_compare(&bench, 1.0f, 1, np_operation_name(code));
}

static void test_transposed(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  struct model *model = bench.model;
  const uint32_t how = np_test_between(seed, 0, 2);
  const uint32_t stride = np_test_between(seed, 1, 3);
  const uint32_t filter = np_test_between(seed, stride, 4);
  const uint32_t pad = np_test_between(seed, 0, filter > 1 ? 1 : 0);
  const uint32_t dims[4] = {1, np_test_between(seed, 3, 6), np_test_between(seed, 3, 6),
                            np_test_between(seed, 1, 10)};
  const uint32_t shape[4] = {np_test_between(seed, 1, 10), filter, filter, dims[3]};
  uint32_t result[4] = {1, 0, 0, shape[0]};
  for (int axis = 1; axis < 3; axis++) {
    const uint32_t whole = stride * (dims[axis] - 1) + filter;
    result[axis] = how == 0                              ? whole - 2 * pad
                   : how == ANEURALNETWORKS_PADDING_SAME ? stride * dims[axis]
                                                         : whole;
  }
  uint32_t arguments[16];
  uint32_t n = 3;
  arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, 4, dims);
  arguments[1] = bench_weights(&bench, arguments[0], 0, 4, shape, &arguments[2]);
  if (how == 0) {
    for (int i = 0; i < 4; i++) {
      arguments[n++] = model_i32(model, (int32_t)pad);
    }
  } else {
    const int32_t wanted[4] = {1, (int32_t)result[1], (int32_t)result[2], (int32_t)result[3]};
    arguments[n++] = model_list(model, 4, wanted, 0);
    arguments[n++] = model_i32(model, (int32_t)how);
  }
  arguments[n++] = model_i32(model, (int32_t)stride);
  arguments[n++] = model_i32(model, (int32_t)stride);
  arguments[n++] = model_i32(model, (int32_t)np_test_between(seed, 0, 3));
  arguments[n++] = model_bool(model, 0);
  bench_operation(&bench, ANEURALNETWORKS_TRANSPOSE_CONV_2D,
                  bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result), n, arguments);
  bench_compare(&bench, 1.0f, 1, "TRANSPOSE_CONV_2D");
}

static void test_fully_connected(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t batch = np_test_between(seed, 1, 4);
  const uint32_t inner = 2 * np_test_between(seed, 1, 20);
  const uint32_t units = np_test_between(seed, 1, 40);
  const int flat = np_test_between(seed, 0, 1) != 0;
  const uint32_t dims[3] = {batch, flat ? inner : 2, inner / 2};
  const uint32_t shape[2] = {units, inner};
  uint32_t arguments[4];
  arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, flat ? 2 : 3, dims);
  arguments[1] = bench_weights(&bench, arguments[0], 0, 2, shape, &arguments[2]);
  arguments[3] = model_i32(bench.model, (int32_t)np_test_between(seed, 0, 3));
  const uint32_t result[2] = {batch, units};
  bench_operation(&bench, ANEURALNETWORKS_FULLY_CONNECTED,
                  bench_tensor(&bench, NP_OUTPUT, 4.0f, 2, result), 4, arguments);
  bench_compare(&bench, 1.0f, 1, "FULLY_CONNECTED");
}

static void test_pool(uint64_t *seed, enum kind kind, int32_t code) {
  static const uint32_t DILATION[2] = {1, 1};
  struct bench bench = bench_new(seed, kind);
  const uint32_t filter[2] = {np_test_between(seed, 2, 4), np_test_between(seed, 2, 4)};
  const uint32_t size[2] = {np_test_between(seed, 6, 12), np_test_between(seed, 6, 12)};
  const uint32_t dims[4] = {2, size[0], size[1], np_test_between(seed, 1, 20)};
  uint32_t arguments[16];
  uint32_t out[2];
  arguments[0] = bench_tensor(&bench, NP_INPUT, 4.0f, 4, dims);
  uint32_t n = add_window(&bench, arguments, 1, filter, DILATION, size, out);
  arguments[n++] = model_i32(bench.model, (int32_t)filter[1]);
  arguments[n++] = model_i32(bench.model, (int32_t)filter[0]);
  arguments[n++] = model_i32(bench.model, (int32_t)np_test_between(seed, 0, 3));
  const uint32_t result[4] = {2, out[0], out[1], dims[3]};
  const uint32_t output = bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result);
  bench.model->operands[output].zero_point = bench.model->operands[arguments[0]].zero_point;
  bench_operation(&bench, code, output, n, arguments);
  bench_compare(&bench, 4.0f, kind == OF_FLOAT || code == ANEURALNETWORKS_MAX_POOL_2D,
                np_operation_name(code));
}

/* Two tensors that broadcast; the second is sometimes a constant. */
static void test_binary(uint64_t *seed, enum kind kind, int32_t code) {
  struct bench bench = bench_new(seed, kind);
  uint32_t dims[2][4];
  uint32_t result[4];
  const uint32_t rank = np_test_between(seed, 1, 4);
  const int is_fused = code != ANEURALNETWORKS_MAXIMUM && code != ANEURALNETWORKS_MINIMUM &&
                       code != ANEURALNETWORKS_PRELU;
  for (uint32_t d = 0; d < rank; d++) {
    result[d] = np_test_between(seed, 1, 9);
    dims[0][d] = code == ANEURALNETWORKS_PRELU || np_test_between(seed, 0, 3) ? result[d] : 1;
    dims[1][d] = dims[0][d] == 1 || np_test_between(seed, 0, 3) ? result[d] : 1;
  }
  const uint32_t cut = np_test_between(seed, 0, 3) == 0 && dims[0][0] == result[0] ? 1 : 0;
  const uint32_t second_rank = rank > cut ? rank - cut : rank;
  const uint32_t *second = dims[1] + (rank - second_rank);
  uint32_t arguments[3];
  arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, rank, dims[0]);
  arguments[1] = np_test_between(seed, 0, 1) != 0
                     ? bench_constant(&bench, 1.0f, second_rank, second)
                     : bench_tensor(&bench, NP_INPUT, 1.0f, second_rank, second);
  arguments[2] = model_i32(bench.model, (int32_t)np_test_between(seed, 0, 3));
  bench_operation(&bench, code, bench_tensor(&bench, NP_OUTPUT, 2.0f, rank, result),
                  is_fused ? 3 : 2, arguments);
  bench_compare(&bench, code == ANEURALNETWORKS_DIV ? 4.0f : 1.0f, 1, np_operation_name(code));
}

/* Scales too far apart for XNNPACK's arithmetic: left to the reference. */
static void test_far_scales(uint64_t *seed, int32_t code) {
  struct bench bench = bench_new(seed, OF_U8);
  const uint32_t length = 20;
  const uint32_t arguments[3] = {bench_tensor(&bench, NP_INPUT, 1e-4f, 1, &length),
                                 bench_tensor(&bench, NP_INPUT, 1.0f, 1, &length),
                                 model_i32(bench.model, 0)};
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 100.0f, 1, &length);
  bench_operation(&bench, code, out, 3, arguments);
  bench_compare(&bench, 1.0f, 0, "far scales");
}

static void test_unary(uint64_t *seed, enum kind kind, int32_t code) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t dims[2] = {np_test_between(seed, 1, 5), np_test_between(seed, 1, 40)};
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 6.0f, 2, dims);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 6.0f, 2, dims);
  struct np_operand *result = &bench.model->operands[out];
  result->zero_point = bench.model->operands[in].zero_point;
  if (kind != OF_FLOAT && code == ANEURALNETWORKS_LOGISTIC) {
    result->scale = 1.0f / 256.0f;
    result->zero_point = kind_is_unsigned(kind) ? 0 : -128;
  }
  if (kind != OF_FLOAT && code == ANEURALNETWORKS_TANH) {
    result->scale = 1.0f / 128.0f;
    result->zero_point = kind_is_unsigned(kind) ? 128 : 0;
  }
  const uint32_t alpha = model_f32(bench.model, 0.7f);
  const uint32_t arguments[2] = {in, alpha};
  const int two = code == ANEURALNETWORKS_ELU || code == ANEURALNETWORKS_SOFTMAX;
  if (code == ANEURALNETWORKS_SOFTMAX) {
    const float one = 1.0f;
    memcpy(bench.model->scalars[alpha], &one, sizeof one);
  }
  bench_operation(&bench, code, out, two ? 2 : 1, arguments);
  bench_compare(&bench, 6.0f, 1, np_operation_name(code));
}

/* Operations on positive numbers, produced by EXP: one region of two operations. */
static void test_of_positive(uint64_t *seed, int32_t code) {
  struct bench bench = bench_new(seed, OF_FLOAT);
  const uint32_t dims[2] = {np_test_between(seed, 1, 5), np_test_between(seed, 1, 40)};
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 3.0f, 2, dims);
  const uint32_t positive = bench_tensor(&bench, NP_TEMPORARY, 3.0f, 2, dims);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 3.0f, 2, dims);
  model_operation(bench.model, ANEURALNETWORKS_EXP, positive, 1, in);
  model_operation(bench.model, code, out, 1, positive);
  bench_compare(&bench, 3.0f, 1, np_operation_name(code));
}

static void test_of_kind(uint64_t *seed, enum kind kind) {
  for (int i = 0; i < ROUNDS; i++) {
    test_conv(seed, kind, ANEURALNETWORKS_CONV_2D);
    test_conv(seed, kind, ANEURALNETWORKS_GROUPED_CONV_2D);
    test_conv(seed, kind, ANEURALNETWORKS_DEPTHWISE_CONV_2D);
    test_transposed(seed, kind);
    if (kind_has_channels(kind)) {
      continue;
    }
    test_fully_connected(seed, kind);
    test_pool(seed, kind, ANEURALNETWORKS_AVERAGE_POOL_2D);
    test_pool(seed, kind, ANEURALNETWORKS_MAX_POOL_2D);
    test_binary(seed, kind, ANEURALNETWORKS_ADD);
    test_binary(seed, kind, ANEURALNETWORKS_SUB);
    test_binary(seed, kind, ANEURALNETWORKS_MUL);
    test_unary(seed, kind, ANEURALNETWORKS_RELU);
    test_unary(seed, kind, ANEURALNETWORKS_RELU1);
    test_unary(seed, kind, ANEURALNETWORKS_RELU6);
    test_unary(seed, kind, ANEURALNETWORKS_LOGISTIC);
    test_unary(seed, kind, ANEURALNETWORKS_TANH);
  }
}

static void test_of_floats(uint64_t *seed) {
  static const int32_t UNARY[] = {
      ANEURALNETWORKS_HARD_SWISH, ANEURALNETWORKS_ABS, ANEURALNETWORKS_NEG,     ANEURALNETWORKS_EXP,
      ANEURALNETWORKS_FLOOR,      ANEURALNETWORKS_ELU, ANEURALNETWORKS_SOFTMAX,
  };
  for (int i = 0; i < ROUNDS; i++) {
    for (size_t u = 0; u < sizeof UNARY / sizeof *UNARY; u++) {
      test_unary(seed, OF_FLOAT, UNARY[u]);
    }
    test_binary(seed, OF_FLOAT, ANEURALNETWORKS_MAXIMUM);
    test_binary(seed, OF_FLOAT, ANEURALNETWORKS_MINIMUM);
    test_binary(seed, OF_FLOAT, ANEURALNETWORKS_PRELU);
    test_of_positive(seed, ANEURALNETWORKS_SQRT);
    test_of_positive(seed, ANEURALNETWORKS_RSQRT);
    test_of_positive(seed, ANEURALNETWORKS_LOG);
  }
}

int main(void) {
  uint64_t seed = 20261121;
  if (np_backend_named("fast") == NULL) {
    (void)fprintf(stderr, "this build has no XNNPACK: nothing to test\n");
    return 0;
  }
  for (int kind = OF_FLOAT; kind < KINDS; kind++) {
    test_of_kind(&seed, (enum kind)kind);
  }
  test_of_floats(&seed);
  test_far_scales(&seed, ANEURALNETWORKS_ADD);
  test_far_scales(&seed, ANEURALNETWORKS_SUB);
  test_far_scales(&seed, ANEURALNETWORKS_MUL);
  return np_test_exit();
}
