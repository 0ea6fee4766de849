/* Models of every kernel family with one to three things changed at random: each is refused with a
 * sentence or runs within its memory, which the sanitizers watch. */
#include "np_test_model.h"

static float WEIGHTS[4096];

static uint32_t weights(struct model *model, int rank, uint32_t a, uint32_t b, uint32_t c,
                        uint32_t d) {
  const uint32_t index = model_tensor(model, NP_CONSTANT, rank, a, b, c, d);
  model_value(model, index, WEIGHTS);
  return index;
}

/* One model of family `which`; 0 where there are no more. */
static int build(struct model *m, uint32_t which) {
  static const int32_t LIST[8] = {0, 1, 1, 2, 0, 1, 2, 1};
  static const int32_t ORDER[4] = {0, 3, 1, 2};
  static const int32_t ENDS[4] = {1, -1, 4, 6};
  static const int32_t ONES[4] = {1, 2, -1, 1};
  const uint32_t in = model_tensor(m, NP_INPUT, 4, 1u, 4u, 5u, 6u);
  const uint32_t mid = model_tensor(m, NP_TEMPORARY, 0);
  const uint32_t out = model_tensor(m, NP_OUTPUT, 0);
  const uint32_t one = model_i32(m, 1);
  const uint32_t two = model_i32(m, 2);
  const uint32_t zero = model_i32(m, 0);
  const uint32_t no = model_bool(m, 0);
  const uint32_t bias = weights(m, 1, 6, 0, 0, 0);
  model_operation(m, ANEURALNETWORKS_RELU, mid, 1, in);
  switch (which) {
  case 0:
    model_operation(m, ANEURALNETWORKS_CONV_2D, out, 13, mid, weights(m, 4, 6, 3, 2, 6), bias, one,
                    one, zero, one, two, one, one, no, one, two);
    return 1;
  case 1:
    model_operation(m, ANEURALNETWORKS_DEPTHWISE_CONV_2D, out, 11, mid, weights(m, 4, 1, 3, 3, 6),
                    bias, one, one, two, one, two, no, one, one);
    return 1;
  case 2:
    model_operation(m, ANEURALNETWORKS_GROUPED_CONV_2D, out, 9, mid, weights(m, 4, 6, 2, 2, 3),
                    bias, two, one, one, two, zero, no);
    return 1;
  case 3:
    model_operation(m, ANEURALNETWORKS_AVERAGE_POOL_2D, out, 11, mid, one, one, zero, zero, one,
                    two, two, two, zero, no);
    return 1;
  case 4:
    model_operation(m, ANEURALNETWORKS_FULLY_CONNECTED, out, 4, mid, weights(m, 2, 6, 30, 0, 0),
                    bias, one);
    return 1;
  case 5:
    model_operation(m, ANEURALNETWORKS_ADD, out, 3, mid, weights(m, 3, 4, 1, 6, 0), one);
    return 1;
  case 6:
    model_operation(m, ANEURALNETWORKS_SOFTMAX, out, 3, mid, model_f32(m, 1.0f), two);
    return 1;
  case 7:
    model_operation(m, ANEURALNETWORKS_TRANSPOSE, out, 2, mid, model_list(m, 4, ORDER, 0));
    return 1;
  case 8: {
    const uint32_t begins = model_list(m, 4, LIST, 0);
    model_operation(m, ANEURALNETWORKS_SLICE, out, 3, mid, begins, model_list(m, 4, LIST + 1, 0));
    return 1;
  }
  case 9: {
    const uint32_t begins = model_list(m, 4, LIST, 0);
    const uint32_t ends = model_list(m, 4, ENDS, 0);
    model_operation(m, ANEURALNETWORKS_STRIDED_SLICE, out, 7, mid, begins, ends,
                    model_list(m, 4, ONES, 0), zero, model_i32(m, 6), one);
    return 1;
  }
  case 10:
    model_operation(m, ANEURALNETWORKS_PAD, out, 2, mid, model_list(m, 8, LIST, 1));
    return 1;
  case 11:
    model_operation(m, ANEURALNETWORKS_CONCATENATION, out, 3, mid, mid, two);
    return 1;
  case 12:
    model_operation(m, ANEURALNETWORKS_MEAN, out, 3, mid, model_list(m, 2, ONES, 0), zero);
    return 1;
  case 13:
    model_operation(m, ANEURALNETWORKS_RESIZE_BILINEAR, out, 6, mid, model_i32(m, 7),
                    model_i32(m, 3), no, no, no);
    return 1;
  case 14:
    model_operation(m, ANEURALNETWORKS_RESHAPE, out, 2, mid, model_list(m, 2, ONES + 1, 0));
    return 1;
  case 15:
    model_operation(m, ANEURALNETWORKS_SQUEEZE, out, 2, mid, model_list(m, 1, LIST, 0));
    return 1;
  case 16:
    model_operation(m, ANEURALNETWORKS_EXPAND_DIMS, out, 2, mid, two);
    return 1;
  case 17:
    model_operation(m, ANEURALNETWORKS_SPLIT, out, 3, mid, two, one);
    return 1;
  default:
    return 0;
  }
}

