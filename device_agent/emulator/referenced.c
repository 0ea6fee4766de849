/* The models of IF and WHILE: their inputs and outputs must fit the operation's operands, as NNAPI
 * documents and Android 11's runtime checks. */
#include <string.h>

#include "emulator.h"

/* Returns the inner model that operand `index` of the operation's model refers to; NULL if none is
 * set. */
static const ANeuralNetworksModel *referenced(const ANeuralNetworksModel *model, uint32_t index) {
  return model->graph.operands[index].type == NP_TYPE_MODEL ? model->extra[index].referenced : NULL;
}

static const struct np_operand *input_of(const ANeuralNetworksModel *model, uint32_t i) {
  return &model->declared[model->graph.inputs[i]];
}

static const struct np_operand *output_of(const ANeuralNetworksModel *model, uint32_t i) {
  return &model->declared[model->graph.outputs[i]];
}

static bool same_scale(float a, float b) { return !(a < b) && !(a > b); }

static bool same_channels(const struct np_operand *a, const struct np_operand *b) {
  if (!a->channel_scales || !b->channel_scales) {
    return a->channel_scales == b->channel_scales;
  }
  return a->channel_dim == b->channel_dim &&
         memcmp(a->channel_scales, b->channel_scales,
                a->dims[a->channel_dim] * sizeof *a->channel_scales) == 0;
}

/* Returns whether type, quantisation and known dimensions agree. */
static bool compatible(const struct np_operand *a, const struct np_operand *b) {
  return a->type == b->type && a->zero_point == b->zero_point && same_scale(a->scale, b->scale) &&
         np_dims_agree(a->rank, a->dims, b->rank, b->dims) && same_channels(a, b);
}

/* Returns whether an operand is a single BOOL8, as conditions are. */
static bool is_condition(const struct np_operand *operand) {
  return operand->type == NP_TYPE_TENSOR_BOOL8 && operand->rank == 1 && operand->dims[0] == 1;
}

/* Whether the inner model's inputs fit operands `outer` [n] of the model. */
static bool inputs_fit(const ANeuralNetworksModel *inner, const ANeuralNetworksModel *model,
                       const uint32_t *outer, uint32_t n) {
  if (inner->graph.n_inputs != n) {
    return false;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!compatible(input_of(inner, i), &model->graph.operands[outer[i]])) {
      return false;
    }
  }
  return true;
}

/* Whether the inner model's first outputs fit operands `outer` [n] of the model. */
static bool outputs_fit(const ANeuralNetworksModel *inner, const ANeuralNetworksModel *model,
                        const uint32_t *outer, uint32_t n) {
  if (inner->graph.n_outputs < n) {
    return false;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!compatible(output_of(inner, i), &model->graph.operands[outer[i]])) {
      return false;
    }
  }
  return true;
}

/* Checks IF: [condition, then model, else model, inputs...] -> outputs; both models have exactly
 * these inputs and outputs. */
static int check_if(const ANeuralNetworksModel *model, const struct np_operation *operation) {
  if (operation->n_inputs < 3 || operation->n_outputs < 1) {
    return NP_REFUSE(BAD_DATA, "IF needs three inputs and an output");
  }
  if (!is_condition(&model->graph.operands[operation->inputs[0]])) {
    return NP_REFUSE(BAD_DATA, "IF: the condition is not one BOOL8");
  }
  for (uint32_t branch = 1; branch <= 2; branch++) {
    const ANeuralNetworksModel *inner = referenced(model, operation->inputs[branch]);
    if (!inner) {
      return NP_REFUSE(BAD_DATA, "IF: input %u has no model", branch);
    }
    if (inner->graph.n_outputs != operation->n_outputs ||
        !inputs_fit(inner, model, operation->inputs + 3, operation->n_inputs - 3) ||
        !outputs_fit(inner, model, operation->outputs, operation->n_outputs)) {
      return NP_REFUSE(BAD_DATA, "IF: the model of input %u does not fit the operation", branch);
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Whether each output of a loop's body can be the input of the next round. */
static bool repeats(const ANeuralNetworksModel *body) {
  if (body->graph.n_inputs < body->graph.n_outputs) {
    return false;
  }
  for (uint32_t i = 0; i < body->graph.n_outputs; i++) {
    if (!compatible(input_of(body, i), output_of(body, i))) {
      return false;
    }
  }
  return true;
}

/* Checks WHILE: [condition model, body model, inputs...] -> outputs. Both models have these inputs;
 * the condition returns one BOOL8, the body the operation's outputs followed by more state. */
static int check_while(const ANeuralNetworksModel *model, const struct np_operation *operation) {
  if (operation->n_inputs < 3 || operation->n_outputs < 1) {
    return NP_REFUSE(BAD_DATA, "WHILE needs three inputs and an output");
  }
  const uint32_t *outer = operation->inputs + 2;
  const uint32_t n_outer = operation->n_inputs - 2;
  const ANeuralNetworksModel *condition = referenced(model, operation->inputs[0]);
  const ANeuralNetworksModel *body = referenced(model, operation->inputs[1]);
  if (!condition || !body) {
    return NP_REFUSE(BAD_DATA, "WHILE: the condition or the body has no model");
  }
  if (!inputs_fit(condition, model, outer, n_outer) || condition->graph.n_outputs != 1 ||
      !is_condition(output_of(condition, 0))) {
    return NP_REFUSE(BAD_DATA, "WHILE: the condition model does not fit the operation");
  }
  if (!inputs_fit(body, model, outer, n_outer) ||
      !outputs_fit(body, model, operation->outputs, operation->n_outputs) || !repeats(body)) {
    return NP_REFUSE(BAD_DATA, "WHILE: the body model does not fit the operation");
  }
  return ANEURALNETWORKS_NO_ERROR;
}

int np_check_referenced_models(const ANeuralNetworksModel *model,
                               const struct np_operation *operation) {
  switch (operation->code) {
  case ANEURALNETWORKS_IF:
    return check_if(model, operation);
  case ANEURALNETWORKS_WHILE:
    return check_while(model, operation);
  default:
    return ANEURALNETWORKS_NO_ERROR;
  }
}
