/* Element-wise kernels where the C API does not reach: float16, scalars, tensors without elements,
 * values that are not finite, and the sentences of refusals. */
#include "kernels/np_half.h"
#include "kernels/np_kernel.h"
#include "np_test_model.h"

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Computes the nearest float16 in double precision: a multiple of the quantum of values of this
 * size. */
static double rounded_to_half(double value) {
  int exponent;
  (void)frexp(value, &exponent);
  const double quantum = ldexp(1.0, exponent - 11 < -24 ? -24 : exponent - 11);
  const double rounded = nearbyint(value / quantum) * quantum;
  return fabs(rounded) > 65504.0 ? copysign((double)INFINITY, value) : rounded;
}

static int is_nan_half(uint16_t half) { return (half & 0x7c00u) == 0x7c00u && (half & 0x3ffu); }

static void check_half(float value) {
  const uint16_t half = np_half_from_float(value);
  CHECK((half >> 15 & 1) == (signbit(value) != 0));
  CHECK((double)np_half_to_float(half) == rounded_to_half((double)value));
}

static void test_half(uint64_t *seed) {
  for (uint32_t half = 0; half < 65536; half++) {
    const float value = np_half_to_float((uint16_t)half);
    if (is_nan_half((uint16_t)half)) {
      CHECK(isnan(value) && is_nan_half(np_half_from_float(value)));
      continue;
    }
    CHECK(np_half_from_float(value) == half);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (uint32_t off = 0xfff; off <= 0x1001 && isfinite(value); off++) { /* around ties */
      check_half(float_of(bits + off));
    }
  }
  for (int i = 0; i < 100000; i++) {
    const float value = float_of((uint32_t)np_test_random(seed));
    if (isfinite(value)) {
      check_half(value);
    }
  }
  CHECK(np_half_from_float(INFINITY) == 0x7c00 && np_half_from_float(-INFINITY) == 0xfc00);
  CHECK(np_half_to_float(0x3c00) == 1.0f && np_half_to_float(0x0001) == 0x1p-24f);
  CHECK(is_nan_half(np_half_from_float(float_of(0x7f800001u)))); /* a payload that is cut off */
}

/* One operation on operands 0 ... n - 1, without check, form or executor. */
struct lone {
  struct np_operand operands[6];
  struct np_tensor tensors[6];
  uint32_t indices[6];
  struct np_operation operation;
  struct np_graph graph;
  struct np_message why;
  struct np_call call;
};

/* All operands are inputs, except for the last one, the output. */
static void lone_make(struct lone *lone, int32_t code, uint32_t n, const int32_t *types) {
  memset(lone, 0, sizeof *lone);
  for (uint32_t i = 0; i < n; i++) {
    lone->operands[i].type = types[i];
    lone->tensors[i].type = types[i];
    lone->tensors[i].known = i + 1 < n;
    lone->tensors[i].elements = 1;
    lone->indices[i] = i;
  }
  lone->operation = (struct np_operation){.code = code,
                                          .n_inputs = n - 1,
                                          .n_outputs = 1,
                                          .inputs = lone->indices,
                                          .outputs = lone->indices + n - 1};
  lone->graph = (struct np_graph){.operands = lone->operands, .n_operands = n};
  lone->call = (struct np_call){.graph = &lone->graph,
                                .operation = &lone->operation,
                                .kernel = np_kernel_of(code),
                                .tensors = lone->tensors,
                                .why = &lone->why};
}

/* Casts of scalars, which lowering inserts. */
static void test_scalar_casts(void) {
  const int32_t widen[2] = {NP_TYPE_FLOAT16, NP_TYPE_FLOAT32};
  const int32_t narrow[2] = {NP_TYPE_FLOAT32, NP_TYPE_FLOAT16};
  const uint16_t half = 0xc100; /* -2.5 */
  const float value = -2.5f;
  uint16_t half_found = 0;
  float found = 0.0f;
  struct lone lone;
  lone_make(&lone, ANEURALNETWORKS_CAST, 2, widen);
  lone.tensors[0].data = &half;
  lone.tensors[1].room = &found;
  CHECK(lone.call.kernel->infer(&lone.call) == NP_OK && lone.tensors[1].rank == 0);
  CHECK(lone.call.kernel->run(&lone.call) == NP_OK && found == value);
  lone_make(&lone, ANEURALNETWORKS_CAST, 2, narrow);
  lone.tensors[0].data = &value;
  lone.tensors[1].room = &half_found;
  CHECK(lone.call.kernel->infer(&lone.call) == NP_OK && lone.tensors[1].elements == 1);
  CHECK(lone.call.kernel->run(&lone.call) == NP_OK && half_found == half);
}

