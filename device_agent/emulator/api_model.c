/* ANeuralNetworksModel_*: operations, inputs and outputs, finishing and freeing. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

int np_model_check_open(const ANeuralNetworksModel *model, const char *function) {
  if (model->finished) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "the model is finished");
  }
  if (model->invalid) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "finish has refused the model");
  }
  return ANEURALNETWORKS_NO_ERROR;
}

int np_grow(void **array, uint32_t used, uint32_t room, size_t element) {
  if (used < room) {
    return 1;
  }
  const size_t wanted = room ? (size_t)room * 2 : 16;
  if (wanted > UINT32_MAX / 2) {
    return 0;
  }
  void *grown = realloc(*array, wanted * element);
  if (!grown) {
    return 0;
  }
  *array = grown;
  return 1;
}

uint32_t np_grown_room(uint32_t used, uint32_t room) {
  return used < room ? room : room ? room * 2 : 16;
}

/* Copies an index list, NULL if memory is short; an empty list has one unused element. */
static uint32_t *copy_list(const uint32_t *list, uint32_t n) {
  uint32_t *copy = malloc((n ? n : 1) * sizeof *copy);
  if (copy && n) {
    memcpy(copy, list, n * sizeof *copy);
  }
  return copy;
}

static bool list_fits(const ANeuralNetworksModel *model, const uint32_t *list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (list[i] >= model->graph.n_operands) {
      return false;
    }
  }
  return true;
}

int ANeuralNetworksModel_create(ANeuralNetworksModel **model) {
  if (!model) {
    return NP_REFUSE(UNEXPECTED_NULL, "model is NULL");
  }
  *model = calloc(1, sizeof **model);
  return *model ? ANEURALNETWORKS_NO_ERROR : NP_REFUSE(OUT_OF_MEMORY, "no memory");
}

void ANeuralNetworksModel_free(ANeuralNetworksModel *model) {
  if (!model) {
    return;
  }
  for (uint32_t i = 0; i < model->graph.n_operands; i++) {
    free(model->extra[i].copy);
    free(model->extra[i].channel_scales);
  }
  for (uint32_t i = 0; i < model->graph.n_operations; i++) {
    free((void *)(uintptr_t)model->graph.operations[i].inputs);
    free((void *)(uintptr_t)model->graph.operations[i].outputs);
  }
  free((void *)(uintptr_t)model->graph.inputs);
  free((void *)(uintptr_t)model->graph.outputs);
  free(model->graph.operands);
  free(model->graph.operations);
  free(model->extra);
  free(model->declared);
  free(model->order);
  free(model);
}

/* Checks an added operation. A valid one without a kernel here is accepted, as on Android; no
 * device will support it. */
static int check_operation(const ANeuralNetworksModel *model, uint32_t index,
                           const char *function) {
  struct np_message why = {""};
  const enum np_status status =
      np_operation_check(&model->graph, index, np_device_table()->level, &why);
  if (status != NP_OK && status != NP_UNSUPPORTED) {
    return np_refuse(np_result_code(status), function, "%s", why.text);
  }
  return np_check_referenced_models(model, &model->graph.operations[index]);
}

