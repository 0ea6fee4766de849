/* Lowering: each pass rewrites a graph as documented, and results stay the same. */
#include "kernels/np_half.h"
#include "lower/np_lower.h"
#include "np_test_model.h"

/* How many operations of a lowered graph have a code. */
static uint32_t count(const struct np_lowered *lowered, int32_t code) {
  uint32_t n = 0;
  for (uint32_t o = 0; o < lowered->graph.n_operations; o++) {
    n += lowered->graph.operations[o].code == code;
  }
  return n;
}

static struct np_lowered *lower(struct model *model, struct np_message *why) {
  struct np_lowered *lowered = NULL;
  CHECK(model_check(model, why) == NP_OK);
  CHECK(np_lower(&model->graph, NULL, &lowered, why) == NP_OK);
  return lowered;
}

static void test_half(void) {
  struct model *model = model_new();
  struct np_message why = {""};
  const uint32_t three = 3;
  const int32_t half = NP_TYPE_TENSOR_FLOAT16;
  const uint32_t a = model_operand(model, half, NP_INPUT, 1, &three);
  const uint32_t b = model_operand(model, half, NP_TEMPORARY, 1, &three);
  const uint32_t c = model_operand(model, half, NP_OUTPUT, 1, &three);
  const uint32_t none = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_MUL, b, 3, a, a, none);
  model_operation(model, ANEURALNETWORKS_ADD, c, 3, b, a, none);
  struct np_lowered *lowered = lower(model, &why);
  /* a and b are widened once each, two results are narrowed. */
  CHECK(count(lowered, ANEURALNETWORKS_CAST) == 4);
  CHECK(lowered->graph.n_operations == 6);
  np_lowered_free(lowered);

  const float x[3] = {1.0f / 3.0f, 300.0f, -7.25f};
  uint16_t in[3], out[3];
  np_half_from_floats(x, in, 3);
  struct np_executor *executor = NULL;
  struct np_buffer input = {.data = in, .length = sizeof in};
  struct np_buffer output = {.data = out, .length = sizeof out};
  uint32_t too_small;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  CHECK(np_executor_run(executor, &input, &output, NULL, &too_small, &why) == NP_OK);
  for (int i = 0; i < 3; i++) { /* the product is rounded before the sum */
    const float value = np_half_to_float(in[i]);
    const float product = np_half_to_float(np_half_from_float(value * value));
    CHECK(out[i] == np_half_from_float(product + value));
  }
  np_executor_free(executor);
  free(model);
}

/* conv -> relu -> conv on NCHW data [1, 2, 4, 5], pointwise, all weights 1. */
static struct model *two_convolutions(int nchw) {
  static const float ones[4] = {1, 1, 1, 1};
  static const float bias[2] = {0.5f, -0.5f};
  struct model *model = model_new();
  const uint32_t image[2][4] = {{1, 4, 5, 2}, {1, 2, 4, 5}};
  const uint32_t *dims = image[nchw];
  const int32_t f32 = NP_TYPE_TENSOR_FLOAT32;
  const uint32_t x = model_operand(model, f32, NP_INPUT, 4, dims);
  const uint32_t a = model_operand(model, f32, NP_TEMPORARY, 4, dims);
  const uint32_t b = model_operand(model, f32, NP_TEMPORARY, 4, dims);
  const uint32_t y = model_operand(model, f32, NP_OUTPUT, 4, dims);
  const uint32_t w = model_tensor(model, NP_CONSTANT, 4, 2u, 1u, 1u, 2u);
  const uint32_t c = model_tensor(model, NP_CONSTANT, 1, 2u);
  model_value(model, w, ones);
  model_value(model, c, bias);
  const uint32_t valid = model_i32(model, ANEURALNETWORKS_PADDING_VALID);
  const uint32_t one = model_i32(model, 1);
  const uint32_t none = model_i32(model, 0);
  const uint32_t layout = model_bool(model, nchw);
  model_operation(model, ANEURALNETWORKS_CONV_2D, a, 8, x, w, c, valid, one, one, none, layout);
  model_operation(model, ANEURALNETWORKS_TANH, b, 1, a);
  model_operation(model, ANEURALNETWORKS_CONV_2D, y, 8, b, w, c, valid, one, one, none, layout);
  return model;
}

static void test_layout(void) {
  struct np_message why = {""};
  struct model *plain = two_convolutions(0);
  struct model *turned = two_convolutions(1);
  struct np_lowered *lowered = lower(turned, &why);
  /* One transpose at each end: those around TANH meet and go. */
  CHECK(count(lowered, ANEURALNETWORKS_TRANSPOSE) == 2);
  CHECK(lowered->graph.n_operations == 5);
  np_lowered_free(lowered);
  float nhwc[40], nchw[40], wanted[40], found[40];
  uint64_t seed = 5;
  for (int p = 0; p < 20; p++) {
    for (int k = 0; k < 2; k++) {
      nhwc[p * 2 + k] = nchw[k * 20 + p] = np_test_float(&seed);
    }
  }
  const float *in = nhwc;
  CHECK(model_run(plain, &in, wanted, 40, &why) == NP_OK);
  in = nchw;
  CHECK(model_run(turned, &in, found, 40, &why) == NP_OK);
  for (int p = 0; p < 20; p++) {
    for (int k = 0; k < 2; k++) {
      CHECK(found[k * 20 + p] == wanted[p * 2 + k]);
    }
  }
  free(plain);
  free(turned);
}

