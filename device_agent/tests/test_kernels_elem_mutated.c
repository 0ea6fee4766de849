/* Random models of one operation from the table of operations: types that it supports, any shapes,
 * values and scales. Each is refused with a sentence or runs within its memory, which the
 * sanitizers check. */
#include "np_ops.h"
#include "np_test_model.h"

static const char *const NAMES[] = {"ADD",
                                    "SUB",
                                    "MUL",
                                    "DIV",
                                    "MAXIMUM",
                                    "MINIMUM",
                                    "POW",
                                    "PRELU",
                                    "RELU",
                                    "RELU1",
                                    "RELU6",
                                    "LOGISTIC",
                                    "TANH",
                                    "HARD_SWISH",
                                    "ELU",
                                    "FLOOR",
                                    "ABS",
                                    "EXP",
                                    "NEG",
                                    "SQRT",
                                    "RSQRT",
                                    "LOG",
                                    "SIN",
                                    "SOFTMAX",
                                    "LOG_SOFTMAX",
                                    "MEAN",
                                    "REDUCE_SUM",
                                    "REDUCE_PROD",
                                    "REDUCE_MAX",
                                    "REDUCE_MIN",
                                    "REDUCE_ALL",
                                    "REDUCE_ANY",
                                    "EQUAL",
                                    "NOT_EQUAL",
                                    "LESS",
                                    "LESS_EQUAL",
                                    "GREATER",
                                    "GREATER_EQUAL",
                                    "LOGICAL_AND",
                                    "LOGICAL_OR",
                                    "LOGICAL_NOT",
                                    "SELECT",
                                    "CAST",
                                    "QUANTIZE",
                                    "DEQUANTIZE",
                                    "ARGMAX",
                                    "ARGMIN",
                                    "L2_NORMALIZATION",
                                    "LOCAL_RESPONSE_NORMALIZATION",
                                    "INSTANCE_NORMALIZATION",
                                    "RANK",
                                    "FILL"};

enum { BYTES = 1 << 16, ROUNDS = 400 };

/* Values of every tensor, different in each round. */
static _Alignas(64) unsigned char values[BYTES];
static const float CHANNEL_SCALES[8] = {0.5f, 0.25f, 3.0f, 1e-3f, 2.0f, 0.1f, 7.0f, 1e9f};

static int32_t any_type(uint64_t *seed, uint32_t types) {
  int32_t type;
  do {
    type = (int32_t)np_test_between(seed, 0, 15);
  } while ((types >> type & 1u) == 0);
  return type;
}

/* Mostly few shapes, so that many fit together. */
static void any_shape(uint64_t *seed, struct np_operand *operand, const struct np_operand *first) {
  const uint32_t choice = np_test_between(seed, 0, 9);
  operand->rank = choice == 0 ? 0 : np_test_between(seed, 1, 4);
  for (uint32_t d = 0; d < operand->rank; d++) {
    operand->dims[d] = np_test_between(seed, choice == 1 ? 0 : 1, 4);
  }
  if (choice > 4 && first != NULL) {
    operand->rank = first->rank;
    memcpy(operand->dims, first->dims, sizeof operand->dims);
  }
}

static void any_quantisation(uint64_t *seed, struct np_operand *operand) {
  static const float SCALES[] = {1.0f / 256, 1.0f / 128, 0.5f, 1.0f, 1e-30f, 1e30f, 1e-3f};
  operand->scale = SCALES[np_test_between(seed, 0, 6)];
  const int is_unsigned = operand->type == NP_TYPE_TENSOR_QUANT8_ASYMM;
  const int32_t zeros[3] = {0, 128, (int32_t)np_test_between(seed, 0, 255)};
  operand->zero_point = zeros[np_test_between(seed, 0, 2)] - (is_unsigned ? 0 : 128);
  if (operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    operand->channel_scales = np_test_between(seed, 0, 5) == 0 ? NULL : CHANNEL_SCALES;
    operand->channel_dim = np_test_between(seed, 0, 4);
  }
}

static uint32_t any_tensor(struct model *m, uint64_t *seed, int32_t type, enum np_lifetime lifetime,
                           const struct np_operand *first) {
  struct np_operand like = {0};
  any_shape(seed, &like, first);
  const uint32_t index = model_operand(m, type, lifetime, like.rank, like.dims);
  any_quantisation(seed, &m->operands[index]);
  if (lifetime == NP_CONSTANT) {
    model_value(m, index, values + 64 * np_test_between(seed, 0, 7));
  }
  return index;
}

static uint32_t any_list(struct model *m, uint64_t *seed) {
  int32_t list[4];
  for (size_t i = 0; i < 4; i++) {
    list[i] = (int32_t)np_test_between(seed, 0, 5) - 1;
  }
  const uint32_t index = model_list(m, np_test_between(seed, 1, 3), list, 0);
  if (np_test_between(seed, 0, 2) == 0) { /* known at run time only */
    m->operands[index].lifetime = NP_INPUT;
    m->inputs[m->graph.n_inputs++] = index;
  }
  return index;
}

