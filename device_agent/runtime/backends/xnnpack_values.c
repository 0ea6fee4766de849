/* Operands as XNNPACK's values. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "backends/xnnpack_rules.h"

/* Reading beyond a buffer's end is harmless as long as it stays on the buffer's last page; no
 * machine has smaller ones. */
#define PAGE_BYTES 4096u

struct np_xnn_block {
  struct np_xnn_block *next;
  _Alignas(max_align_t) unsigned char bytes[];
};

void *np_xnn_room(struct np_xnn_graph *graph, size_t bytes) {
  const size_t size = np_plus(sizeof(struct np_xnn_block), np_plus(bytes, XNN_EXTRA_BYTES));
  struct np_xnn_block *block = size == SIZE_MAX ? NULL : calloc(1, size);
  if (block == NULL) {
    return NULL;
  }
  block->next = graph->blocks;
  graph->blocks = block;
  return block->bytes;
}

void np_xnn_free_blocks(struct np_xnn_block *blocks) {
  while (blocks != NULL) {
    struct np_xnn_block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
}

int np_xnn_must_copy(const void *data, size_t bytes, size_t element) {
  const uintptr_t first = (uintptr_t)data;
  const uintptr_t end = first + bytes;
  return first % element != 0 || (end - 1) / PAGE_BYTES != (end - 1 + XNN_EXTRA_BYTES) / PAGE_BYTES;
}

static enum xnn_datatype datatype(int32_t type) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT32:
    return xnn_datatype_fp32;
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return xnn_datatype_quint8;
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return xnn_datatype_qint8;
  default:
    return xnn_datatype_invalid;
  }
}

/* Defines a value of an operand's type; data are a constant's, else NULL. */
static enum xnn_status define(struct np_xnn_graph *graph, const struct np_operand *operand,
                              const struct np_tensor *tensor, const void *data, uint32_t external,
                              uint32_t flags, uint32_t *id) {
  const enum xnn_datatype type = datatype(operand->type);
  NP_XNN_NEED(type != xnn_datatype_invalid && tensor->known && tensor->elements > 0 &&
              tensor->rank > 0 && tensor->rank <= XNN_MAX_TENSOR_DIMS);
  size_t dims[XNN_MAX_TENSOR_DIMS];
  for (uint32_t d = 0; d < tensor->rank; d++) {
    dims[d] = tensor->dims[d];
  }
  if (type == xnn_datatype_fp32) {
    return xnn_define_tensor_value(graph->subgraph, type, tensor->rank, dims, data, external, flags,
                                   id);
  }
  NP_XNN_NEED(isnormal(operand->scale) && operand->scale > 0.0f);
  return xnn_define_quantized_tensor_value(graph->subgraph, type, operand->zero_point,
                                           operand->scale, tensor->rank, dims, data, external,
                                           flags, id);
}

/* Where XNNPACK can read a constant: in place or, for good, a copy. */
static const void *readable(struct np_xnn_graph *graph, const struct np_operand *operand,
                            const struct np_tensor *tensor) {
  const size_t element = np_type_bytes(operand->type);
  const size_t bytes = tensor->elements * element;
  if (graph->values == NULL || !np_xnn_must_copy(tensor->data, bytes, element)) {
    return tensor->data;
  }
  void *copy = np_xnn_room(graph, bytes);
  if (copy != NULL) {
    memcpy(copy, tensor->data, bytes);
  }
  return copy;
}

static enum xnn_status value_of(struct np_xnn_graph *graph, const struct np_call *call,
                                uint32_t index, uint32_t *id) {
  const struct np_operand *operand = &call->graph->operands[index];
  const struct np_tensor *tensor = &call->tensors[index];
  if (graph->values != NULL && graph->values[index] != XNN_INVALID_VALUE_ID) {
    *id = graph->values[index];
    return xnn_status_success;
  }
  const void *data = NULL;
  if (operand->lifetime == NP_CONSTANT) {
    NP_XNN_NEED(tensor->known && tensor->elements > 0 && tensor->data != NULL);
    data = readable(graph, operand, tensor);
    if (data == NULL) {
      return xnn_status_out_of_memory;
    }
  }
  NP_XNN_TRY(define(graph, operand, tensor, data, XNN_INVALID_VALUE_ID, 0, id));
  if (graph->values != NULL) {
    graph->values[index] = *id;
  }
  return xnn_status_success;
}

enum xnn_status np_xnn_in(struct np_xnn_graph *graph, const struct np_call *call, uint32_t input,
                          uint32_t *id) {
  NP_XNN_NEED(np_has(call, input));
  return value_of(graph, call, call->operation->inputs[input], id);
}

enum xnn_status np_xnn_out(struct np_xnn_graph *graph, const struct np_call *call, uint32_t output,
                           uint32_t *id) {
  return value_of(graph, call, call->operation->outputs[output], id);
}