/* Quantised RSQRT is of feature level 7, beyond the C API's devices: all 256 values. */
static void test_rsqrt(void) {
  const int32_t types[2] = {NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED, NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED};
  signed char in[256], out[256];
  struct lone lone;
  lone_make(&lone, ANEURALNETWORKS_RSQRT, 2, types);
  lone.operands[0].scale = 0.125f;
  lone.operands[0].zero_point = -20;
  lone.operands[1].scale = 0.03125f;
  lone.operands[1].zero_point = 7;
  for (int i = 0; i < 256; i++) {
    in[i] = (signed char)(i - 128);
  }
  lone.tensors[0].rank = 1;
  lone.tensors[0].dims[0] = 256;
  lone.tensors[0].elements = 256;
  lone.tensors[0].data = in;
  lone.tensors[1].room = out;
  CHECK(lone.call.kernel->infer(&lone.call) == NP_OK);
  CHECK(lone.call.kernel->run(&lone.call) == NP_OK);
  for (int i = 0; i < 256; i++) {
    const double x = (in[i] + 20) * 0.125;
    const double wanted = x > 0 ? fmin(127, round(1 / sqrt(x) / 0.03125) + 7) : 127;
    CHECK(fabs(out[i] - wanted) <= 0);
  }
}

/* Runs a model of one TENSOR_FLOAT32 input of unknown dimensions on an empty tensor [2, 0, 3];
 * the output must be empty, too, or have the wanted value. */
static void check_empty(struct model *model, uint32_t wanted_elements, float wanted) {
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  float found[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  struct np_buffer in = {.data = found, .length = 0, .rank = 3, .dims = {2, 0, 3}};
  struct np_buffer out = {.data = found, .length = sizeof found};
  uint32_t too_small;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  if (executor != NULL) {
    CHECK(np_executor_run(executor, &in, &out, NULL, &too_small, &why) == NP_OK);
  }
  if (why.text[0] != '\0') {
    (void)fprintf(stderr, "%s: %s\n", np_operation_name(model->operations[0].code), why.text);
  }
  np_executor_free(executor);
  uint32_t elements = 1;
  for (uint32_t d = 0; d < out.rank; d++) {
    elements *= out.dims[d];
  }
  CHECK(elements == wanted_elements);
  CHECK(found[0] == (wanted_elements > 0 ? wanted : 7.0f));
  free(model);
}

static struct model *model_of_input(uint32_t *in, uint32_t *out, int32_t out_type) {
  const uint32_t unknown[3] = {0, 0, 0};
  struct model *model = model_new();
  *in = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_INPUT, 3, unknown);
  *out = model_operand(model, out_type, NP_OUTPUT, 0, NULL);
  return model;
}

static void test_empty_unary(void) {
  static const int32_t CODES[] = {
      ANEURALNETWORKS_RELU,  ANEURALNETWORKS_LOGISTIC, ANEURALNETWORKS_TANH,
      ANEURALNETWORKS_FLOOR, ANEURALNETWORKS_ABS,      ANEURALNETWORKS_HARD_SWISH,
      ANEURALNETWORKS_EXP,   ANEURALNETWORKS_CAST,     ANEURALNETWORKS_L2_NORMALIZATION,
  };
  uint32_t in, out;
  for (size_t k = 0; k < sizeof CODES / sizeof CODES[0]; k++) {
    struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_FLOAT32);
    model_operation(model, CODES[k], out, 1, in);
    check_empty(model, 0, 0);
  }
  struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_FLOAT32);
  model_operation(model, ANEURALNETWORKS_SOFTMAX, out, 3, in, model_f32(model, 1.0f),
                  model_i32(model, 0));
  check_empty(model, 0, 0);
  model = model_of_input(&in, &out, NP_TYPE_TENSOR_QUANT8_ASYMM);
  model->operands[out].scale = 1.0f;
  model_operation(model, ANEURALNETWORKS_QUANTIZE, out, 1, in);
  check_empty(model, 0, 0);
}