static uint32_t any_scalar(struct model *m, uint64_t *seed, uint8_t kind, int32_t data) {
  static const int32_t INTEGERS[] = {0, 0, 0, 1, 2, 3, -1, -2, 4, INT32_MIN, INT32_MAX};
  static const float FLOATS[] = {1.0f, 0.5f, 2.0f, 0.0f, -1.0f, NAN, INFINITY, 1e30f};
  const int half = data == NP_TYPE_TENSOR_FLOAT16;
  switch (kind) {
  case NP_INPUT_BOOL:
    return model_bool(m, (int)np_test_between(seed, 0, 1));
  case NP_INPUT_FLOAT32:
  case NP_INPUT_FLOAT: {
    const uint32_t index = model_f32(m, FLOATS[np_test_between(seed, 0, 7)]);
    m->operands[index].type = half ? NP_TYPE_FLOAT16 : NP_TYPE_FLOAT32;
    m->operands[index].length = half ? 2 : 4;
    return index;
  }
  default:
    return model_i32(m, INTEGERS[np_test_between(seed, 0, 10)]);
  }
}

static void make(struct model *m, uint64_t *seed, int32_t code) {
  const struct np_op_info *info = np_op_info(code);
  const struct np_op_form *form = &info->forms[0];
  const uint32_t row = np_test_between(seed, 0, info->n_data - 1u);
  uint32_t arguments[8];
  const struct np_operand *first = NULL;
  uint32_t n = form->n_inputs;
  n -= form->inputs[n - 1].optional && np_test_between(seed, 0, 1) == 0;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t types = form->types == NULL ? 0 : form->types[row * form->n_inputs + i];
    if (form->inputs[i].kind != NP_INPUT_TENSOR) {
      arguments[i] = any_scalar(m, seed, form->inputs[i].kind, info->data_types[row].type);
    } else if (types == NP_BIT(NP_TYPE_TENSOR_INT32) && (i > 0) != (form->n_inputs == 2)) {
      arguments[i] = any_list(m, seed);
    } else {
      const int late = i == 0 || np_test_between(seed, 0, 1) == 0;
      arguments[i] =
          any_tensor(m, seed, any_type(seed, types), late ? NP_INPUT : NP_CONSTANT, first);
      first = first == NULL ? &m->operands[arguments[i]] : first;
    }
  }
  const int32_t type = any_type(seed, info->outputs[row]);
  const uint32_t out = model_operand(m, type, NP_OUTPUT, 0, NULL);
  any_quantisation(seed, &m->operands[out]);
  if (first != NULL && np_test_between(seed, 0, 2) > 0) {
    m->operands[out].scale = first->scale;
    m->operands[out].zero_point = first->zero_point;
  }
  model_operation(m, code, out, 0);
  memcpy(m->arguments[0][0], arguments, n * sizeof *arguments);
  m->operations[0].n_inputs = n;
}

/* Runs a model, with small sizes for unknown dimensions and an output of exactly the required
 * size. */
static enum np_status run(struct np_executor *executor, const struct model *m, uint64_t *seed) {
  struct np_message why = {""};
  struct np_buffer ins[MODEL_ENDS] = {{0}};
  struct np_buffer out = {0};
  uint32_t too_small;
  for (uint32_t i = 0; i < m->graph.n_inputs; i++) {
    const struct np_operand *operand = &m->operands[m->inputs[i]];
    ins[i] = (struct np_buffer){.data = values, .length = BYTES};
    if (operand->value != NULL) { /* a list */
      ins[i].data = (void *)(uintptr_t)operand->value;
      ins[i].length = operand->length;
    } else if (np_operand_elements(operand) == 0) {
      ins[i].rank = operand->rank == 0 ? np_test_between(seed, 1, 4) : operand->rank;
      for (uint32_t d = 0; d < ins[i].rank; d++) {
        const int known = operand->rank != 0 && operand->dims[d] != 0;
        ins[i].dims[d] = known ? operand->dims[d] : np_test_between(seed, 0, 3);
      }
    }
  }
  enum np_status status = np_executor_run(executor, ins, &out, NULL, &too_small, &why);
  if (too_small != UINT32_MAX) {
    size_t n = np_type_bytes(m->operands[m->outputs[0]].type);
    for (uint32_t d = 0; d < out.rank; d++) {
      n *= out.dims[d];
    }
    out.data = malloc(n);
    out.length = n;
    status = np_executor_run(executor, ins, &out, NULL, &too_small, &why);
    free(out.data);
  }
  CHECK(status == NP_OK || why.text[0] != '\0');
  return status;
}

int main(void) {
  uint64_t seed = 99;
  for (size_t k = 0; k < sizeof NAMES / sizeof NAMES[0]; k++) {
    uint32_t ran = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
      struct model *m = model_new();
      struct np_message why = {""};
      struct np_executor *executor = NULL;
      for (size_t b = 0; b < 1024; b++) {
        values[b] = (unsigned char)np_test_random(&seed);
      }
      make(m, &seed, np_operation_code(NAMES[k]));
      enum np_status status = np_graph_check(&m->graph, ANEURALNETWORKS_FEATURE_LEVEL_7, &why);
      if (status == NP_OK) {
        status = np_executor_create(&m->graph, NULL, &executor, &why);
      }
      if (status == NP_OK) {
        ran += run(executor, m, &seed) == NP_OK;
      } else {
        CHECK(executor == NULL && why.text[0] != '\0');
      }
      np_executor_free(executor);
      free(m);
    }
    if (!CHECK(ran > ROUNDS / 40)) {
      (void)fprintf(stderr, "%s ran %u times only\n", NAMES[k], ran);
    }
  }
  return np_test_exit();
}