int ANeuralNetworksModel_addOperation(ANeuralNetworksModel *model,
                                      ANeuralNetworksOperationType type, uint32_t inputCount,
                                      const uint32_t *inputs, uint32_t outputCount,
                                      const uint32_t *outputs) {
  if (!model || !inputs || !outputs) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or a list is NULL");
  }
  NP_TRY_OPEN(model);
  if (type < 0 || type >= NP_OPERATION_CODES || np_operation_level(type) == 0) {
    return NP_REFUSE(BAD_DATA, "%d is no operation of NNAPI", type);
  }
  if (!list_fits(model, inputs, inputCount) || !list_fits(model, outputs, outputCount)) {
    return NP_REFUSE(BAD_DATA, "%s names an operand that does not exist", np_operation_name(type));
  }
  struct np_graph *graph = &model->graph;
  void *operations = graph->operations;
  const uint32_t room = model->operation_room, n = graph->n_operations;
  const int grew = np_grow(&operations, n, room, sizeof *graph->operations);
  graph->operations = operations;
  if (!grew) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for operation %u", n);
  }
  model->operation_room = np_grown_room(n, room);

  struct np_operation *operation = &graph->operations[n];
  *operation = (struct np_operation){.code = type,
                                     .n_inputs = inputCount,
                                     .n_outputs = outputCount,
                                     .inputs = copy_list(inputs, inputCount),
                                     .outputs = copy_list(outputs, outputCount)};
  int code = ANEURALNETWORKS_OUT_OF_MEMORY;
  if (operation->inputs && operation->outputs) {
    graph->n_operations = n + 1;
    code = check_operation(model, n, __func__);
    if (code == ANEURALNETWORKS_NO_ERROR) {
      return code;
    }
    graph->n_operations = n;
  }
  free((void *)(uintptr_t)operation->inputs);
  free((void *)(uintptr_t)operation->outputs);
  return code;
}

/* Gives each operand of the list a lifetime, up to the first one that already has a value or
 * another lifetime; returns how many got it. */
static uint32_t mark(ANeuralNetworksModel *model, const uint32_t *list, uint32_t n,
                     enum np_lifetime from, enum np_lifetime to) {
  for (uint32_t i = 0; i < n; i++) {
    struct np_operand *operand = &model->graph.operands[list[i]];
    if (operand->lifetime != from) {
      return i;
    }
    operand->lifetime = to;
  }
  return n;
}

/* Marks inputs and outputs, or nothing: BAD_DATA if an operand has a value or is listed twice. */
static int mark_ends(ANeuralNetworksModel *model, const uint32_t *inputs, uint32_t n_inputs,
                     const uint32_t *outputs, uint32_t n_outputs) {
  const uint32_t in = mark(model, inputs, n_inputs, NP_TEMPORARY, NP_INPUT);
  const uint32_t out =
      in == n_inputs ? mark(model, outputs, n_outputs, NP_TEMPORARY, NP_OUTPUT) : 0;
  if (in == n_inputs && out == n_outputs) {
    return ANEURALNETWORKS_NO_ERROR;
  }
  const uint32_t operand = in < n_inputs ? inputs[in] : outputs[out];
  (void)mark(model, inputs, in, NP_INPUT, NP_TEMPORARY);
  (void)mark(model, outputs, out, NP_OUTPUT, NP_TEMPORARY);
  return NP_REFUSE(BAD_DATA, "operand %u has a value or stands in the lists twice", operand);
}

/* May be called once per model; a refused call does not change the model. */
int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel *model, uint32_t inputCount,
                                                  const uint32_t *inputs, uint32_t outputCount,
                                                  const uint32_t *outputs) {
  if (!model || !inputs || !outputs) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or a list is NULL");
  }
  NP_TRY_OPEN(model);
  if (model->identified) {
    return NP_REFUSE(BAD_DATA, "inputs and outputs were identified before");
  }
  if (!list_fits(model, inputs, inputCount) || !list_fits(model, outputs, outputCount)) {
    return NP_REFUSE(BAD_DATA, "an operand does not exist");
  }
  uint32_t *input_copy = copy_list(inputs, inputCount);
  uint32_t *output_copy = copy_list(outputs, outputCount);
  const int code = input_copy && output_copy
                       ? mark_ends(model, inputs, inputCount, outputs, outputCount)
                       : NP_REFUSE(OUT_OF_MEMORY, "no memory for the lists");
  if (code != ANEURALNETWORKS_NO_ERROR) {
    free(input_copy);
    free(output_copy);
    return code;
  }
  struct np_graph *graph = &model->graph;
  graph->inputs = input_copy;
  graph->outputs = output_copy;
  graph->n_inputs = inputCount;
  graph->n_outputs = outputCount;
  model->identified = true;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel *model, bool allow) {
  if (!model) {
    return NP_REFUSE(UNEXPECTED_NULL, "model is NULL");
  }
  NP_TRY_OPEN(model);
  model->relaxed = allow; /* kernels still compute in float32; only the simulated time differs */
  return ANEURALNETWORKS_NO_ERROR;
}

