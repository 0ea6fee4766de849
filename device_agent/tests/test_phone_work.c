/* Work of operations: the counts that simulated phones turn into time. */
#include "np_executor.h"
#include "np_test.h"

enum { OPERANDS = 80 };

/* One operation with its own operands. */
struct one {
  struct np_operand operands[OPERANDS];
  uint32_t inputs[OPERANDS], outputs[OPERANDS];
  struct np_operation operation;
  struct np_graph graph;
};

static struct one *one_new(int32_t code) {
  struct one *one = calloc(1, sizeof *one);
  if (one == NULL) {
    abort();
  }
  one->operation =
      (struct np_operation){.code = code, .inputs = one->inputs, .outputs = one->outputs};
  one->graph.operands = one->operands;
  one->graph.operations = &one->operation;
  one->graph.n_operations = 1;
  return one;
}

static struct np_operand *add(struct one *one, int output, int32_t type, uint32_t rank,
                              const uint32_t *dims) {
  const uint32_t index = one->graph.n_operands++;
  struct np_operand *operand = &one->operands[index];
  *operand = (struct np_operand){.type = type, .rank = rank};
  for (uint32_t d = 0; d < rank; d++) {
    operand->dims[d] = dims[d];
  }
  operand->lifetime = output ? NP_OUTPUT : NP_INPUT;
  if (output) {
    one->outputs[one->operation.n_outputs++] = index;
  } else {
    one->inputs[one->operation.n_inputs++] = index;
  }
  return operand;
}

#define DIMS(...)                                                                                  \
  (const uint32_t[]) { __VA_ARGS__ }
#define FLOATS(one, output, rank, ...)                                                             \
  add(one, output, NP_TYPE_TENSOR_FLOAT32, rank, DIMS(__VA_ARGS__))

static void add_scalar(struct one *one, int32_t type, const void *value, size_t length) {
  struct np_operand *operand = add(one, 0, type, 0, NULL);
  operand->lifetime = NP_CONSTANT;
  operand->value = value;
  operand->length = length;
}

static void leave_out(struct one *one) {
  add(one, 0, NP_TYPE_TENSOR_FLOAT32, 0, NULL)->lifetime = NP_NO_VALUE;
}

static struct np_work work_of(struct one *one) {
  const struct np_work work = np_operation_work(&one->graph, 0);
  free(one);
  return work;
}

static void test_products(void) {
  struct one *one = one_new(ANEURALNETWORKS_TRANSPOSE_CONV_2D);
  FLOATS(one, 0, 4, 1, 5, 7, 3);
  FLOATS(one, 0, 4, 8, 2, 4, 3)->lifetime = NP_CONSTANT;
  FLOATS(one, 1, 4, 1, 10, 14, 8);
  CHECK(work_of(one).macs == 5u * 7u * 3u * 8u * 2u * 4u);

  static const unsigned char yes = 1, no = 0;
  for (int turned = 0; turned < 2; turned++) { /* [2, 3, 5] or [2, 5, 3], times [2, 5, 7] */
    one = one_new(ANEURALNETWORKS_BATCH_MATMUL);
    FLOATS(one, 0, 3, 2, turned ? 5 : 3, turned ? 3 : 5);
    FLOATS(one, 0, 3, 2, 5, 7);
    add_scalar(one, NP_TYPE_BOOL, turned ? &yes : &no, 1);
    add_scalar(one, NP_TYPE_BOOL, &no, 1);
    FLOATS(one, 1, 3, 2, 3, 7);
    CHECK(work_of(one).macs == 2u * 3u * 5u * 7u);
  }
  one = one_new(ANEURALNETWORKS_DEPTHWISE_CONV_2D);
  FLOATS(one, 0, 4, 1, 9, 9, 6);
  FLOATS(one, 0, 4, 1, 3, 5, 6)->lifetime = NP_CONSTANT;
  FLOATS(one, 1, 4, 1, 9, 9, 6);
  CHECK(work_of(one).macs == 9u * 9u * 6u * 15u);
}

static void add_lstm_weights(struct one *one, uint32_t input, uint32_t units) {
  leave_out(one); /* coupled input and forget gates: three of four */
  for (int i = 0; i < 3; i++) {
    FLOATS(one, 0, 2, units, input)->lifetime = NP_CONSTANT;
  }
  leave_out(one);
  for (int i = 0; i < 3; i++) {
    FLOATS(one, 0, 2, units, units)->lifetime = NP_CONSTANT;
  }
}

