/* The back end `fast`: each operation that XNNPACK takes against the reference, on random data and
 * in buffers behind which no byte may be read. */
#define _DEFAULT_SOURCE
#include "np_test_backends.h"

enum { ROUNDS = 12 };

/* Appends paddings and strides: explicit, SAME or VALID. Returns what follows in arguments. */
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

/* An operation over the arguments, with one output. */
static void add(struct bench *bench, int32_t code, uint32_t output, uint32_t n,
                const uint32_t *arguments) {
  model_operation(bench->model, code, output, 0);
  const uint32_t index = bench->model->graph.n_operations - 1;
  bench->model->operations[index].n_inputs = n;
  memcpy(bench->model->arguments[index][0], arguments, n * sizeof *arguments);
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
  add(&bench, code, bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result), n, arguments);
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
  add(&bench, ANEURALNETWORKS_TRANSPOSE_CONV_2D, bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result),
      n, arguments);
  /* XNNPACK takes weights with a scale a channel in convolutions only. */
  bench_compare(&bench, 1.0f, kind != OF_CHANNELS, "TRANSPOSE_CONV_2D");
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
  add(&bench, ANEURALNETWORKS_FULLY_CONNECTED, bench_tensor(&bench, NP_OUTPUT, 4.0f, 2, result), 4,
      arguments);
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
  add(&bench, code, output, n, arguments);
  bench_compare(&bench, 4.0f, kind == OF_FLOAT || code == ANEURALNETWORKS_MAX_POOL_2D,
                np_operation_name(code));
}

/* Two tensors that broadcast; the second is a constant now and then. */
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
  add(&bench, code, bench_tensor(&bench, NP_OUTPUT, 2.0f, rank, result), is_fused ? 3 : 2,
      arguments);
  bench_compare(&bench, code == ANEURALNETWORKS_DIV ? 4.0f : 1.0f, 1, np_operation_name(code));
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
    result->zero_point = kind == OF_U8 ? 0 : -128;
  }
  if (kind != OF_FLOAT && code == ANEURALNETWORKS_TANH) {
    result->scale = 1.0f / 128.0f;
    result->zero_point = kind == OF_U8 ? 128 : 0;
  }
  const uint32_t alpha = model_f32(bench.model, 0.7f);
  const uint32_t arguments[2] = {in, alpha};
  const int two = code == ANEURALNETWORKS_ELU || code == ANEURALNETWORKS_SOFTMAX;
  if (code == ANEURALNETWORKS_SOFTMAX) {
    const float one = 1.0f;
    memcpy(bench.model->scalars[alpha], &one, sizeof one);
  }
  add(&bench, code, out, two ? 2 : 1, arguments);
  bench_compare(&bench, 6.0f, 1, np_operation_name(code));
}

/* Moves of values. */
static void test_moves(uint64_t *seed, enum kind kind) {
  static const struct {
    int32_t code;
    uint32_t out[4];
    uint32_t n_lists;
    int32_t lists[3][8];
    uint32_t lengths[3];
  } CASES[] = {
      {ANEURALNETWORKS_RESHAPE, {4, 6, 2, 8}, 1, {{4, 6, 2, 8}}, {4}},
      {ANEURALNETWORKS_TRANSPOSE, {8, 2, 6, 4}, 1, {{3, 0, 2, 1}}, {4}},
      {ANEURALNETWORKS_PAD, {2, 7, 6, 11}, 1, {{0, 0, 1, 2, 0, 0, 3, 0}}, {8}},
      {ANEURALNETWORKS_SLICE, {1, 3, 5, 6}, 2, {{1, 0, 1, 2}, {1, 3, -1, 6}}, {4, 4}},
  };
  for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
    static const uint32_t DIMS[4] = {2, 4, 6, 8};
    struct bench bench = bench_new(seed, kind);
    uint32_t arguments[4];
    arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, 4, DIMS);
    for (uint32_t i = 0; i < CASES[c].n_lists; i++) {
      arguments[1 + i] = model_list(bench.model, CASES[c].lengths[i], CASES[c].lists[i],
                                    CASES[c].code == ANEURALNETWORKS_PAD);
    }
    const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, CASES[c].out);
    bench.model->operands[out].zero_point = bench.model->operands[arguments[0]].zero_point;
    add(&bench, CASES[c].code, out, 1 + CASES[c].n_lists, arguments);
    bench_compare(&bench, 1.0f, 1, np_operation_name(CASES[c].code));
  }
}

