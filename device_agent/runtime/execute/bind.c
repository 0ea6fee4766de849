/* Binds the caller's buffers to the model's tensors. */
#include <string.h>

#include "execute/np_execute.h"

#include <stdlib.h>

size_t np_tensor_bytes(const struct np_tensor *tensor) {
  return tensor->elements * np_type_bytes(tensor->type);
}

static int is_aligned(const void *data, int32_t type) {
  const size_t bytes = np_type_bytes(type);
  return bytes == 0 || (uintptr_t)data % bytes == 0;
}

/* Returns the value of a constant, copied if it is not aligned to its type. */
static enum np_status constant_data(struct np_executor *executor, uint32_t i, const void **data,
                                    struct np_message *why) {
  const struct np_operand *operand = &executor->graph->operands[i];
  if (!is_aligned(operand->value, operand->type) && executor->copies[i] == NULL) {
    executor->copies[i] = malloc(operand->length);
    if (executor->copies[i] == NULL) {
      np_message_set(why, "no memory for %zu bytes of constant %u", operand->length, i);
      return NP_NO_MEMORY;
    }
    memcpy(executor->copies[i], operand->value, operand->length);
  }
  *data = executor->copies[i] != NULL ? executor->copies[i] : operand->value;
  return NP_OK;
}

enum np_status np_reset_tensors(struct np_executor *executor, struct np_message *why) {
  for (uint32_t i = 0; i < executor->graph->n_operands; i++) {
    const struct np_operand *operand = &executor->graph->operands[i];
    struct np_tensor *tensor = &executor->tensors[i];
    *tensor = (struct np_tensor){.type = operand->type, .rank = operand->rank};
    memcpy(tensor->dims, operand->dims, sizeof tensor->dims);
    tensor->omitted = operand->lifetime == NP_NO_VALUE;
    tensor->elements = np_operand_elements(operand);
    if (operand->lifetime == NP_INPUT) {
      tensor->known = !np_type_is_tensor(operand->type) || tensor->elements > 0;
    }
    if (operand->lifetime == NP_CONSTANT) {
      NP_TRY(constant_data(executor, i, &tensor->data, why));
      tensor->known = 1;
    }
  }
  return NP_OK;
}

/* Takes a buffer's shape; returns 0 if it contradicts the model's. */
static int take_shape(struct np_tensor *tensor, const struct np_operand *operand,
                      const struct np_buffer *buffer) {
  size_t elements = 1;
  int fits = buffer->rank <= NP_MAX_RANK && (operand->rank == 0 || operand->rank == buffer->rank);
  for (uint32_t d = 0; fits && d < buffer->rank; d++) {
    fits = operand->rank == 0 || operand->dims[d] == 0 || operand->dims[d] == buffer->dims[d];
    elements = np_mul_saturated(elements, buffer->dims[d]);
  }
  if (!fits || np_mul_saturated(elements, np_type_bytes(operand->type)) > PTRDIFF_MAX / 2) {
    return 0;
  }
  tensor->rank = buffer->rank;
  memcpy(tensor->dims, buffer->dims, buffer->rank * sizeof *buffer->dims);
  tensor->elements = elements;
  tensor->known = 1;
  return 1;
}

