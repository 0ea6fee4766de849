/* np_graph.h, np_status.h, and what np_graph_check accepts and refuses. */
#include "np_test_model.h"

static void test_names(void) {
  CHECK(strcmp(np_operation_name(ANEURALNETWORKS_CONV_2D), "CONV_2D") == 0);
  CHECK(strcmp(np_operation_name(-1), "UNKNOWN") == 0);
  CHECK(strcmp(np_operation_name(100000), "UNKNOWN") == 0);
  CHECK(np_operation_code("HARD_SWISH") == ANEURALNETWORKS_HARD_SWISH);
  CHECK(np_operation_code("NO_SUCH") == -1);
#define CHECK_ONE(name, code, level)                                                               \
  CHECK(np_operation_code(#name) == (code));                                                       \
  CHECK(np_operation_level(code) == (level));
  NP_OPERATIONS(CHECK_ONE)
#undef CHECK_ONE
  for (int status = NP_OK; status <= NP_DEADLINE; status++) {
    CHECK(strcmp(np_status_text((enum np_status)status), "unknown status") != 0);
  }
}

static void test_sizes(void) {
  struct np_operand operand = {.type = NP_TYPE_TENSOR_FLOAT32, .rank = 2, .dims = {3, 5}};
  CHECK(np_operand_elements(&operand) == 15);
  CHECK(np_operand_bytes(&operand) == 60);
  operand.dims[0] = 0;
  CHECK(np_operand_bytes(&operand) == 0);
  operand = (struct np_operand){
      .type = NP_TYPE_TENSOR_INT32, .rank = 3, .dims = {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
  CHECK(np_operand_elements(&operand) == SIZE_MAX);
  CHECK(np_operand_bytes(&operand) == SIZE_MAX);
  operand = (struct np_operand){.type = NP_TYPE_BOOL};
  CHECK(np_operand_bytes(&operand) == 1);
  CHECK(np_type_bytes(1234) == 0);
  CHECK(np_type_is_tensor(NP_TYPE_TENSOR_QUANT8_ASYMM) && !np_type_is_tensor(NP_TYPE_FLOAT16));
}

static void test_message(void) {
  struct np_message message;
  char long_text[600];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = '\0';
  np_message_set(&message, "%s", long_text);
  CHECK(strlen(message.text) == sizeof message.text - 1);
  np_message_set(NULL, "%s", long_text);
}

/* relu(relu(x)) with the operations given in the wrong order. */
static struct model *two_relus(uint32_t *temporary) {
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 2u, 3u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 2, 2u, 3u);
  *temporary = model_tensor(model, NP_TEMPORARY, 2, 2u, 3u);
  model_operation(model, ANEURALNETWORKS_RELU, out, 1, *temporary);
  model_operation(model, ANEURALNETWORKS_RELU6, *temporary, 1, in);
  return model;
}

static void test_sort(void) {
  uint32_t temporary;
  struct model *model = two_relus(&temporary);
  struct np_message why = {""};
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(model->operations[0].code == ANEURALNETWORKS_RELU6);
  CHECK(model->operations[1].code == ANEURALNETWORKS_RELU);
  free(model);
}

/* A random graph in a random order is sorted into an order of execution; a sorted one does not
 * change. */
static void test_sort_random(uint64_t *seed) {
  struct model *model = model_new();
  uint32_t made[64];
  made[0] = model_tensor(model, NP_INPUT, 1, 4u);
  const uint32_t fuse = model_i32(model, 0);
  const uint32_t n = 40;
  for (uint32_t i = 1; i <= n; i++) {
    made[i] = model_tensor(model, i == n ? NP_OUTPUT : NP_TEMPORARY, 1, 4u);
    model_operation(model, ANEURALNETWORKS_ADD, made[i], 3, made[np_test_between(seed, 0, i - 1)],
                    made[np_test_between(seed, 0, i - 1)], fuse);
  }
  struct np_operation before[64];
  struct np_message why = {""};
  memcpy(before, model->operations, sizeof before);
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(memcmp(before, model->operations, n * sizeof *before) == 0);
  for (uint32_t i = n; i-- > 1;) {
    const uint32_t j = np_test_between(seed, 0, i);
    const struct np_operation swapped = model->operations[i];
    model->operations[i] = model->operations[j];
    model->operations[j] = swapped;
  }
  CHECK(model_check(model, &why) == NP_OK);
  int written[MODEL_OPERANDS] = {0};
  written[made[0]] = 1;
  written[fuse] = 1;
  for (uint32_t o = 0; o < n; o++) {
    const struct np_operation *operation = &model->operations[o];
    CHECK(written[operation->inputs[0]] && written[operation->inputs[1]]);
    written[operation->outputs[0]] = 1;
  }
  free(model);
}

static void test_refused_graphs(void) {
  struct np_message why = {""};
  uint32_t temporary;

  struct model *model = two_relus(&temporary);
  model->arguments[1][0][0] = 1; /* the model output goes back in */
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "cycle");
  free(model);

  model = two_relus(&temporary);
  model->arguments[1][1][0] = 1; /* both write operand 1 */
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 1 (RELU6): output 0 is operand 1, which operation 0 (RELU)");
  free(model);

  model = two_relus(&temporary);
  model->graph.n_operations = 1;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 0 (RELU): input 0 is operand 2, which nothing writes");
  free(model);

  model = two_relus(&temporary);
  model->arguments[1][1][0] = 0;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "a model input");
  free(model);

  model = two_relus(&temporary);
  model->inputs[1] = 0;
  model->graph.n_inputs = 2;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "listed twice");
  free(model);

  model = two_relus(&temporary);
  model->outputs[0] = 0;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "model output 0 is operand 0");
  free(model);

  model = two_relus(&temporary);
  model->arguments[0][0][0] = 77;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 0 (RELU): input 0 is operand 77, but there are only 3");
  free(model);

  model = two_relus(&temporary);
  model->operands[2].type = 99;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operand 2 has type 99");
  free(model);

  model = two_relus(&temporary);
  model->operands[2].dims[0] = UINT32_MAX;
  model->operands[2].dims[1] = UINT32_MAX;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "too large");
  free(model);

  model = model_new();
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "no operation");
  free(model);
}

