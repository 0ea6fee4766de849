/* Defines XNNPACK's values for operands. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "backends/xnnpack_rules.h"

/* Smallest page of any machine: reading beyond a buffer's end is harmless within its last page. */
#define PAGE_BYTES 4096u

struct np_xnn_block {
  struct np_xnn_block *next;
  _Alignas(max_align_t) unsigned char bytes[];
};

static void *make_block(struct np_xnn_block **list, size_t bytes) {
  const size_t size =
      np_add_saturated(sizeof(struct np_xnn_block), np_add_saturated(bytes, XNN_EXTRA_BYTES));
  struct np_xnn_block *block = size == SIZE_MAX ? NULL : calloc(1, size);
  if (block == NULL) {
    return NULL;
  }
  block->next = *list;
  *list = block;
  return block->bytes;
}

void *np_xnn_room(struct np_xnn_graph *graph, size_t bytes) {
  return make_block(&graph->blocks, bytes);
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

int np_xnn_flips(const struct np_xnn_graph *graph, int32_t type) {
  return graph->way == NP_XNN_SIGNED && type == NP_TYPE_TENSOR_QUANT8_ASYMM;
}

void np_xnn_copy_flipped(void *to, const void *from, size_t bytes) {
  unsigned char *restrict t = to;
  const unsigned char *restrict f = from;
  for (size_t i = 0; i < bytes; i++) {
    t[i] = f[i] ^ 0x80u;
  }
}

static enum xnn_datatype datatype(const struct np_xnn_graph *graph, int32_t type) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT32:
    return xnn_datatype_fp32;
  case NP_TYPE_TENSOR_FLOAT16:
    return xnn_datatype_fp16;
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return np_xnn_flips(graph, type) ? xnn_datatype_qint8 : xnn_datatype_quint8;
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
  const enum xnn_datatype type = datatype(graph, operand->type);
  NP_XNN_NEED(type != xnn_datatype_invalid && tensor->known && tensor->elements > 0 &&
              tensor->rank > 0 && tensor->rank <= XNN_MAX_TENSOR_DIMS);
  size_t dims[XNN_MAX_TENSOR_DIMS];
  for (uint32_t d = 0; d < tensor->rank; d++) {
    dims[d] = tensor->dims[d];
  }
  if (type == xnn_datatype_fp32 || type == xnn_datatype_fp16) {
    return xnn_define_tensor_value(graph->subgraph, type, tensor->rank, dims, data, external, flags,
                                   id);
  }
  NP_XNN_NEED(isnormal(operand->scale) && operand->scale > 0.0f);
  const int32_t shift = np_xnn_flips(graph, operand->type) ? 128 : 0;
  return xnn_define_quantized_tensor_value(graph->subgraph, type, operand->zero_point - shift,
                                           operand->scale, tensor->rank, dims, data, external,
                                           flags, id);
}

/* Returns where XNNPACK can read a constant: in place or in a copy; copies in `passing` are only
 * read by packing. */
static const void *readable(struct np_xnn_graph *graph, const struct np_operand *operand,
                            const struct np_tensor *tensor, struct np_xnn_block **list) {
  const size_t element = np_type_bytes(operand->type);
  const size_t bytes = tensor->elements * element;
  const int flipped = np_xnn_flips(graph, operand->type);
  /* Packing does not read beyond the last byte. */
  const int moved = list == &graph->passing ? (uintptr_t)tensor->data % element != 0
                                            : np_xnn_must_copy(tensor->data, bytes, element);
  if (graph->values == NULL || (!flipped && !moved)) {
    return tensor->data;
  }
  void *copy = make_block(list, bytes);
  if (copy != NULL) {
    if (flipped) {
      np_xnn_copy_flipped(copy, tensor->data, bytes);
    } else {
      memcpy(copy, tensor->data, bytes);
    }
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
    data = readable(graph, operand, tensor, &graph->blocks);
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

enum xnn_status np_xnn_inner(struct np_xnn_graph *graph, const struct np_operand *like,
                             uint32_t rank, const size_t *dims, uint32_t *id) {
  struct np_tensor tensor = {.known = 1, .rank = rank, .elements = 1};
  NP_XNN_NEED(rank > 0 && rank <= NP_MAX_RANK);
  for (uint32_t d = 0; d < rank; d++) {
    NP_XNN_NEED(dims[d] <= UINT32_MAX);
    tensor.dims[d] = (uint32_t)dims[d];
    tensor.elements = np_mul_saturated(tensor.elements, dims[d]);
  }
  return define(graph, like, &tensor, NULL, XNN_INVALID_VALUE_ID, 0, id);
}

enum xnn_status np_xnn_external(struct np_xnn_graph *graph, const struct np_operand *operand,
                                const struct np_tensor *tensor, uint32_t external, uint32_t flags) {
  uint32_t id = XNN_INVALID_VALUE_ID;
  NP_XNN_TRY(define(graph, operand, tensor, NULL, external, flags, &id));
  NP_XNN_NEED(id == external);
  return xnn_status_success;
}

/* Returns whether a product's scale can be converted to the output's, within XNNPACK's limits. */
static int rescales(double product, const struct np_operand *output) {
  const double scale = product / (double)output->scale;
  return scale < 256.0 && scale >= 0x1.0p-31;
}

/* Defines weights with a scale for each output channel, which is their channel_dim. */
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
  float *scales = np_xnn_room(graph, np_mul_saturated(channels, 2 * sizeof *scales));
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

/* Defines a constant that only packing reads. */
static enum xnn_status packed(struct np_xnn_graph *graph, const struct np_call *call,
                              uint32_t input, uint32_t *id) {
  const struct np_operand *operand = np_in_operand(call, input);
  const struct np_tensor *tensor = np_in(call, input);
  const void *data = readable(graph, operand, tensor, &graph->passing);
  if (data == NULL) {
    return xnn_status_out_of_memory;
  }
  return define(graph, operand, tensor, data, XNN_INVALID_VALUE_ID, 0, id);
}

/* Returns whether signed weights have zero point 0; not all of XNNPACK's functions check. */
static int is_centred(const struct np_xnn_graph *graph, const struct np_operand *weights) {
  return np_xnn_flips(graph, weights->type)                    ? weights->zero_point == 128
         : weights->type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED ? weights->zero_point == 0
                                                               : 1;
}

enum xnn_status np_xnn_weights(struct np_xnn_graph *graph, const struct np_call *call,
                               uint32_t input, uint32_t *weights, uint32_t *bias) {
  const struct np_operand *operand = np_in_operand(call, input);
  const struct np_operand *data = np_in_operand(call, 0);
  const struct np_tensor *added = np_in(call, input + 1);
  NP_XNN_NEED(np_has(call, input) && np_has(call, input + 1));
  NP_XNN_NEED(operand->lifetime == NP_CONSTANT && np_in(call, input)->data != NULL &&
              np_in_operand(call, input + 1)->lifetime == NP_CONSTANT && added->data != NULL);
  /* Packing reads them in place. */
  NP_XNN_NEED((uintptr_t)added->data % sizeof(float) == 0);
  if (operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    return channel_weights(graph, call, input, weights, bias);
  }
  NP_XNN_NEED(operand->type == data->type && is_centred(graph, operand));
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