/* SPACE_TO_DEPTH, DEPTH_TO_SPACE and back: two operations, one region. */
static void test_blocks(uint64_t *seed, enum kind kind) {
  static const uint32_t DIMS[4] = {2, 4, 6, 8};
  static const uint32_t DEEP[4] = {2, 2, 3, 32};
  struct bench bench = bench_new(seed, kind);
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 1.0f, 4, DIMS);
  const uint32_t deep = bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, DEEP);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, DIMS);
  bench.model->operands[deep].zero_point = bench.model->operands[in].zero_point;
  bench.model->operands[out].zero_point = bench.model->operands[in].zero_point;
  const uint32_t size = model_i32(bench.model, 2);
  model_operation(bench.model, ANEURALNETWORKS_SPACE_TO_DEPTH, deep, 2, in, size);
  model_operation(bench.model, ANEURALNETWORKS_DEPTH_TO_SPACE, out, 2, deep, size);
  bench_compare(&bench, 1.0f, 1, "SPACE_TO_DEPTH");
}

static void test_concatenation(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t parts = np_test_between(seed, 2, 5);
  const uint32_t axis = np_test_between(seed, 0, 2);
  uint32_t dims[3] = {3, 4, 5};
  uint32_t arguments[6];
  uint32_t total = 0;
  for (uint32_t i = 0; i < parts; i++) {
    dims[axis] = np_test_between(seed, 1, 6);
    total += dims[axis];
    arguments[i] = bench_tensor(&bench, NP_INPUT, 1.0f, 3, dims);
    bench.model->operands[arguments[i]].zero_point = bench.model->operands[arguments[0]].zero_point;
  }
  arguments[parts] = model_i32(bench.model, (int32_t)axis);
  dims[axis] = total;
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 3, dims);
  bench.model->operands[out].zero_point = bench.model->operands[arguments[0]].zero_point;
  add(&bench, ANEURALNETWORKS_CONCATENATION, out, parts + 1, arguments);
  bench_compare(&bench, 1.0f, 1, "CONCATENATION");
}

static void test_split(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t parts = np_test_between(seed, 2, 4);
  uint32_t dims[2] = {3, parts * np_test_between(seed, 1, 5)};
  uint32_t arguments[3];
  arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, 2, dims);
  arguments[1] = model_i32(bench.model, -1);
  arguments[2] = model_i32(bench.model, (int32_t)parts);
  dims[1] /= parts;
  add(&bench, ANEURALNETWORKS_SPLIT, 0, 3, arguments);
  bench.model->operations[0].n_outputs = parts;
  for (uint32_t i = 0; i < parts; i++) {
    const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 2, dims);
    bench.model->operands[out].zero_point = bench.model->operands[arguments[0]].zero_point;
    bench.model->arguments[0][1][i] = out;
  }
  bench_compare(&bench, 1.0f, 1, "SPLIT");
}