/* One operation with the given data types, at a feature level. */
static enum np_status check_add(int32_t a, int32_t b, int32_t out, int32_t level,
                                struct np_message *why) {
  struct model *model = model_new();
  const uint32_t dims[1] = {4};
  const uint32_t x = model_operand(model, a, NP_INPUT, 1, dims);
  const uint32_t y = model_operand(model, b, NP_INPUT, 1, dims);
  const uint32_t z = model_operand(model, out, NP_OUTPUT, 1, dims);
  const uint32_t fuse = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_ADD, z, 3, x, y, fuse);
  const enum np_status status = np_graph_check(&model->graph, level, why);
  free(model);
  return status;
}

static void test_types(void) {
  struct np_message why = {""};
  const int32_t f32 = NP_TYPE_TENSOR_FLOAT32;
  const int32_t f16 = NP_TYPE_TENSOR_FLOAT16;
  const int32_t i32 = NP_TYPE_TENSOR_INT32;
  CHECK(check_add(f32, f32, f32, 27, &why) == NP_OK);
  CHECK(check_add(i32, i32, i32, 30, &why) == NP_OK);
  CHECK(check_add(i32, i32, i32, 29, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "TENSOR_INT32, allowed from feature level 4 on, wanted 3 or less");
  CHECK(check_add(f32, i32, f32, 30, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 0 (ADD): input 1 (operand 1) is TENSOR_INT32, wanted "
                       "TENSOR_FLOAT32");
  CHECK(check_add(f32, f32, i32, 30, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "output 0 (operand 2) is TENSOR_INT32, wanted TENSOR_FLOAT32");
  CHECK(check_add(f16, f16, f16, 29, &why) == NP_OK);
  CHECK(check_add(f16, f16, f16, 28, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "TENSOR_FLOAT16, allowed from feature level 3 on, wanted 2 or less");
  CHECK(check_add(NP_TYPE_TENSOR_BOOL8, NP_TYPE_TENSOR_BOOL8, NP_TYPE_TENSOR_BOOL8, 30, &why) ==
        NP_BAD_MODEL);
  CHECK_TEXT(why.text, "never accepts");
}

static void test_forms(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 2u, 3u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 2, 2u, 3u);
  const uint32_t beta = model_f32(model, 1.0f);
  const uint32_t axis = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_SOFTMAX, out, 3, in, beta, axis);
  CHECK(np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_3, &why) == NP_OK);
  CHECK(np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_2, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 0 (SOFTMAX): these 3 inputs are allowed from feature level 3");
  model->operations[0].n_inputs = 1;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "1 inputs, wanted 2 or 3");
  model->operations[0].n_inputs = 3;
  model->arguments[0][0][1] = axis;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "input 1 (operand 3) is INT32, wanted FLOAT32");
  model->operations[0].code = ANEURALNETWORKS_HARD_SWISH;
  CHECK(np_operation_check(&model->graph, 0, ANEURALNETWORKS_FEATURE_LEVEL_3, &why) ==
        NP_BAD_MODEL);
  CHECK_TEXT(why.text, "exists from feature level 4 on, wanted 3 or less");
  model->operations[0].code = ANEURALNETWORKS_LSTM;
  CHECK(np_operation_check(&model->graph, 0, 30, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operation 0 (LSTM): 3 inputs, wanted 23 or 27");
  model->operations[0].code = NP_FIRST_OWN_CODE + 3;
  CHECK(np_operation_check(&model->graph, 0, 30, &why) == NP_UNSUPPORTED);
  model->operations[0].code = 4000;
  CHECK(np_operation_check(&model->graph, 0, 30, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "code 4000 is no operation of NNAPI");
  CHECK(np_operation_check(&model->graph, 5, 30, &why) == NP_BAD_ARGUMENT);
  CHECK(np_operation_check(&model->graph, 0, 30, NULL) == NP_BAD_MODEL);
  free(model);
}

static void test_rank(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 5, 1u, 1u, 1u, 2u, 3u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
  model_operation(model, ANEURALNETWORKS_RELU, out, 1, in);
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "input 0 (operand 0) has rank 5, wanted 1 to 4");
  model->operations[0].code = ANEURALNETWORKS_ABS;
  CHECK(model_check(model, &why) == NP_OK);
  model->operands[in].rank = 3;
  model->arguments[0][0][1] = model_f32(model, 1.0f);
  model->operations[0].n_inputs = 2;
  model->operations[0].code = ANEURALNETWORKS_SOFTMAX;
  CHECK(np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_3, &why) == NP_OK);
  CHECK(np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_2, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "has rank 3, allowed from feature level 3 on");
  free(model);
}

/* A value of the wrong length, and an omitted operand that is required. */
static void test_values(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 2u, 3u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 2, 3u, 2u);
  const int32_t order[2] = {1, 0};
  const uint32_t list = model_list(model, 2, order, 0);
  model_operation(model, ANEURALNETWORKS_TRANSPOSE, out, 2, in, list);
  CHECK(model_check(model, &why) == NP_OK);
  model->operands[list].length = 4;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "operand 2 (TENSOR_INT32) has a constant of 4 bytes, wanted 8");
  model->operands[list].lifetime = NP_NO_VALUE;
  CHECK(model_check(model, &why) == NP_OK);
  model->operations[0].code = ANEURALNETWORKS_RESHAPE;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "is TENSOR_INT32 without a value");
  free(model);
}