/* Copies constants that are not aligned to their type, as callers' pointers and memories need not
 * be. OUT_OF_MEMORY, or NO_ERROR. */
static int align_values(ANeuralNetworksModel *model, const char *function) {
  for (uint32_t i = 0; i < model->graph.n_operands; i++) {
    struct np_operand *operand = &model->graph.operands[i];
    const size_t alignment = np_type_bytes(operand->type);
    if (operand->lifetime != NP_CONSTANT || alignment == 0 ||
        (uintptr_t)operand->value % alignment == 0) {
      continue;
    }
    void *copy = malloc(operand->length);
    if (!copy) {
      return np_refuse(ANEURALNETWORKS_OUT_OF_MEMORY, function, "no memory for operand %u", i);
    }
    memcpy(copy, operand->value, operand->length);
    free(model->extra[i].copy);
    model->extra[i].copy = copy;
    operand->value = copy;
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Returns BAD_DATA if an operand of per-channel type has no scales. */
static int check_channel_scales(const ANeuralNetworksModel *model, const char *function) {
  for (uint32_t i = 0; i < model->graph.n_operands; i++) {
    const struct np_operand *operand = &model->graph.operands[i];
    if (operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL && !operand->channel_scales) {
      return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "operand %u has no channel scales", i);
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Sorts and checks the graph; on success `order` and `declared` are set. */
static int finish(ANeuralNetworksModel *model, const char *function) {
  struct np_graph *graph = &model->graph;
  if (!model->identified || graph->n_inputs == 0 || graph->n_outputs == 0 ||
      graph->n_operations == 0) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "no inputs, outputs or operations");
  }
  int code = check_channel_scales(model, function);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    code = align_values(model, function);
  }
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  const uint32_t n = graph->n_operations;
  model->order = malloc(n * sizeof *model->order);
  model->declared = malloc(graph->n_operands * sizeof *model->declared);
  const uint32_t **before = malloc(n * sizeof *before);
  code = ANEURALNETWORKS_OUT_OF_MEMORY;
  if (model->order && model->declared && before) {
    memcpy(model->declared, graph->operands, graph->n_operands * sizeof *model->declared);
    for (uint32_t i = 0; i < n; i++) {
      before[i] = graph->operations[i].inputs;
    }
    struct np_message why = {""};
    const enum np_status status = np_graph_check(graph, np_device_table()->level, &why);
    for (uint32_t i = 0; i < n; i++) { /* each operation owns a list, whose address identifies it */
      model->order[i] = 0;
      while (before[model->order[i]] != graph->operations[i].inputs) {
        model->order[i]++;
      }
    }
    code = status == NP_OK || status == NP_UNSUPPORTED
               ? ANEURALNETWORKS_NO_ERROR
               : np_refuse(np_result_code(status), function, "%s", why.text);
  }
  free(before);
  return code;
}

int ANeuralNetworksModel_finish(ANeuralNetworksModel *model) {
  if (!model) {
    return NP_REFUSE(UNEXPECTED_NULL, "model is NULL");
  }
  NP_TRY_OPEN(model);
  const int code = finish(model, __func__);
  model->finished = code == ANEURALNETWORKS_NO_ERROR;
  model->invalid = !model->finished;
  return code;
}

int ANeuralNetworksModel_getSupportedOperationsForDevices(
    const ANeuralNetworksModel *model, const ANeuralNetworksDevice *const *devices,
    uint32_t numDevices, bool *supportedOps) {
  if (!model || !supportedOps) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or result is NULL");
  }
  const int code = np_check_device_list(devices, numDevices);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (!model->finished) {
    return NP_REFUSE(BAD_STATE, "the model is not finished");
  }
  for (uint32_t i = 0; i < model->graph.n_operations; i++) {
    bool supported = false;
    for (uint32_t d = 0; d < numDevices && !supported; d++) {
      supported = np_device_supports(devices[d], model, i);
    }
    supportedOps[model->order[i]] = supported;
  }
  return ANEURALNETWORKS_NO_ERROR;
}
