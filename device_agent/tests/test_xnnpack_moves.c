/* The back end `fast`: operations that move values, resize and reduce, against the reference. */
#define _DEFAULT_SOURCE
#include "np_test_backends.h"

enum { ROUNDS = 12 };

/* QUANTIZE and back. */
static void test_quantize(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t dims[2] = {3, np_test_between(seed, 1, 40)};
  const uint32_t in = model_operand(bench.model, NP_TYPE_TENSOR_FLOAT32, NP_INPUT, 2, dims);
  const uint32_t steps = bench_tensor(&bench, NP_OUTPUT, 1.0f, 2, dims);
  const uint32_t out = model_operand(bench.model, NP_TYPE_TENSOR_FLOAT32, NP_OUTPUT, 2, dims);
  model_operation(bench.model, ANEURALNETWORKS_QUANTIZE, steps, 1, in);
  model_operation(bench.model, ANEURALNETWORKS_DEQUANTIZE, out, 1, steps);
  bench_compare(&bench, 1.2f, 1, "QUANTIZE");
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
      {ANEURALNETWORKS_STRIDED_SLICE,
       {2, 2, 3, 5},
       3,
       {{0, 1, -4, 3}, {2, 3, 5, 8}, {1, 1, 1, 1}},
       {4, 4, 4}},
  };
  for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
    static const uint32_t DIMS[4] = {2, 4, 6, 8};
    struct bench bench = bench_new(seed, kind);
    uint32_t arguments[7];
    arguments[0] = bench_tensor(&bench, NP_INPUT, 1.0f, 4, DIMS);
    for (uint32_t i = 0; i < CASES[c].n_lists; i++) {
      arguments[1 + i] = model_list(bench.model, CASES[c].lengths[i], CASES[c].lists[i],
                                    CASES[c].code == ANEURALNETWORKS_PAD);
    }
    uint32_t n = 1 + CASES[c].n_lists;
    while (CASES[c].code == ANEURALNETWORKS_STRIDED_SLICE && n < 7) {
      arguments[n++] = model_i32(bench.model, 0); /* masks of begins, ends and dropped axes */
    }
    const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, CASES[c].out);
    bench.model->operands[out].zero_point = bench.model->operands[arguments[0]].zero_point;
    bench_operation(&bench, CASES[c].code, out, n, arguments);
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
  bench_operation(&bench, ANEURALNETWORKS_CONCATENATION, out, parts + 1, arguments);
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
  bench_operation(&bench, ANEURALNETWORKS_SPLIT, 0, 3, arguments);
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
    bench_operation(&bench, ANEURALNETWORKS_RESIZE_BILINEAR,
                    bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, result), 6, arguments);
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
      if (rank == 0) { /* its rank would be 1, not 0 */
        bench_free(&bench);
        continue;
      }
      model_operation(bench.model, ANEURALNETWORKS_MEAN, means, 3, in, list, number);
      model_operation(bench.model, ANEURALNETWORKS_REDUCE_SUM, sums, 3, in, list, flag);
      bench_compare(&bench, 1.0f, 1, "MEAN");
    }
  }
}

int main(void) {
  uint64_t seed = 11262021;
  if (np_backend_named("fast") == NULL) {
    (void)fprintf(stderr, "this build has no XNNPACK: nothing to test\n");
    return 0;
  }
  for (int kind = OF_FLOAT; kind < OF_CHANNELS; kind++) {
    for (int i = 0; i < ROUNDS; i++) {
      test_concatenation(&seed, (enum kind)kind);
      test_split(&seed, (enum kind)kind);
      if (kind == OF_FLOAT) {
        test_resize(&seed);
      } else {
        test_quantize(&seed, (enum kind)kind);
      }
    }
    test_moves(&seed, (enum kind)kind);
    test_blocks(&seed, (enum kind)kind);
  }
  test_reduce(&seed);
  return np_test_exit();
}
