/* Pass "fold": computes operations whose inputs are all constant, with their kernels.
 *
 *   w' = TRANSPOSE(w, [...])   w constant
 * becomes a constant w'. What would grow the model much, or fails, is left for the run. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include <stdlib.h>
#include <string.h>

#include "lower/np_lower.h"

/* A folded value may always take this many bytes. */
#define FOLD_FREELY ((size_t)1 << 20)

static int is_constant(const struct np_operand *operand) {
  return operand->lifetime == NP_CONSTANT || operand->lifetime == NP_NO_VALUE;
}

/* Returns whether an operation may be folded: it has constant inputs, temporary outputs, and the
 * same result in each run. */
static int may_fold(const struct np_graph *graph, const struct np_operation *operation,
                    const struct np_kernel *kernel) {
  if (kernel == NULL || kernel->shapes_at_run || kernel->run == NULL ||
      operation->code == ANEURALNETWORKS_RANDOM_MULTINOMIAL) {
    return 0;
  }
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    if (!is_constant(&graph->operands[operation->inputs[i]])) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    if (graph->operands[operation->outputs[i]].lifetime != NP_TEMPORARY) {
      return 0;
    }
  }
  return 1;
}

/* Returns the declaration of an operand as a tensor. */
static struct np_tensor tensor_of(const struct np_operand *operand) {
  struct np_tensor tensor = {.type = operand->type, .rank = operand->rank};
  memcpy(tensor.dims, operand->dims, sizeof tensor.dims);
  tensor.elements = np_operand_elements(operand);
  tensor.omitted = operand->lifetime == NP_NO_VALUE;
  if (operand->lifetime == NP_CONSTANT) {
    tensor.data = operand->value;
    tensor.known = 1;
  }
  return tensor;
}

static size_t bytes_of(const struct np_tensor *tensor) {
  return np_mul_saturated(tensor->elements, np_type_bytes(tensor->type));
}

/* Makes room for the outputs; returns 0 if they are too large to fold or memory is short. */
static int make_room(struct np_lowered *lowered, const struct np_call *call) {
  size_t input = 0;
  for (uint32_t i = 0; i < call->operation->n_inputs; i++) {
    const size_t bytes = bytes_of(np_in(call, i));
    input = bytes > input ? bytes : input;
  }
  const size_t most = 2 * input > FOLD_FREELY ? 2 * input : FOLD_FREELY;
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    struct np_tensor *tensor = np_out(call, i);
    if (bytes_of(tensor) > most) {
      return 0;
    }
    tensor->room = np_lowered_alloc(lowered, bytes_of(tensor));
    if (tensor->room == NULL) {
      return 0;
    }
  }
  return 1;
}

static enum np_status compute(struct np_lowered *lowered, struct np_call *call) {
  NP_TRY(call->kernel->infer(call));
  if (!make_room(lowered, call)) {
    return NP_UNSUPPORTED;
  }
  if (call->kernel->scratch != NULL) {
    const size_t bytes = call->kernel->scratch(call);
    if (bytes > PTRDIFF_MAX / 2 || posix_memalign(&call->scratch, 64, bytes + 1) != 0) {
      call->scratch = NULL;
      return NP_NO_MEMORY;
    }
  }
  return call->kernel->run(call);
}

/* Turns the outputs of a computed operation into constants. */
static void keep(struct np_graph *graph, const struct np_call *call) {
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    const struct np_tensor *tensor = np_out(call, i);
    struct np_operand *operand = &graph->operands[call->operation->outputs[i]];
    operand->lifetime = NP_CONSTANT;
    operand->rank = tensor->rank;
    memcpy(operand->dims, tensor->dims, sizeof operand->dims);
    operand->value = tensor->room;
    operand->length = bytes_of(tensor);
  }
}

/* Returns whether every constant input is aligned to its type, since kernels read them in place. */
static int aligned(const struct np_graph *graph, const struct np_operation *operation) {
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const struct np_operand *operand = &graph->operands[operation->inputs[i]];
    const size_t bytes = np_type_bytes(operand->type);
    if (bytes != 0 && (uintptr_t)operand->value % bytes != 0) {
      return 0;
    }
  }
  return 1;
}

/* Folds operation `o` of the pass: NP_OK if its outputs are constants now. */
static enum np_status fold_one(struct np_lowered *lowered, struct np_tensor *tensors, uint32_t o) {
  struct np_graph view = lowered->graph;
  view.operations = lowered->from;
  view.n_operations = lowered->n_from;
  const struct np_operation *operation = &lowered->from[o];
  struct np_call call = {.graph = &view,
                         .index = o,
                         .operation = operation,
                         .kernel = np_kernel_of(operation->code),
                         .tensors = tensors,
                         .options = lowered->options};
  if (!may_fold(&view, operation, call.kernel) || !aligned(&view, operation)) {
    return NP_UNSUPPORTED;
  }
  call.form = np_form_of(&view, o, NULL);
  if (call.form == NULL) {
    return NP_UNSUPPORTED;
  }
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    tensors[operation->inputs[i]] = tensor_of(&view.operands[operation->inputs[i]]);
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    tensors[operation->outputs[i]] = tensor_of(&view.operands[operation->outputs[i]]);
  }
  const enum np_status status = compute(lowered, &call);
  free(call.scratch);
  if (status == NP_OK) {
    keep(&lowered->graph, &call);
  }
  return status;
}

enum np_status np_lower_fold(struct np_lowered *lowered, struct np_message *why) {
  (void)why;
  struct np_tensor *tensors = calloc((size_t)lowered->graph.n_operands + 1, sizeof *tensors);
  enum np_status status = tensors == NULL ? NP_NO_MEMORY : NP_OK;
  for (uint32_t o = 0; status == NP_OK && o < lowered->n_from; o++) {
    if (fold_one(lowered, tensors, o) != NP_OK) { /* then the run computes it, or reports why not */
      status = np_emit_same(lowered, &lowered->from[o]);
    }
  }
  free(tensors);
  return status;
}