static void test_work(void) {
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 8u, 8u, 4u);
  const uint32_t weights = model_tensor(model, NP_CONSTANT, 4, 16u, 3u, 3u, 4u);
  const uint32_t bias = model_tensor(model, NP_CONSTANT, 1, 16u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 4, 1u, 8u, 8u, 16u);
  const uint32_t one = model_i32(model, 1);
  const uint32_t none = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_CONV_2D, out, 7, in, weights, bias, one, one, one, none);
  const struct np_work work = np_operation_work(&model->graph, 0);
  CHECK(work.macs == 8u * 8u * 16u * 3u * 3u * 4u);
  CHECK(work.input_bytes == 8u * 8u * 4u * 4u);
  CHECK(work.output_bytes == 8u * 8u * 16u * 4u);
  CHECK(work.constant_bytes == (16u * 36u + 16u) * 4u);
  CHECK(np_operation_work(&model->graph, 9).macs == 0);
  free(model);
}

int main(void) {
  uint64_t seed = 11;
  test_names();
  test_sizes();
  test_message();
  test_sort();
  for (int i = 0; i < 20; i++) {
    test_sort_random(&seed);
  }
  test_refused_graphs();
  test_types();
  test_forms();
  test_rank();
  test_values();
  test_work();
  return np_test_exit();
}
