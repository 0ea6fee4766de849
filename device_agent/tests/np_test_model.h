/* Small models for the C tests of checks, kernels and executor. */
#ifndef NP_TEST_MODEL_H
#define NP_TEST_MODEL_H

#include <math.h>
#include <stdarg.h>

#include "np_executor.h"
#include "np_test.h"

enum { MODEL_OPERANDS = 512, MODEL_OPERATIONS = 128, MODEL_ARGUMENTS = 16, MODEL_ENDS = 16 };

/* A model being built, with its own memory for everything that np_graph points to. Build it with
 * the functions below, then call model_graph. */
struct model {
  struct np_operand operands[MODEL_OPERANDS];
  int32_t scalars[MODEL_OPERANDS][8]; /* values of small constants */
  struct np_operation operations[MODEL_OPERATIONS];
  uint32_t arguments[MODEL_OPERATIONS][2][MODEL_ARGUMENTS];
  uint32_t inputs[MODEL_ENDS];
  uint32_t outputs[MODEL_ENDS];
  struct np_graph graph;
};

static inline struct model *model_new(void) {
  struct model *model = calloc(1, sizeof *model);
  if (model == NULL) {
    abort();
  }
  model->graph.operands = model->operands;
  model->graph.operations = model->operations;
  model->graph.inputs = model->inputs;
  model->graph.outputs = model->outputs;
  return model;
}

static inline uint32_t model_operand(struct model *model, int32_t type, enum np_lifetime lifetime,
                                     uint32_t rank, const uint32_t *dims) {
  const uint32_t index = model->graph.n_operands++;
  struct np_operand *operand = &model->operands[index];
  operand->type = type;
  operand->lifetime = lifetime;
  operand->rank = rank;
  for (uint32_t d = 0; d < rank; d++) {
    operand->dims[d] = dims[d];
  }
  if (lifetime == NP_INPUT) {
    model->inputs[model->graph.n_inputs++] = index;
  } else if (lifetime == NP_OUTPUT) {
    model->outputs[model->graph.n_outputs++] = index;
  }
  return index;
}

/* A TENSOR_FLOAT32 of rank 0 to 4: unknown rank, or the dimensions that follow. */
static inline uint32_t model_tensor(struct model *model, enum np_lifetime lifetime, int rank, ...) {
  uint32_t dims[NP_MAX_RANK] = {0};
  va_list list;
  va_start(list, rank);
  for (int d = 0; d < rank; d++) {
    dims[d] = va_arg(list, uint32_t);
  }
  va_end(list);
  return model_operand(model, NP_TYPE_TENSOR_FLOAT32, lifetime, (uint32_t)rank, dims);
}

/* Makes an operand a constant of these bytes, which the caller owns. */
static inline void model_value(struct model *model, uint32_t operand, const void *value) {
  struct np_operand *one = &model->operands[operand];
  one->lifetime = NP_CONSTANT;
  one->value = value;
  one->length = np_operand_bytes(one);
}

static inline uint32_t model_i32(struct model *model, int32_t value) {
  const uint32_t index = model_operand(model, NP_TYPE_INT32, NP_CONSTANT, 0, NULL);
  model->scalars[index][0] = value;
  model_value(model, index, model->scalars[index]);
  return index;
}

static inline uint32_t model_f32(struct model *model, float value) {
  const uint32_t index = model_operand(model, NP_TYPE_FLOAT32, NP_CONSTANT, 0, NULL);
  memcpy(model->scalars[index], &value, sizeof value);
  model_value(model, index, model->scalars[index]);
  return index;
}

static inline uint32_t model_bool(struct model *model, int value) {
  const uint32_t index = model_operand(model, NP_TYPE_BOOL, NP_CONSTANT, 0, NULL);
  const unsigned char byte = value ? 1 : 0;
  memcpy(model->scalars[index], &byte, 1);
  model_value(model, index, model->scalars[index]);
  return index;
}

/* A constant TENSOR_INT32 of up to 8 values, of shape [n] or, with pairs, [n / 2, 2]. */
static inline uint32_t model_list(struct model *model, uint32_t n, const int32_t *values,
                                  int pairs) {
  const uint32_t flat[1] = {n};
  const uint32_t paired[2] = {n / 2, 2};
  const uint32_t index =
      model_operand(model, NP_TYPE_TENSOR_INT32, NP_CONSTANT, pairs ? 2 : 1, pairs ? paired : flat);
  memcpy(model->scalars[index], values, n * sizeof *values);
  model_value(model, index, model->scalars[index]);
  return index;
}

/* An operation with one output: model_operation(model, code, output, n_inputs, inputs...). */
static inline void model_operation(struct model *model, int32_t code, uint32_t output, int n_inputs,
                                   ...) {
  const uint32_t index = model->graph.n_operations++;
  struct np_operation *operation = &model->operations[index];
  va_list list;
  va_start(list, n_inputs);
  for (int i = 0; i < n_inputs; i++) {
    model->arguments[index][0][i] = va_arg(list, uint32_t);
  }
  va_end(list);
  model->arguments[index][1][0] = output;
  operation->code = code;
  operation->n_inputs = (uint32_t)n_inputs;
  operation->n_outputs = 1;
  operation->inputs = model->arguments[index][0];
  operation->outputs = model->arguments[index][1];
}

static inline enum np_status model_check(struct model *model, struct np_message *why) {
  return np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_4, why);
}

static inline float *random_floats(uint64_t *seed, size_t n) {
  float *values = malloc((n + 1) * sizeof *values);
  if (values == NULL) {
    abort();
  }
  for (size_t i = 0; i < n; i++) {
    values[i] = np_test_float(seed);
  }
  return values;
}

/* Checks and runs a model with one output of n floats; does not free the model. The output's buffer
 * has exactly the required length. Returns the run's status. */
static inline enum np_status model_run(struct model *model, const float *const *inputs,
                                       float *output, size_t n, struct np_message *why) {
  struct np_executor *executor = NULL;
  enum np_status status = model_check(model, why);
  if (status != NP_OK) {
    return status;
  }
  status = np_executor_create(&model->graph, NULL, &executor, why);
  if (status != NP_OK) {
    return status;
  }
  struct np_buffer ins[MODEL_ENDS] = {{0}};
  struct np_buffer out = {.data = output, .length = n * sizeof *output};
  uint32_t too_small;
  for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
    const struct np_operand *operand = &model->operands[model->inputs[i]];
    ins[i].data = (void *)(uintptr_t)inputs[i];
    ins[i].length = np_operand_bytes(operand);
  }
  status = np_executor_run(executor, ins, &out, NULL, &too_small, why);
  np_executor_free(executor);
  return status;
}

/* Returns the largest |a - b| / max(1, |b|). */
static inline float worst(const float *a, const float *b, size_t n) {
  float most = 0.0f;
  for (size_t i = 0; i < n; i++) {
    const float error = fabsf(a[i] - b[i]) / fmaxf(1.0f, fabsf(b[i]));
    most = error <= most ? most : error; /* NaN counts */
  }
  return most;
}

#endif
