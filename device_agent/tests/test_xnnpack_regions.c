/* The back end `fast`: operations that take several XNNPACK nodes, float16, and regions of several
 * operations, against the reference. */
#define _DEFAULT_SOURCE
#include "np_test_backends.h"

enum { ROUNDS = 12 };

/* AVERAGE_POOL_2D over the whole image, and MEAN over its axes. */
static void test_means(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t dims[4] = {np_test_between(seed, 1, 2), np_test_between(seed, 1, 9),
                            np_test_between(seed, 2, 9), np_test_between(seed, 1, 40)};
  const uint32_t result[4] = {dims[0], 1, 1, dims[3]};
  const int32_t axes[2] = {1, 2};
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 4.0f, 4, dims);
  const uint32_t pooled = bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result);
  const uint32_t mean = bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, result);
  const uint32_t one = model_i32(bench.model, 1);
  const uint32_t none = model_i32(bench.model, 0);
  bench.model->operands[pooled].zero_point = bench.model->operands[in].zero_point;
  bench.model->operands[mean].zero_point = bench.model->operands[in].zero_point;
  model_operation(bench.model, ANEURALNETWORKS_AVERAGE_POOL_2D, pooled, 7, in,
                  model_i32(bench.model, ANEURALNETWORKS_PADDING_VALID), one, one,
                  model_i32(bench.model, (int32_t)dims[2]),
                  model_i32(bench.model, (int32_t)dims[1]), none);
  model_operation(bench.model, ANEURALNETWORKS_MEAN, mean, 3, in,
                  model_list(bench.model, 2, axes, 0), one);
  bench_compare(&bench, 4.0f, 1, "means");
}

static void test_resize(uint64_t *seed, enum kind kind) {
  for (int variant = 0; variant < 3; variant++) {
    struct bench bench = bench_new(seed, kind);
    const uint32_t dims[4] = {1, np_test_between(seed, 2, 9), np_test_between(seed, 2, 9), 5};
    const uint32_t result[4] = {1, np_test_between(seed, 2, 15), np_test_between(seed, 2, 15), 5};
    const uint32_t in = bench_tensor(&bench, NP_INPUT, 1.0f, 4, dims);
    const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 4, result);
    bench.model->operands[out].zero_point = bench.model->operands[in].zero_point;
    model_operation(bench.model, ANEURALNETWORKS_RESIZE_BILINEAR, out, 6, in,
                    model_i32(bench.model, (int32_t)result[2]),
                    model_i32(bench.model, (int32_t)result[1]), model_bool(bench.model, 0),
                    model_bool(bench.model, variant == 1), model_bool(bench.model, variant == 2));
    bench_compare(&bench, 1.0f, 1, "RESIZE_BILINEAR");
  }
}

static void test_hard_swish(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  const uint32_t dims[2] = {3, np_test_between(seed, 1, 40)};
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 5.0f, 2, dims);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 3.0f, 2, dims);
  model_operation(bench.model, ANEURALNETWORKS_HARD_SWISH, out, 1, in);
  bench_compare(&bench, 5.0f, 1, "HARD_SWISH");
}

/* Parts with different scales and zero points. */
static void test_concatenation(uint64_t *seed, enum kind kind) {
  struct bench bench = bench_new(seed, kind);
  uint32_t dims[2] = {3, 0};
  uint32_t in[3];
  uint32_t total = 0;
  for (uint32_t i = 0; i < 3; i++) {
    dims[1] = np_test_between(seed, 1, 40);
    total += dims[1];
    in[i] = bench_tensor(&bench, NP_INPUT, 0.5f + (float)i, 2, dims);
  }
  dims[1] = total;
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.7f, 2, dims);
  model_operation(bench.model, ANEURALNETWORKS_CONCATENATION, out, 4, in[0], in[1], in[2],
                  model_i32(bench.model, 1));
  bench_compare(&bench, 1.0f, 1, "CONCATENATION");
}