enum xnn_status np_xnn_external(struct np_xnn_graph *graph, const struct np_operand *operand,
                                const struct np_tensor *tensor, uint32_t external, uint32_t flags) {
  uint32_t id = XNN_INVALID_VALUE_ID;
  NP_XNN_TRY(define(graph, operand, tensor, NULL, external, flags, &id));
  NP_XNN_NEED(id == external);
  return xnn_status_success;
}

/* Whether a product's scale can be brought to the output's: XNNPACK's own limits. */
static int rescales(double product, const struct np_operand *output) {
  const double scale = product / (double)output->scale;
  return scale < 256.0 && scale >= 0x1.0p-31;
}

/* Weights with a scale for each output channel, which is their channel_dim. */
static enum xnn_status channel_weights(struct np_xnn_graph *graph, const struct np_call *call,
                                       uint32_t input, uint32_t *weights, uint32_t *bias) {
  const struct np_operand *data = np_in_operand(call, 0);
  const struct np_operand *operand = np_in_operand(call, input);
  const struct np_tensor *tensor = np_in(call, input);
  const struct np_tensor *added = np_in(call, input + 1);
  NP_XNN_NEED(operand->channel_scales != NULL && operand->channel_dim < tensor->rank &&
              tensor->rank == 4 && added->rank == 1 &&
              added->elements == tensor->dims[operand->channel_dim]);
  const size_t channels = added->elements;
  /* One row of scales for the weights, one for the bias. */
  float *scales = np_xnn_room(graph, np_times(channels, 2 * sizeof *scales));
  if (scales == NULL) {
    return xnn_status_out_of_memory;
  }
  for (size_t c = 0; c < channels; c++) {
    const float scale = operand->channel_scales[c];
    const double product = (double)data->scale * (double)scale;
    NP_XNN_NEED(isnormal(scale) && scale > 0.0f && rescales(product, np_out_operand(call, 0)));
    scales[c] = scale;
    scales[channels + c] = (float)product;
  }
  const size_t dims[4] = {tensor->dims[0], tensor->dims[1], tensor->dims[2], tensor->dims[3]};
  NP_XNN_TRY(xnn_define_channelwise_quantized_tensor_value(
      graph->subgraph, xnn_datatype_qcint8, scales, 4, operand->channel_dim, dims, tensor->data,
      XNN_INVALID_VALUE_ID, 0, weights));
  return xnn_define_channelwise_quantized_tensor_value(graph->subgraph, xnn_datatype_qcint32,
                                                       scales + channels, 1, 0, &channels,
                                                       added->data, XNN_INVALID_VALUE_ID, 0, bias);
}

/* A constant that packing alone reads, to its last byte: from where it is. */
static enum xnn_status packed(struct np_xnn_graph *graph, const struct np_call *call,
                              uint32_t input, uint32_t *id) {
  const struct np_tensor *tensor = np_in(call, input);
  NP_XNN_NEED((uintptr_t)tensor->data % np_type_bytes(tensor->type) == 0);
  return define(graph, np_in_operand(call, input), tensor, tensor->data, XNN_INVALID_VALUE_ID, 0,
                id);
}

enum xnn_status np_xnn_weights(struct np_xnn_graph *graph, const struct np_call *call,
                               uint32_t input, uint32_t *weights, uint32_t *bias) {
  const struct np_operand *operand = np_in_operand(call, input);
  const struct np_operand *data = np_in_operand(call, 0);
  const struct np_tensor *added = np_in(call, input + 1);
  NP_XNN_NEED(np_has(call, input) && np_has(call, input + 1));
  NP_XNN_NEED(operand->lifetime == NP_CONSTANT && np_in(call, input)->data != NULL &&
              np_in_operand(call, input + 1)->lifetime == NP_CONSTANT && added->data != NULL);
  /* Packing reads them where they are. */
  NP_XNN_NEED((uintptr_t)added->data % sizeof(float) == 0);
  if (operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    return channel_weights(graph, call, input, weights, bias);
  }
  NP_XNN_NEED(operand->type == data->type);
  NP_XNN_TRY(packed(graph, call, input, weights));
  if (operand->type == NP_TYPE_TENSOR_FLOAT32) {
    return packed(graph, call, input + 1, bias);
  }
  const double product = (double)data->scale * (double)operand->scale;
  NP_XNN_NEED(isnormal((float)product) && rescales(product, np_out_operand(call, 0)));
  const size_t elements = added->elements;
  return xnn_define_quantized_tensor_value(graph->subgraph, xnn_datatype_qint32, 0, (float)product,
                                           1, &elements, added->data, XNN_INVALID_VALUE_ID, 0,
                                           bias);
}