static void test_layout_of_the_run(void) {
  struct np_message why = {""};
  struct model *model = two_convolutions(1);
  const uint32_t flag = model_operand(model, NP_TYPE_BOOL, NP_INPUT, 0, NULL);
  model->arguments[0][0][7] = flag;
  struct np_lowered *lowered = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_lower(&model->graph, NULL, &lowered, &why) == NP_UNSUPPORTED);
  CHECK_TEXT(why.text, "operation 0 (CONV_2D): the layout flag (input 7) is no constant");
  free(model);
}

static void test_fold(void) {
  static const float values[6] = {0, 1, 2, 3, 4, 5};
  struct model *model = model_new();
  struct np_message why = {""};
  const int32_t swap[2] = {1, 0};
  const uint32_t w = model_tensor(model, NP_CONSTANT, 2, 2u, 3u);
  model_value(model, w, values);
  const uint32_t turned = model_tensor(model, NP_TEMPORARY, 0);
  const uint32_t x = model_tensor(model, NP_INPUT, 2, 3u, 2u);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 2, 3u, 2u);
  model_operation(model, ANEURALNETWORKS_TRANSPOSE, turned, 2, w, model_list(model, 2, swap, 0));
  model_operation(model, ANEURALNETWORKS_MAXIMUM, y, 2, turned, x);
  struct np_lowered *lowered = lower(model, &why);
  CHECK(lowered->graph.n_operations == 1);
  CHECK(lowered->graph.operands[turned].lifetime == NP_CONSTANT);
  np_lowered_free(lowered);
  const float low[6] = {-1, -1, -1, -1, -1, -1};
  const float *in = low;
  const float wanted[6] = {0, 3, 1, 4, 2, 5};
  float found[6];
  CHECK(model_run(model, &in, found, 6, &why) == NP_OK);
  CHECK(memcmp(found, wanted, sizeof wanted) == 0);
  free(model);
}

/* ADD followed by RELU6; the value between may be an output, or read twice. */
static uint32_t operations_after_fusing(enum np_lifetime between, int twice) {
  struct model *model = model_new();
  struct np_message why = {""};
  const uint32_t x = model_tensor(model, NP_INPUT, 1, 3u);
  const uint32_t sum = model_tensor(model, between, 1, 3u);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 3u);
  model_operation(model, ANEURALNETWORKS_ADD, sum, 3, x, x, model_i32(model, 0));
  model_operation(model, ANEURALNETWORKS_RELU6, y, 1, sum);
  if (twice) {
    const uint32_t z = model_tensor(model, NP_OUTPUT, 1, 3u);
    model_operation(model, ANEURALNETWORKS_NEG, z, 1, sum);
  }
  struct np_lowered *lowered = lower(model, &why);
  const uint32_t n = lowered->graph.n_operations;
  np_lowered_free(lowered);
  if (between == NP_TEMPORARY && !twice) {
    const float in[3] = {-1, 2, 5};
    const float *inputs = in;
    float found[3];
    CHECK(model_run(model, &inputs, found, 3, &why) == NP_OK);
    CHECK(found[0] == 0 && found[1] == 4 && found[2] == 6);
  }
  free(model);
  return n;
}

static void test_fuse(void) {
  CHECK(operations_after_fusing(NP_TEMPORARY, 0) == 1);
  CHECK(operations_after_fusing(NP_OUTPUT, 0) == 2);
  CHECK(operations_after_fusing(NP_TEMPORARY, 1) == 3);
}

static void test_sweep(void) {
  struct model *model = model_new();
  struct np_message why = {""};
  const uint32_t x = model_tensor(model, NP_INPUT, 1, 3u);
  const uint32_t unread = model_tensor(model, NP_TEMPORARY, 1, 3u);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 3u);
  model_operation(model, ANEURALNETWORKS_ABS, unread, 1, x);
  model_operation(model, ANEURALNETWORKS_NEG, y, 1, x);
  struct np_lowered *lowered = lower(model, &why);
  CHECK(lowered->graph.n_operations == 1);
  CHECK(lowered->graph.operations[0].code == ANEURALNETWORKS_NEG);
  np_lowered_free(lowered);
  free(model);
}

static void test_dump(void) {
  struct np_message why = {""};
  struct model *model = two_convolutions(1);
  struct np_executor *executor = NULL;
  char text[4096] = "";
  FILE *file = tmpfile();
  CHECK(file != NULL && model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  if (file != NULL && executor != NULL) {
    np_executor_dump(executor, file);
    rewind(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    CHECK_TEXT(text, "5 operations, 5 steps, shapes known, back end reference");
    CHECK_TEXT(text, "input %0:TENSOR_FLOAT32[1,2,4,5] input");
    CHECK_TEXT(text, "step 0: reference, 1 operation\n");
    CHECK_TEXT(text, ":TENSOR_FLOAT32[1,4,5,2] = TRANSPOSE(%0, ");
    CHECK_TEXT(text, "memory: ");
    (void)fclose(file);
  }
  np_executor_free(executor);
  free(model);
}

int main(void) {
  test_half();
  test_layout();
  test_layout_of_the_run();
  test_fold();
  test_fuse();
  test_sweep();
  test_dump();
  return np_test_exit();
}