static void mutate(struct model *m, uint64_t *seed) {
  static const int32_t VALUES[] = {-5, -1, 0, 1, 2, 3, 4, 7, 1000, INT32_MIN};
  struct np_operation *operation = &m->operations[np_test_between(seed, 0, 1)];
  struct np_operand *operand = &m->operands[np_test_between(seed, 0, m->graph.n_operands - 1)];
  const uint32_t row = (uint32_t)(operation - m->operations);
  switch (np_test_between(seed, 0, 7)) {
  case 0:
  case 1:
  case 2: /* a small constant's value */
    m->scalars[operand - m->operands][np_test_between(seed, 0, 3)] =
        VALUES[np_test_between(seed, 0, sizeof VALUES / sizeof VALUES[0] - 1)];
    break;
  case 3: /* a dimension; a constant's length goes with it */
    operand->dims[np_test_between(seed, 0, 3)] = np_test_between(seed, 0, 6);
    if (operand->lifetime == NP_CONSTANT && operand->value == WEIGHTS &&
        np_operand_bytes(operand) <= sizeof WEIGHTS) {
      operand->length = np_operand_bytes(operand);
    }
    break;
  case 4: /* an argument */
    m->arguments[row][np_test_between(seed, 0, 1)][np_test_between(seed, 0, 4)] =
        np_test_between(seed, 0, m->graph.n_operands);
    break;
  case 5:
    operation->n_inputs = np_test_between(seed, 0, 13);
    break;
  case 6:
    operand->type = (int32_t)np_test_between(seed, 0, 15);
    break;
  default:
    operand->rank = np_test_between(seed, 0, 5);
    break;
  }
}

/* Runs what was accepted, with buffers of exactly the size that the executor asks for. */
static void run(struct np_executor *executor, const struct model *m) {
  struct np_message why = {""};
  static float input[4096];
  struct np_buffer in = {.data = input, .length = sizeof input};
  struct np_buffer out[MODEL_ENDS] = {{0}};
  uint32_t too_small;
  const struct np_operand *operand = &m->operands[m->inputs[0]];
  if (np_operand_elements(operand) == 0) { /* unknown dimensions: something small */
    in.rank = operand->rank == 0 ? 2 : operand->rank;
    for (uint32_t d = 0; d < in.rank; d++) {
      in.dims[d] = operand->rank == 0 || operand->dims[d] == 0 ? 2 : operand->dims[d];
    }
  }
  enum np_status status = np_executor_run(executor, &in, out, &too_small, &why);
  size_t n = 1;
  for (uint32_t d = 0; d < out[0].rank; d++) {
    n *= out[0].dims[d];
  }
  if (too_small != UINT32_MAX && n <= 100000) {
    out[0].length = n * np_type_bytes(m->operands[m->outputs[0]].type);
    out[0].data = malloc(out[0].length);
    status = np_executor_run(executor, &in, out, &too_small, &why);
    CHECK(too_small == UINT32_MAX);
    free(out[0].data);
  }
  CHECK(status == NP_OK || why.text[0] != '\0');
}

int main(void) {
  uint64_t seed = 23;
  uint32_t accepted = 0;
  uint32_t total = 0;
  for (uint32_t which = 0;; which++) {
    struct model *probe = model_new();
    const int exists = build(probe, which);
    free(probe);
    if (!exists) {
      break;
    }
    for (uint32_t i = 0; i < 1500; i++) {
      struct model *m = model_new();
      struct np_message why = {""};
      struct np_executor *executor = NULL;
      (void)build(m, which);
      for (uint32_t k = np_test_between(&seed, 0, 2); i > 0 && k < 3; k++) {
        mutate(m, &seed);
      }
      enum np_status status = model_check(m, &why);
      if (status == NP_OK) {
        status = np_executor_create(&m->graph, &executor, &why);
      }
      if (!CHECK(i > 0 || status == NP_OK)) {
        (void)fprintf(stderr, "%s\n", why.text);
      }
      if (status == NP_OK) {
        run(executor, m);
        accepted++;
      } else {
        CHECK(executor == NULL && why.text[0] != '\0');
      }
      total++;
      np_executor_free(executor);
      free(m);
    }
  }
  CHECK(accepted > total / 10 && accepted < total);
  return np_test_exit();
}