static void test_empty_binary(void) {
  static const int32_t CODES[] = {
      ANEURALNETWORKS_ADD,     ANEURALNETWORKS_DIV, ANEURALNETWORKS_MAXIMUM,
      ANEURALNETWORKS_MINIMUM, ANEURALNETWORKS_POW, ANEURALNETWORKS_PRELU,
  };
  const uint32_t ones[4] = {1, 1, 1, 1}; /* 1 also broadcasts to 0 */
  const float value[1] = {2.0f};
  for (size_t k = 0; k < sizeof CODES / sizeof CODES[0]; k++) {
    uint32_t in, out;
    struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_FLOAT32);
    const uint32_t b = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_CONSTANT, 4, ones);
    model_value(model, b, value);
    model_operation(model, CODES[k], out, k < 2 ? 3 : 2, in, b, model_i32(model, 0));
    check_empty(model, 0, 0);
  }
  uint32_t in, out;
  struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_BOOL8);
  model_operation(model, ANEURALNETWORKS_EQUAL, out, 2, in, in);
  check_empty(model, 0, 0);
}

static void test_empty_reductions(void) {
  static const int32_t CODES[] = {ANEURALNETWORKS_REDUCE_SUM, ANEURALNETWORKS_REDUCE_PROD,
                                  ANEURALNETWORKS_REDUCE_MAX, ANEURALNETWORKS_REDUCE_MIN};
  const float wanted[] = {0.0f, 1.0f, -INFINITY, INFINITY};
  const int32_t axes[2] = {1, -3};
  uint32_t in, out;
  for (size_t k = 0; k < 4; k++) {
    struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_FLOAT32);
    model_operation(model, CODES[k], out, 3, in, model_list(model, 2, axes, 0),
                    model_bool(model, (int)k & 1));
    check_empty(model, 3, wanted[k]);
  }
  struct model *model = model_of_input(&in, &out, NP_TYPE_TENSOR_INT32);
  model_operation(model, ANEURALNETWORKS_ARGMAX, out, 2, in, model_i32(model, 0));
  check_empty(model, 0, 0);
}

/* Runs one operation on two floats; b is a constant. */
static void run_pair(int32_t code, const float *a, const float *b, float *found) {
  const uint32_t dims[1] = {2};
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t in = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_INPUT, 1, dims);
  const uint32_t other = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_CONSTANT, 1, dims);
  const uint32_t out = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_OUTPUT, 1, dims);
  model_value(model, other, b);
  model_operation(model, code, out, 2, in, other);
  CHECK(model_run(model, &a, found, 2, &why) == NP_OK);
  free(model);
}

/* MAXIMUM and MINIMUM return their first argument if one is NaN. */
static void test_nan(void) {
  const float a[2] = {NAN, 3.0f};
  const float b[2] = {3.0f, NAN};
  float found[2];
  run_pair(ANEURALNETWORKS_MAXIMUM, a, b, found);
  CHECK(isnan(found[0]) && found[1] == 3.0f);
  run_pair(ANEURALNETWORKS_MINIMUM, a, b, found);
  CHECK(isnan(found[0]) && found[1] == 3.0f);
}

/* A refused quantised operation reports the reason. */
static void test_sentences(void) {
  const uint32_t dims[1] = {2};
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  for (int32_t k = 0; k < 2; k++) {
    struct model *model = model_new();
    const int32_t type = NP_TYPE_TENSOR_QUANT8_ASYMM;
    const uint32_t in = model_operand(model, type, NP_INPUT, 1, dims);
    const uint32_t out = model_operand(model, type, NP_OUTPUT, 1, dims);
    model->operands[in].scale = 0.5f;
    model->operands[out].scale = 0.25f;
    if (k == 0) {
      model_operation(model, ANEURALNETWORKS_LOGISTIC, out, 1, in);
    } else {
      model_operation(model, ANEURALNETWORKS_MUL, out, 3, in, in, model_i32(model, 0));
    }
    CHECK(model_check(model, &why) == NP_OK);
    CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
    CHECK_TEXT(why.text, k == 0 ? "scale 0.25 and zero point 0, wanted 0.00390625 and 0"
                                : "scale 0.25, wanted more than 0.25");
    model->operands[out].scale = -1.0f;
    CHECK(model_check(model, &why) == NP_BAD_MODEL);
    CHECK_TEXT(why.text, "has scale -1 and zero point 0");
    free(model);
  }
}

int main(void) {
  uint64_t seed = 5;
  test_half(&seed);
  test_scalar_casts();
  test_rsqrt();
  test_empty_unary();
  test_empty_binary();
  test_empty_reductions();
  test_nan();
  test_sentences();
  return np_test_exit();
}
