/* Kernels at the edges of what they take: integers that overflow, images of no pixels, and models
 * that are refused when shapes are inferred. (Plain values are checked against numpy, torch and
 * AOSP's examples by tests/emulator.) */
#include "np_test_model.h"

/* Models that are refused when shapes are inferred. */
static void test_refused(void) {
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 5u, 5u, 3u);
  const uint32_t weights = model_tensor(model, NP_INPUT, 4, 4u, 3u, 3u, 2u);
  const uint32_t bias = model_tensor(model, NP_INPUT, 1, 4u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
  const uint32_t one = model_i32(model, 1);
  const uint32_t zero = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_CONV_2D, out, 7, in, weights, bias, one, one, one, zero);
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text,
             "operation 0 (CONV_2D): weights take 2 channels in 1 groups, the input has 3");
  model->operands[weights].dims[3] = 3;
  model->arguments[0][0][4] = zero;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "stride over width (input 4) is 0");
  model->arguments[0][0][4] = one;
  model->arguments[0][0][3] = zero;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "padding code (input 3) is 0, wanted 1 or 2");
  model->arguments[0][0][3] = one;
  model->operands[bias].dims[0] = 5;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "bias (input 2) has 5 elements");
  model->operands[bias].dims[0] = 4;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  np_executor_free(executor);
  free(model);
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

/* An image of no pixels is refused, also where the input has none. */
static void test_resize_to_nothing(void) {
  static const int32_t SIZES[] = {0, -1, INT32_MIN};
  for (uint32_t i = 0; i < 6; i++) {
    struct np_message why = {""};
    struct np_executor *executor = NULL;
    struct model *model = model_new();
    const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 0u, 4u, 2u);
    model->operands[in].dims[1] = i < 3 ? 4u : 0u; /* unknown until the run, which says 0 */
    const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
    model_operation(model, ANEURALNETWORKS_RESIZE_BILINEAR, out, 3, in, model_i32(model, 5),
                    model_i32(model, SIZES[i % 3]));
    CHECK(model_check(model, &why) == NP_OK);
    enum np_status status = np_executor_create(&model->graph, NULL, &executor, &why);
    if (i < 3) {
      CHECK(status == NP_BAD_MODEL);
    } else if (CHECK(status == NP_OK)) {
      struct np_buffer input = {.data = NULL, .rank = 4, .dims = {1, 0, 4, 2}};
      struct np_buffer output = {.data = NULL};
      uint32_t too_small;
      CHECK(np_executor_run(executor, &input, &output, NULL, &too_small, &why) == NP_RUN_FAILED);
    }
    CHECK_TEXT(why.text, "makes an image of no pixels");
    np_executor_free(executor);
    free(model);
  }
}

int main(void) {
  test_refused();
  test_integers();
  test_resize_to_nothing();
  return np_test_exit();
}