static void test_matmul(uint64_t *seed, int swap_first, int swap_second) {
  struct bench bench = bench_new(seed, OF_FLOAT);
  const uint32_t rows = np_test_between(seed, 1, 12);
  const uint32_t inner = np_test_between(seed, 1, 12);
  const uint32_t columns = np_test_between(seed, 1, 30);
  const uint32_t batch = np_test_between(seed, 1, 3);
  const uint32_t a[3] = {batch, swap_first ? inner : rows, swap_first ? rows : inner};
  const uint32_t b[3] = {batch, swap_second ? columns : inner, swap_second ? inner : columns};
  const uint32_t result[3] = {batch, rows, columns};
  const uint32_t first = bench_tensor(&bench, NP_INPUT, 1.0f, 3, a);
  const uint32_t second = np_test_between(seed, 0, 1) != 0
                              ? bench_constant(&bench, 1.0f, 3, b)
                              : bench_tensor(&bench, NP_INPUT, 1.0f, 3, b);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 3, result);
  model_operation(bench.model, ANEURALNETWORKS_BATCH_MATMUL, out, 4, first, second,
                  model_bool(bench.model, swap_first), model_bool(bench.model, swap_second));
  bench_compare(&bench, 1.0f, 1, "BATCH_MATMUL");
}

/* A 1 x 1 convolution of `data`, weights of this kind; its result spans 4. */
static uint32_t add_conv(struct bench *bench, enum kind kind, uint32_t data,
                         enum np_lifetime lifetime, uint32_t channels) {
  const uint32_t *dims = bench->model->operands[data].dims;
  const uint32_t shape[4] = {channels, 1, 1, dims[3]};
  const uint32_t result[4] = {dims[0], dims[1], dims[2], channels};
  const uint32_t one = model_i32(bench->model, 1);
  uint32_t bias;
  bench->kind = kind;
  const uint32_t weights = bench_weights(bench, data, 0, 4, shape, &bias);
  const uint32_t out = bench_tensor(bench, lifetime, 4.0f, 4, result);
  model_operation(bench->model, ANEURALNETWORKS_CONV_2D, out, 7, data, weights, bias,
                  model_i32(bench->model, ANEURALNETWORKS_PADDING_VALID), one, one,
                  model_i32(bench->model, 0));
  return out;
}

/* CONV_2D, RELU6, PAD: an activation that XNNPACK fuses into an operation with paddings, and a
 * padding. */
static void test_chain(uint64_t *seed, enum kind kind) {
  static const uint32_t DIMS[4] = {1, 5, 6, 7};
  static const uint32_t PADDED[4] = {1, 6, 8, 3};
  static const int32_t PADS[8] = {0, 0, 1, 0, 0, 2, 0, 0};
  struct bench bench = bench_new(seed, kind);
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 1.0f, 4, DIMS);
  const uint32_t conv = add_conv(&bench, kind, in, NP_TEMPORARY, 3);
  const struct np_operand *made = &bench.model->operands[conv];
  const uint32_t cut = bench_tensor(&bench, NP_TEMPORARY, 4.0f, 4, made->dims);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 4.0f, 4, PADDED);
  bench.model->operands[cut].zero_point = made->zero_point;
  bench.model->operands[out].zero_point = made->zero_point;
  model_operation(bench.model, ANEURALNETWORKS_RELU6, cut, 1, conv);
  model_operation(bench.model, ANEURALNETWORKS_PAD, out, 2, cut,
                  model_list(bench.model, 8, PADS, 1));
  bench_compare(&bench, 1.0f, 1, "a chain");
}

/* Weights of any zero point can only be computed unsigned, scales for each channel only signed: two
 * regions, with unconverted numbers between them. */