static enum np_status bind_input(struct np_executor *executor, uint32_t input,
                                 const struct np_buffer *buffer, struct np_message *why) {
  const uint32_t index = executor->graph->inputs[input];
  const struct np_operand *operand = &executor->graph->operands[index];
  struct np_tensor *tensor = &executor->tensors[index];
  tensor->omitted = buffer->omitted != 0;
  if (tensor->omitted) {
    tensor->data = NULL;
    return NP_OK;
  }
  if (np_type_is_tensor(operand->type) && buffer->rank != 0 &&
      !take_shape(tensor, operand, buffer)) {
    np_message_set(why, "the shape given for input %u contradicts the model's", input);
    return NP_BAD_ARGUMENT;
  }
  if (!tensor->known) {
    np_message_set(why, "input %u has unknown dimensions, and this run gives none", input);
    return NP_BAD_ARGUMENT;
  }
  if (buffer->length < np_tensor_bytes(tensor) || (buffer->data == NULL && tensor->elements > 0)) {
    np_message_set(why, "input %u has %zu bytes, wanted %zu", input,
                   buffer->data == NULL ? (size_t)0 : buffer->length, np_tensor_bytes(tensor));
    return NP_BAD_ARGUMENT;
  }
  tensor->data = tensor->elements == 0 ? (const void *)"" : buffer->data;
  return NP_OK;
}

enum np_status np_bind_inputs(struct np_executor *executor, const struct np_buffer *inputs,
                              struct np_message *why) {
  for (uint32_t i = 0; i < executor->graph->n_inputs; i++) {
    NP_TRY(bind_input(executor, i, &inputs[i], why));
  }
  return NP_OK;
}

int np_bind_output(struct np_executor *executor, uint32_t i, struct np_buffer *buffer,
                   struct np_message *why) {
  struct np_tensor *tensor = &executor->tensors[executor->graph->outputs[i]];
  buffer->rank = tensor->rank;
  memcpy(buffer->dims, tensor->dims, sizeof buffer->dims);
  tensor->room = buffer->omitted ? NULL : buffer->data;
  if (buffer->omitted || (buffer->length >= np_tensor_bytes(tensor) &&
                          (buffer->data != NULL || tensor->elements == 0))) {
    return 1;
  }
  np_message_set(why, "output %u has room for %zu bytes, wanted %zu", i,
                 buffer->data == NULL ? (size_t)0 : buffer->length, np_tensor_bytes(tensor));
  tensor->room = NULL;
  return 0;
}

/* Returns whether kernels cannot use the memory of a model's input or output; *tensor is its
 * tensor. */
static int needs_room(const struct np_executor *executor, uint32_t i, struct np_tensor **tensor) {
  const struct np_graph *graph = executor->graph;
  const int is_input = i < graph->n_inputs;
  *tensor = &executor->tensors[is_input ? graph->inputs[i] : graph->outputs[i - graph->n_inputs]];
  const void *data = is_input ? (*tensor)->data : (*tensor)->room;
  if (is_input && (*tensor)->omitted) {
    return 0;
  }
  return data == NULL || !is_aligned(data, (*tensor)->type);
}

enum np_status np_lend(struct np_executor *executor, int with_outputs, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  const uint32_t n = graph->n_inputs + (with_outputs ? graph->n_outputs : 0);
  struct np_tensor *tensor;
  size_t used = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (needs_room(executor, i, &tensor)) {
      used += np_align(np_tensor_bytes(tensor) + NP_TAIL); /* even an empty tensor has an address */
    }
  }
  if (used == 0) {
    return NP_OK;
  }
  NP_TRY(np_block_grow(&executor->bounce, used, why));
  used = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!needs_room(executor, i, &tensor)) {
      continue;
    }
    unsigned char *room = executor->bounce.start + used;
    used += np_align(np_tensor_bytes(tensor) + NP_TAIL);
    if (i < graph->n_inputs) {
      memcpy(room, tensor->data, np_tensor_bytes(tensor));
      tensor->data = room;
    } else {
      tensor->room = room;
    }
  }
  return NP_OK;
}

void np_give_back(const struct np_executor *executor, const struct np_buffer *outputs) {
  for (uint32_t i = 0; i < executor->graph->n_outputs; i++) {
    const struct np_tensor *tensor = &executor->tensors[executor->graph->outputs[i]];
    if (!outputs[i].omitted && tensor->room != outputs[i].data && tensor->elements > 0) {
      memcpy(outputs[i].data, tensor->room, np_tensor_bytes(tensor));
    }
  }
}
