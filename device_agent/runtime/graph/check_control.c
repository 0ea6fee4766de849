/* The rules of IF and WHILE: the models they run, whose inputs and outputs must fit. */
#include "graph/np_check.h"

/* Deepest nesting of models; deeper ones are refused, since each level multiplies executors. */
#define MAX_DEPTH 4

static const struct np_operand *input_of(const struct np_graph *graph, uint32_t i) {
  return &graph->operands[graph->inputs[i]];
}

static const struct np_operand *output_of(const struct np_graph *graph, uint32_t i) {
  return &graph->operands[graph->outputs[i]];
}

/* Reads an input that is a model. NP_BAD_MODEL if it has no value. */
static enum np_status read_model(const struct np_call *call, uint32_t input,
                                 const struct np_graph **model) {
  const struct np_operand *operand = np_in_operand(call, input);
  if (operand->lifetime != NP_CONSTANT || operand->value == NULL) {
    return np_fail(call, NP_BAD_MODEL, "input %u (operand %u) is a model that is not set", input,
                   call->operation->inputs[input]);
  }
  *model = operand->value;
  return NP_OK;
}

/* Checks that the model's inputs have the number and types of the operation's from `first` on. */
static enum np_status check_inputs(const struct np_call *call, const struct np_graph *model,
                                   uint32_t first, const char *what) {
  const uint32_t n = call->operation->n_inputs - first;
  if (model->n_inputs != n) {
    return np_fail(call, NP_BAD_MODEL, "the %s model has %u inputs, wanted %u", what,
                   model->n_inputs, n);
  }
  for (uint32_t i = 0; i < n; i++) {
    const int32_t found = input_of(model, i)->type;
    const int32_t wanted = np_in_operand(call, first + i)->type;
    if (found != wanted) {
      return np_fail(call, NP_BAD_MODEL, "input %u of the %s model is %s, wanted %s", i, what,
                     np_type_name(found), np_type_name(wanted));
    }
  }
  return NP_OK;
}

/* Checks that the model's first outputs have the types of the operation's. */
static enum np_status check_outputs(const struct np_call *call, const struct np_graph *model,
                                    const char *what) {
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    const int32_t found = output_of(model, i)->type;
    const int32_t wanted = np_out_operand(call, i)->type;
    if (found != wanted) {
      return np_fail(call, NP_BAD_MODEL, "output %u of the %s model is %s, wanted %s", i, what,
                     np_type_name(found), np_type_name(wanted));
    }
  }
  return NP_OK;
}

static enum np_status check_if(const struct np_call *call, const struct np_graph *const *models) {
  static const char *const WHAT[] = {"then", "else"};
  const struct np_operand *condition = np_in_operand(call, 0);
  if (condition->type != NP_TYPE_TENSOR_BOOL8) {
    return np_fail(call, NP_BAD_MODEL, "the condition (operand %u) is %s, wanted TENSOR_BOOL8",
                   call->operation->inputs[0], np_type_name(condition->type));
  }
  for (uint32_t i = 0; i < 2; i++) {
    NP_TRY(check_inputs(call, models[i], 3, WHAT[i]));
    if (models[i]->n_outputs != call->operation->n_outputs) {
      return np_fail(call, NP_BAD_MODEL, "the %s model has %u outputs, wanted %u", WHAT[i],
                     models[i]->n_outputs, call->operation->n_outputs);
    }
    NP_TRY(check_outputs(call, models[i], WHAT[i]));
  }
  return NP_OK;
}

static enum np_status check_while(const struct np_call *call,
                                  const struct np_graph *const *models) {
  NP_TRY(check_inputs(call, models[0], 2, "condition"));
  NP_TRY(check_inputs(call, models[1], 2, "body"));
  if (models[0]->n_outputs != 1 || output_of(models[0], 0)->type != NP_TYPE_TENSOR_BOOL8) {
    return np_fail(call, NP_BAD_MODEL, "the condition model's output is not one TENSOR_BOOL8");
  }
  const uint32_t n = models[1]->n_outputs;
  if (n < call->operation->n_outputs || n > models[1]->n_inputs) {
    return np_fail(call, NP_BAD_MODEL, "the body model has %u outputs, wanted %u to %u", n,
                   call->operation->n_outputs, models[1]->n_inputs);
  }
  NP_TRY(check_outputs(call, models[1], "body"));
  for (uint32_t i = 0; i < n; i++) { /* outputs become inputs again */
    const int32_t found = output_of(models[1], i)->type;
    const int32_t wanted = input_of(models[1], i)->type;
    if (found != wanted) {
      return np_fail(call, NP_BAD_MODEL, "output %u of the body model is %s, wanted %s", i,
                     np_type_name(found), np_type_name(wanted));
    }
  }
  return NP_OK;
}

/* Returns the depth of nested models: 1 for a model without any, at most `most` + 1. */
static int depth_of(const struct np_graph *graph, int most) {
  int deepest = 0;
  for (uint32_t i = 0; most > 0 && i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    if (operand->type == NP_TYPE_MODEL && operand->lifetime == NP_CONSTANT) {
      const int one = depth_of(operand->value, most - 1);
      deepest = one > deepest ? one : deepest;
    }
  }
  return deepest + 1;
}

enum np_status np_check_control(const struct np_call *call, int32_t feature_level) {
  const int is_if = call->operation->code == ANEURALNETWORKS_IF;
  const struct np_graph *models[2];
  for (uint32_t i = 0; i < 2; i++) {
    NP_TRY(read_model(call, is_if ? i + 1 : i, &models[i]));
  }
  NP_TRY(is_if ? check_if(call, models) : check_while(call, models));
  for (uint32_t i = 0; i < 2; i++) {
    if (depth_of(models[i], MAX_DEPTH) > MAX_DEPTH) {
      return np_fail(call, NP_UNSUPPORTED, "models stand in models more than %d deep", MAX_DEPTH);
    }
    for (uint32_t o = 0; o < models[i]->n_operations; o++) {
      NP_TRY(np_operation_check(models[i], o, feature_level, call->why));
    }
  }
  return NP_OK;
}
