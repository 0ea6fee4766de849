/* ANeuralNetworksModel_*: operands and their values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

int ANeuralNetworksModel_addOperand(ANeuralNetworksModel *model,
                                    const ANeuralNetworksOperandType *type) {
  if (!model || !type) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or type is NULL");
  }
  NP_TRY_OPEN(model);
  const int code = np_check_operand_type(type, true);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }

  struct np_graph *graph = &model->graph;
  void *operands = graph->operands, *extra = model->extra;
  const uint32_t room = model->operand_room, n = graph->n_operands;
  const int grew_operands = np_grow(&operands, n, room, sizeof *graph->operands);
  graph->operands = operands;
  const int grew_extra = grew_operands && np_grow(&extra, n, room, sizeof *model->extra);
  model->extra = extra;
  if (!grew_extra) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for operand %u", n);
  }
  model->operand_room = np_grown_room(n, room);

  struct np_operand *operand = &graph->operands[n];
  *operand = (struct np_operand){.type = type->type,
                                 .rank = type->dimensionCount,
                                 .scale = type->scale,
                                 .zero_point = type->zeroPoint,
                                 .lifetime = NP_TEMPORARY};
  for (uint32_t i = 0; i < type->dimensionCount; i++) {
    operand->dims[i] = type->dimensions[i];
  }
  model->extra[n] = (struct np_model_operand){0};
  graph->n_operands = n + 1;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Does the checks of all setOperandValue* functions; NO_ERROR and *operand. */
static int open_operand(ANeuralNetworksModel *model, int32_t index, const char *function,
                        struct np_operand **operand) {
  const int code = np_model_check_open(model, function);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (index < 0 || (uint32_t)index >= model->graph.n_operands) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "operand %d of %u does not exist", index,
                     model->graph.n_operands);
  }
  *operand = &model->graph.operands[index];
  if ((*operand)->lifetime == NP_INPUT || (*operand)->lifetime == NP_OUTPUT) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "operand %d is a model input or output",
                     index);
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Makes the operand a constant at `value`, or one without value if that is NULL. Takes ownership of
 * `copy`, its copy. */
static void set_value(ANeuralNetworksModel *model, int32_t index, const void *value, size_t length,
                      void *copy) {
  struct np_operand *operand = &model->graph.operands[index];
  struct np_model_operand *extra = &model->extra[index];
  free(extra->copy);
  extra->copy = copy;
  extra->referenced = NULL;
  operand->value = value;
  operand->length = length;
  operand->lifetime = value ? NP_CONSTANT : NP_NO_VALUE;
}

int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel *model, int32_t index,
                                         const void *buffer, size_t length) {
  if (!model || (!buffer && length != 0)) {
    return NP_REFUSE(UNEXPECTED_NULL, "model is NULL, or buffer is and has a length");
  }
  struct np_operand *operand = NULL;
  const int code = open_operand(model, index, __func__, &operand);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (!buffer) {
    set_value(model, index, NULL, 0, NULL);
    return ANEURALNETWORKS_NO_ERROR;
  }
  const size_t wanted = np_operand_bytes(operand);
  if (length != wanted || wanted == 0) {
    return NP_REFUSE(BAD_DATA, "operand %d: value of %zu bytes, wanted %zu", index, length, wanted);
  }
  void *copy = NULL;
  if (length <= ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES) {
    copy = malloc(length);
    if (!copy) {
      return NP_REFUSE(OUT_OF_MEMORY, "no memory for operand %d", index);
    }
    memcpy(copy, buffer, length);
  }
  set_value(model, index, copy ? copy : buffer, length, copy);
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksModel_setOperandValueFromMemory(ANeuralNetworksModel *model, int32_t index,
                                                   const ANeuralNetworksMemory *memory,
                                                   size_t offset, size_t length) {
  if (!model || !memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or memory is NULL");
  }
  struct np_operand *operand = NULL;
  const int code = open_operand(model, index, __func__, &operand);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  const size_t wanted = np_operand_bytes(operand);
  if (length != wanted || wanted == 0) {
    return NP_REFUSE(BAD_DATA, "operand %d: value of %zu bytes, wanted %zu", index, length, wanted);
  }
  void *data = NULL;
  const int range = np_memory_range(memory, NULL, offset, &length, &data);
  if (range != ANEURALNETWORKS_NO_ERROR) {
    return range;
  }
  if (!memory->readable) {
    return NP_REFUSE(BAD_DATA, "the memory is not readable");
  }
  set_value(model, index, data, length, NULL);
  return ANEURALNETWORKS_NO_ERROR;
}

/* Sets a model for IF or WHILE: `value` must be finished and outlive the model. */
int ANeuralNetworksModel_setOperandValueFromModel(ANeuralNetworksModel *model, int32_t index,
                                                  const ANeuralNetworksModel *value) {
  if (!model || !value) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or value is NULL");
  }
  struct np_operand *operand = NULL;
  const int open = np_model_check_open(model, __func__);
  if (open != ANEURALNETWORKS_NO_ERROR) {
    return open;
  }
  if (!value->finished) {
    return NP_REFUSE(BAD_STATE, "the value is not finished");
  }
  const int code = open_operand(model, index, __func__, &operand);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (operand->type != NP_TYPE_MODEL) {
    return NP_REFUSE(BAD_DATA, "operand %d has type %d, wanted a model's", index, operand->type);
  }
  set_value(model, index, &value->graph, 0, NULL);
  model->extra[index].referenced = value;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    ANeuralNetworksModel *model, int32_t index,
    const ANeuralNetworksSymmPerChannelQuantParams *channelQuant) {
  if (!model || !channelQuant) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or parameters are NULL");
  }
  NP_TRY_OPEN(model);
  if (index < 0 || (uint32_t)index >= model->graph.n_operands) {
    return NP_REFUSE(BAD_DATA, "operand %d does not exist", index);
  }
  struct np_operand *operand = &model->graph.operands[index];
  const uint32_t dim = channelQuant->channelDim, n = channelQuant->scaleCount;
  if (operand->type != NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL || dim >= operand->rank ||
      !channelQuant->scales || n == 0 || n != operand->dims[dim]) { /* 0 is unknown */
    return NP_REFUSE(BAD_DATA, "operand %d: %u scales along dimension %u do not fit", index, n,
                     dim);
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!(channelQuant->scales[i] > 0) || !isfinite(channelQuant->scales[i])) {
      return NP_REFUSE(BAD_DATA, "scale %u is no positive number", i);
    }
  }
  float *scales = malloc(n * sizeof *scales);
  if (!scales) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for %u scales", n);
  }
  memcpy(scales, channelQuant->scales, n * sizeof *scales);
  struct np_model_operand *extra = &model->extra[index];
  free(extra->channel_scales);
  extra->channel_scales = scales;
  operand->channel_scales = scales;
  operand->channel_dim = dim;
  return ANEURALNETWORKS_NO_ERROR;
}