static void test_recurrent(void) {
  const uint64_t each = 3u * (4u * 6u + 6u * 6u);
  struct one *one = one_new(ANEURALNETWORKS_LSTM);
  FLOATS(one, 0, 2, 2, 4);
  add_lstm_weights(one, 4, 6);
  leave_out(one);
  FLOATS(one, 0, 1, 6); /* two peepholes */
  FLOATS(one, 0, 1, 6);
  leave_out(one);
  for (int i = 0; i < 3; i++) {
    FLOATS(one, 0, 1, 6); /* biases are not products */
  }
  FLOATS(one, 0, 2, 5, 6); /* projection */
  FLOATS(one, 0, 1, 5);
  FLOATS(one, 0, 2, 2, 5); /* states are not weights */
  FLOATS(one, 0, 2, 2, 6);
  FLOATS(one, 1, 2, 2, 5);
  CHECK(work_of(one).macs == 2u * (each + 12u + 30u));

  one = one_new(ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_LSTM);
  FLOATS(one, 0, 3, 7, 2, 4); /* seven steps */
  add_lstm_weights(one, 4, 6);
  FLOATS(one, 1, 3, 7, 2, 6);
  CHECK(work_of(one).macs == 14u * each);

  one = one_new(ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_RNN);
  FLOATS(one, 0, 3, 7, 2, 4);
  for (int i = 0; i < 2; i++) {
    FLOATS(one, 0, 2, 6, 4);
    FLOATS(one, 0, 2, 6, 6);
    FLOATS(one, 0, 1, 6);
    FLOATS(one, 0, 2, 2, 6);
  }
  FLOATS(one, 1, 3, 7, 2, 6);
  CHECK(work_of(one).macs == 14u * 2u * (24u + 36u));

  one = one_new(ANEURALNETWORKS_SVDF);
  FLOATS(one, 0, 2, 2, 4);
  FLOATS(one, 0, 2, 8, 4);
  FLOATS(one, 0, 2, 8, 10);
  FLOATS(one, 0, 1, 4);
  FLOATS(one, 0, 2, 2, 80);
  FLOATS(one, 1, 2, 2, 4);
  CHECK(work_of(one).macs == 2u * (32u + 80u));
}

static void test_regions_and_reductions(void) {
  static const int32_t samples[] = {3, 2, 0};
  for (int i = 0; i < 2; i++) {
    struct one *one = one_new(ANEURALNETWORKS_ROI_ALIGN);
    FLOATS(one, 0, 4, 1, 9, 9, 4);
    FLOATS(one, 0, 2, 5, 4);
    FLOATS(one, 0, 1, 5);
    for (int j = 3; j < 7; j++) {
      add_scalar(one, NP_TYPE_INT32, &samples[0], 4);
    }
    add_scalar(one, NP_TYPE_INT32, &samples[i == 0 ? 0 : 2], 4);
    add_scalar(one, NP_TYPE_INT32, &samples[i == 0 ? 1 : 2], 4);
    FLOATS(one, 1, 4, 5, 2, 2, 4);
    CHECK(work_of(one).macs == 80u * 4u * (i == 0 ? 6u : 1u));
  }
  struct one *one = one_new(ANEURALNETWORKS_REDUCE_MAX);
  FLOATS(one, 0, 3, 4, 5, 6);
  FLOATS(one, 1, 1, 4);
  CHECK(work_of(one).macs == 120);
}

static void test_types(void) {
  struct one *one = one_new(ANEURALNETWORKS_ADD);
  add(one, 0, NP_TYPE_TENSOR_QUANT8_ASYMM, 2, DIMS(3, 4));
  add(one, 0, NP_TYPE_TENSOR_QUANT8_ASYMM, 2, DIMS(3, 4))->lifetime = NP_CONSTANT;
  add(one, 1, NP_TYPE_TENSOR_QUANT8_ASYMM, 2, DIMS(3, 4));
  struct np_work work = work_of(one);
  CHECK(work.input_bytes == 12 && work.constant_bytes == 12 && work.output_bytes == 12);
  CHECK(work.type == NP_TYPE_TENSOR_QUANT8_ASYMM && work.macs == 12);

  one = one_new(ANEURALNETWORKS_FILL); /* reads no tensor of data but its shape */
  add(one, 0, NP_TYPE_INT32, 0, NULL);
  add(one, 1, NP_TYPE_TENSOR_FLOAT16, 1, DIMS(9));
  work = work_of(one);
  CHECK(work.type == NP_TYPE_TENSOR_FLOAT16 && work.output_bytes == 18);

  one = one_new(ANEURALNETWORKS_CONV_2D); /* sizes that no memory holds do not wrap round */
  FLOATS(one, 0, 4, 1, 2, 2, UINT32_MAX);
  FLOATS(one, 0, 4, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
  FLOATS(one, 1, 4, 1, 2, 2, UINT32_MAX);
  CHECK(work_of(one).macs == UINT64_MAX);
}

/* A model of one operation over n elements, as an operand of `one`. */
static void add_model(struct one *one, struct one *model, int32_t n) {
  FLOATS(model, 0, 1, (uint32_t)n);
  FLOATS(model, 1, 1, (uint32_t)n);
  add_scalar(one, NP_TYPE_MODEL, &model->graph, 0);
}

static void test_models(void) {
  struct one *one = one_new(ANEURALNETWORKS_IF), *models[2];
  add(one, 0, NP_TYPE_TENSOR_BOOL8, 1, DIMS(1));
  for (int i = 0; i < 2; i++) {
    models[i] = one_new(ANEURALNETWORKS_RELU);
    add_model(one, models[i], i == 0 ? 10 : 30);
  }
  CHECK(np_operation_work(&one->graph, 0).macs == 30); /* the longer branch */
  free(one);
  one = one_new(ANEURALNETWORKS_WHILE);
  for (int i = 0; i < 2; i++) {
    add_scalar(one, NP_TYPE_MODEL, &models[i]->graph, 0);
  }
  const struct np_work work = work_of(one);
  CHECK(work.macs == 40 && work.input_bytes == 160); /* condition and body, once */
  free(models[0]);
  free(models[1]);
}

int main(void) {
  test_products();
  test_recurrent();
  test_regions_and_reductions();
  test_types();
  test_models();
  return np_test_exit();
}