static void test_two_ways(uint64_t *seed) {
  static const uint32_t DIMS[4] = {2, 5, 6, 7};
  struct bench bench = bench_new(seed, OF_U8);
  struct np_message why = {""};
  struct walled wanted[MODEL_ENDS];
  struct walled found[MODEL_ENDS];
  const uint32_t in = bench_tensor(&bench, NP_INPUT, 1.0f, 4, DIMS);
  const uint32_t first = add_conv(&bench, OF_U8, in, NP_TEMPORARY, 4);
  const uint32_t second = add_conv(&bench, OF_U8_CHANNELS, first, NP_TEMPORARY, 5);
  const uint32_t third = add_conv(&bench, OF_U8, second, NP_OUTPUT, 6);
  for (uint32_t i = 0; i < bench.model->graph.n_operands; i++) {
    const int is_weights = bench.model->operands[i].lifetime == NP_CONSTANT &&
                           bench.model->operands[i].type == NP_TYPE_TENSOR_QUANT8_ASYMM;
    bench.model->operands[i].zero_point += is_weights ? 11 : 0; /* never 128 */
  }
  if (CHECK(model_check(bench.model, &why) == NP_OK) &&
      CHECK(bench_run(&bench, "reference", 1.0f, 9, wanted, &why) > 0) &&
      CHECK(bench_run(&bench, "fast", 1.0f, 9, found, &why) == 3)) {
    const struct np_operand *out = &bench.model->operands[third];
    int most = 0;
    for (size_t i = 0; i < np_operand_elements(out); i++) {
      const int apart =
          abs((int)((unsigned char *)wanted[0].data)[i] - (int)((unsigned char *)found[0].data)[i]);
      most = apart > most ? apart : most;
    }
    CHECK(most <= 2); /* a step of the first two is less than one of the third */
    (void)munmap(found[0].map, found[0].mapped);
    (void)munmap(wanted[0].map, wanted[0].mapped);
  }
  bench_free(&bench);
}

/* FLOAT16 all through: casts, arithmetic and moves are one region. */
static void test_half(uint64_t *seed) {
  static const uint32_t DIMS[3] = {2, 3, 8};
  static const uint32_t TURNED[3] = {8, 3, 2};
  static const int32_t ORDER[3] = {2, 1, 0};
  struct bench bench = bench_new(seed, OF_HALF);
  const uint32_t a = bench_tensor(&bench, NP_INPUT, 1.0f, 3, DIMS);
  const uint32_t b = bench_tensor(&bench, NP_INPUT, 1.0f, 3, DIMS);
  const uint32_t sum = bench_tensor(&bench, NP_TEMPORARY, 1.0f, 3, DIMS);
  const uint32_t turned = bench_tensor(&bench, NP_TEMPORARY, 1.0f, 3, TURNED);
  const uint32_t out = bench_tensor(&bench, NP_OUTPUT, 1.0f, 3, TURNED);
  model_operation(bench.model, ANEURALNETWORKS_ADD, sum, 3, a, b, model_i32(bench.model, 1));
  model_operation(bench.model, ANEURALNETWORKS_TRANSPOSE, turned, 2, sum,
                  model_list(bench.model, 3, ORDER, 0));
  model_operation(bench.model, ANEURALNETWORKS_LOGISTIC, out, 1, turned);
  bench_compare(&bench, 2.0f, 1, "float16");
}

int main(void) {
  uint64_t seed = 21112026;
  if (np_backend_named("fast") == NULL) {
    (void)fprintf(stderr, "this build has no XNNPACK: nothing to test\n");
    return 0;
  }
  for (int i = 0; i < ROUNDS; i++) {
    for (int kind = OF_FLOAT; kind < KINDS; kind++) {
      test_chain(&seed, (enum kind)kind);
      if (kind_has_channels((enum kind)kind)) {
        continue;
      }
      test_means(&seed, (enum kind)kind);
      test_resize(&seed, (enum kind)kind);
      test_hard_swish(&seed, (enum kind)kind);
      test_concatenation(&seed, (enum kind)kind);
    }
    test_matmul(&seed, i & 1, i >> 1 & 1);
    test_two_ways(&seed);
    test_half(&seed);
  }
  return np_test_exit();
}