static void test_resize(uint64_t *seed) {
  for (int variant = 0; variant < 3; variant++) {
    struct bench bench = bench_new(seed, OF_FLOAT);
    const uint32_t dims[4] = {2, np_test_between(seed, 2, 9), np_test_between(seed, 2, 9), 5};
    const uint32_t result[4] = {2, np_test_between(seed, 2, 15), np_test_between(seed, 2, 15), 5};
    const uint32_t arguments[6] = {
        bench_tensor(&bench, NP_INPUT, 1.0f, 4, dims), model_i32(bench.model, (int32_t)result[2]),
        model_i32(bench.model, (int32_t)result[1]),    model_bool(bench.model, 0),
        model_bool(bench.model, variant == 1),         model_bool(bench.model, variant == 2)};
    add(&bench, ANEURALNETWORKS_RESIZE_BILINEAR, bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, result),
        6, arguments);
    bench_compare(&bench, 1.0f, 1, "RESIZE_BILINEAR");
  }
}

static void test_reduce(uint64_t *seed) {
  for (uint32_t set = 1; set < 8; set++) { /* each set of axes of three */
    for (int keep = 0; keep < 2; keep++) {
      static const uint32_t DIMS[3] = {4, 5, 7};
      struct bench bench = bench_new(seed, OF_FLOAT);
      int32_t axes[3];
      uint32_t result[3];
      uint32_t n = 0;
      uint32_t rank = 0;
      for (uint32_t d = 0; d < 3; d++) {
        const int gone = (set >> d & 1) != 0;
        if (gone) {
          axes[n++] = (int32_t)d - (d == 2 ? 3 : 0);
        }
        if (!gone || keep) {
          result[rank++] = gone ? 1 : DIMS[d];
        }
      }
      const uint32_t in = bench_tensor(&bench, NP_INPUT, 1.0f, 3, DIMS);
      const uint32_t list = model_list(bench.model, n, axes, 0);
      const uint32_t means = bench_tensor(&bench, NP_OUTPUT, 1.0f, rank, result);
      const uint32_t sums = bench_tensor(&bench, NP_OUTPUT, 1.0f, rank, result);
      const uint32_t number = model_i32(bench.model, keep);
      const uint32_t flag = model_bool(bench.model, keep);
      if (rank == 0) { /* a single value has a rank of its own */
        bench_free(&bench);
        continue;
      }
      model_operation(bench.model, ANEURALNETWORKS_MEAN, means, 3, in, list, number);
      model_operation(bench.model, ANEURALNETWORKS_REDUCE_SUM, sums, 3, in, list, flag);
      bench_compare(&bench, 1.0f, 1, "MEAN");
    }
  }
}

static void test_of_kind(uint64_t *seed, enum kind kind) {
  for (int i = 0; i < ROUNDS; i++) {
    test_conv(seed, kind, ANEURALNETWORKS_CONV_2D);
    test_conv(seed, kind, ANEURALNETWORKS_GROUPED_CONV_2D);
    test_conv(seed, kind, ANEURALNETWORKS_DEPTHWISE_CONV_2D);
    test_transposed(seed, kind);
    if (kind == OF_CHANNELS) {
      continue;
    }
    test_fully_connected(seed, kind);
    test_pool(seed, kind, ANEURALNETWORKS_AVERAGE_POOL_2D);
    test_pool(seed, kind, ANEURALNETWORKS_MAX_POOL_2D);
    test_binary(seed, kind, ANEURALNETWORKS_ADD);
    test_binary(seed, kind, ANEURALNETWORKS_SUB);
    test_binary(seed, kind, ANEURALNETWORKS_MUL);
    test_concatenation(seed, kind);
    test_split(seed, kind);
    test_unary(seed, kind, ANEURALNETWORKS_RELU);
    test_unary(seed, kind, ANEURALNETWORKS_RELU1);
    test_unary(seed, kind, ANEURALNETWORKS_RELU6);
    test_unary(seed, kind, ANEURALNETWORKS_LOGISTIC);
    test_unary(seed, kind, ANEURALNETWORKS_TANH);
  }
  if (kind != OF_CHANNELS) {
    test_moves(seed, kind);
    test_blocks(seed, kind);
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
    test_resize(seed);
  }
  test_reduce(seed);
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
  return np_test_exit();
}
