/* Runs a checked graph: shapes inferred, weights packed once, one block of memory for temporaries.
 *
 * A graph whose shapes follow from the model alone is inferred and planned when the executor is
 * made; any other one at each run, when the caller's input shapes and values are known. */
#include "np_executor.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/np_kernel.h"
#include "plan/np_plan.h"

/* A block of memory that grows, aligned to NP_ALIGNMENT; contents are lost when it does. */
struct block {
  void *raw;
  unsigned char *start;
  size_t bytes;
};

struct np_executor {
  const struct np_graph *graph;
  struct np_tensor *tensors; /* [n_operands] */
  struct np_call *calls;     /* [n_operations] */
  size_t *offsets;           /* [n_operands] in `arena` */
  unsigned char *placed;     /* [n_operands] lies in `arena` */
  void **copies;             /* [n_operands] constants that were not aligned to their type */
  int is_static;             /* shapes are known for good */
  struct block arena;        /* temporaries */
  struct block scratch;      /* working memory of one operation at a time */
  struct block bounce;       /* stands in for buffers of the caller that cannot be used */
};

static enum np_status block_grow(struct block *block, size_t bytes, struct np_message *why) {
  if (bytes <= block->bytes && block->raw != NULL) {
    return NP_OK;
  }
  free(block->raw);
  *block = (struct block){0};
  block->raw = bytes > SIZE_MAX - NP_ALIGNMENT ? NULL : malloc(bytes + NP_ALIGNMENT);
  if (block->raw == NULL) {
    np_message_set(why, "no memory for %zu bytes", bytes);
    return NP_NO_MEMORY;
  }
  block->start = (unsigned char *)block->raw +
                 (NP_ALIGNMENT - (uintptr_t)block->raw % NP_ALIGNMENT) % NP_ALIGNMENT;
  block->bytes = bytes;
  return NP_OK;
}

static int is_aligned(const void *data, int32_t type) {
  return (uintptr_t)data % np_type_bytes(type) == 0;
}

static size_t tensor_bytes(const struct np_tensor *tensor) {
  return tensor->elements * np_type_bytes(tensor->type);
}

/* Sets what the model itself says of every operand; constants get their values. */
static enum np_status reset_tensors(struct np_executor *executor, struct np_message *why) {
  for (uint32_t i = 0; i < executor->graph->n_operands; i++) {
    const struct np_operand *operand = &executor->graph->operands[i];
    struct np_tensor *tensor = &executor->tensors[i];
    const int is_tensor = np_type_is_tensor(operand->type);
    *tensor = (struct np_tensor){.type = operand->type, .rank = operand->rank};
    memcpy(tensor->dims, operand->dims, sizeof tensor->dims);
    tensor->omitted = operand->lifetime == NP_NO_VALUE;
    tensor->elements = np_operand_elements(operand);
    tensor->known = !is_tensor || tensor->elements > 0;
    if (operand->lifetime == NP_TEMPORARY || operand->lifetime == NP_OUTPUT) {
      tensor->known = 0;
    }
    if (operand->lifetime == NP_CONSTANT) {
      if (!is_aligned(operand->value, operand->type) && executor->copies[i] == NULL) {
        executor->copies[i] = malloc(operand->length);
        if (executor->copies[i] == NULL) {
          np_message_set(why, "no memory for %zu bytes of constant %u", operand->length, i);
          return NP_NO_MEMORY;
        }
        memcpy(executor->copies[i], operand->value, operand->length);
      }
      tensor->data = executor->copies[i] != NULL ? executor->copies[i] : operand->value;
      tensor->known = 1;
    }
  }
  return NP_OK;
}

/* Infers the shapes of all operations in order. NP_MISSING where one cannot be known yet. */
static enum np_status infer_all(struct np_executor *executor, struct np_message *why) {
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    call->why = why;
    const enum np_status status = call->kernel->infer(call);
    if (status == NP_MISSING) {
      (void)np_fail(call, status, "its output shape depends on a value or shape that is not known");
    }
    NP_TRY(status);
  }
  return NP_OK;
}

/* Places temporaries and makes room for them and for the hungriest operation. Shapes are known. */
static enum np_status plan(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  size_t total = 0;
  if (np_plan_memory(graph, executor->tensors, executor->placed, executor->offsets, &total) !=
      NP_OK) {
    np_message_set(why, "no memory to plan %u operands", graph->n_operands);
    return NP_NO_MEMORY;
  }
  NP_TRY(block_grow(&executor->arena, total, why));
  size_t scratch = 0;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const struct np_call *call = &executor->calls[o];
    if (call->kernel->scratch != NULL) {
      const size_t one = call->kernel->scratch(call);
      scratch = one > scratch ? one : scratch;
    }
  }
  NP_TRY(block_grow(&executor->scratch, scratch, why));
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (executor->placed[i]) {
      executor->tensors[i].room = executor->arena.start + executor->offsets[i];
    }
  }
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    executor->calls[o].scratch = executor->scratch.start;
  }
  return NP_OK;
}

static enum np_status prepare_all(struct np_executor *executor, struct np_message *why) {
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    call->why = why;
    if (call->kernel->prepare != NULL) {
      NP_TRY(call->kernel->prepare(call, &call->state));
    }
  }
  return NP_OK;
}

/* Fills the calls; NP_UNSUPPORTED or NP_BAD_MODEL for an operation that np_graph_check refuses. */
static enum np_status bind_calls(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    const struct np_operation *operation = &graph->operations[o];
    *call = (struct np_call){.graph = graph,
                             .index = o,
                             .operation = operation,
                             .kernel = np_kernel_of(operation->code),
                             .tensors = executor->tensors,
                             .why = why};
    if (call->kernel == NULL) {
      return np_fail(call, NP_UNSUPPORTED, "no kernel for this operation yet");
    }
    call->form = np_form_match(graph, o, why);
    if (call->form == NULL) {
      return NP_BAD_MODEL;
    }
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    executor->placed[i] = graph->operands[i].lifetime == NP_TEMPORARY;
  }
  return NP_OK;
}

static enum np_status build(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  const size_t n = (size_t)graph->n_operands + 1;
  executor->tensors = calloc(n, sizeof *executor->tensors);
  executor->offsets = calloc(n, sizeof *executor->offsets);
  executor->placed = calloc(n, sizeof *executor->placed);
  executor->copies = calloc(n, sizeof *executor->copies);
  executor->calls = calloc((size_t)graph->n_operations + 1, sizeof *executor->calls);
  if (executor->tensors == NULL || executor->offsets == NULL || executor->placed == NULL ||
      executor->copies == NULL || executor->calls == NULL) {
    np_message_set(why, "no memory for an executor of %u operands", graph->n_operands);
    return NP_NO_MEMORY;
  }
  NP_TRY(bind_calls(executor, why));
  NP_TRY(reset_tensors(executor, why));
  NP_TRY(prepare_all(executor, why));
  const enum np_status inferred = infer_all(executor, why);
  if (inferred == NP_MISSING) {
    return NP_OK;
  }
  NP_TRY(inferred);
  executor->is_static = 1;
  return plan(executor, why);
}

enum np_status np_executor_create(const struct np_graph *graph,
                                  const struct np_executor_options *options,
                                  struct np_executor **executor, struct np_message *why) {
  (void)options;
  *executor = NULL;
  struct np_executor *made = calloc(1, sizeof *made);
  if (made == NULL) {
    np_message_set(why, "no memory for an executor");
    return NP_NO_MEMORY;
  }
  made->graph = graph;
  const enum np_status status = build(made, why);
  if (status != NP_OK) {
    np_executor_free(made);
    return status;
  }
  np_message_set(why, "%s", "");
  *executor = made;
  return NP_OK;
}

void np_executor_free(struct np_executor *executor) {
  if (executor == NULL) {
    return;
  }
  for (uint32_t o = 0; executor->calls != NULL && o < executor->graph->n_operations; o++) {
    free(executor->calls[o].state);
  }
  for (uint32_t i = 0; executor->copies != NULL && i < executor->graph->n_operands; i++) {
    free(executor->copies[i]);
  }
  free(executor->arena.raw);
  free(executor->scratch.raw);
  free(executor->bounce.raw);
  free(executor->tensors);
  free(executor->calls);
  free(executor->offsets);
  free(executor->placed);
  free(executor->copies);
  free(executor);
}

/* Takes shape and values of one model input from the caller's buffer. */
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
  if (np_type_is_tensor(operand->type) && buffer->rank != 0) {
    size_t elements = 1;
    int fits = buffer->rank <= NP_MAX_RANK && (operand->rank == 0 || operand->rank == buffer->rank);
    for (uint32_t d = 0; fits && d < buffer->rank; d++) {
      fits = operand->rank == 0 || operand->dims[d] == 0 || operand->dims[d] == buffer->dims[d];
      elements = np_times(elements, buffer->dims[d]);
    }
    if (!fits || np_times(elements, np_type_bytes(operand->type)) > PTRDIFF_MAX / 2) {
      np_message_set(why, "the shape given for input %u contradicts the model's", input);
      return NP_BAD_ARGUMENT;
    }
    tensor->rank = buffer->rank;
    memcpy(tensor->dims, buffer->dims, buffer->rank * sizeof *buffer->dims);
    tensor->elements = elements;
    tensor->known = 1;
  }
  if (!tensor->known) {
    np_message_set(why, "input %u has unknown dimensions, and this run gives none", input);
    return NP_BAD_ARGUMENT;
  }
  if (buffer->length < tensor_bytes(tensor) || (buffer->data == NULL && tensor->elements > 0)) {
    np_message_set(why, "input %u has %zu bytes, wanted %zu", input,
                   buffer->data == NULL ? (size_t)0 : buffer->length, tensor_bytes(tensor));
    return NP_BAD_ARGUMENT;
  }
  tensor->data = tensor->elements == 0 ? (const void *)"" : buffer->data;
  return NP_OK;
}

/* Reports shapes of the outputs and takes their buffers. */
static enum np_status bind_outputs(struct np_executor *executor, struct np_buffer *outputs,
                                   uint32_t *too_small, struct np_message *why) {
  for (uint32_t i = 0; i < executor->graph->n_outputs; i++) {
    struct np_tensor *tensor = &executor->tensors[executor->graph->outputs[i]];
    struct np_buffer *buffer = &outputs[i];
    buffer->rank = tensor->rank;
    memcpy(buffer->dims, tensor->dims, sizeof buffer->dims);
    if (!buffer->omitted && *too_small == UINT32_MAX &&
        (buffer->length < tensor_bytes(tensor) || (buffer->data == NULL && tensor->elements > 0))) {
      *too_small = i;
      np_message_set(why, "output %u has room for %zu bytes, wanted %zu", i,
                     buffer->data == NULL ? (size_t)0 : buffer->length, tensor_bytes(tensor));
    }
    tensor->room = buffer->omitted ? NULL : buffer->data;
  }
  return *too_small == UINT32_MAX ? NP_OK : NP_BAD_ARGUMENT;
}

/* Copies inputs that are not aligned to their type, and lends room for outputs that are not or
 * that the caller does not want. */
static enum np_status lend(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  for (int pass = 0; pass < 2; pass++) { /* count, then place */
    size_t used = 0;
    for (uint32_t i = 0; i < graph->n_inputs + graph->n_outputs; i++) {
      const int is_input = i < graph->n_inputs;
      struct np_tensor *tensor =
          &executor->tensors[is_input ? graph->inputs[i] : graph->outputs[i - graph->n_inputs]];
      const void *data = is_input ? tensor->data : tensor->room;
      if ((data != NULL && is_aligned(data, tensor->type)) || (is_input && tensor->omitted)) {
        continue;
      }
      if (pass == 1 && is_input) {
        memcpy(executor->bounce.start + used, data, tensor_bytes(tensor));
        tensor->data = executor->bounce.start + used;
      } else if (pass == 1) {
        tensor->room = executor->bounce.start + used;
      }
      used += np_align(tensor_bytes(tensor) + 1); /* even nothing has an address */
    }
    if (pass == 0 && used == 0) {
      break;
    }
    if (pass == 0) {
      NP_TRY(block_grow(&executor->bounce, used, why));
    }
  }
  return NP_OK;
}

/* Copies outputs home that were made elsewhere. */
static void give_back(const struct np_executor *executor, const struct np_buffer *outputs) {
  for (uint32_t i = 0; i < executor->graph->n_outputs; i++) {
    const struct np_tensor *tensor = &executor->tensors[executor->graph->outputs[i]];
    if (!outputs[i].omitted && tensor->room != outputs[i].data && tensor->elements > 0) {
      memcpy(outputs[i].data, tensor->room, tensor_bytes(tensor));
    }
  }
}

/* That every input has values, but for those that the operation can do without. */
static enum np_status check_inputs(const struct np_call *call) {
  for (uint32_t i = 0; i < call->operation->n_inputs; i++) {
    if (np_in(call, i)->data == NULL &&
        !np_form_input(call->form, call->operation->n_inputs, i)->optional) {
      return np_fail(call, NP_BAD_ARGUMENT, "input %u (operand %u) is left out of this run", i,
                     call->operation->inputs[i]);
    }
  }
  return NP_OK;
}

static enum np_status run_all(struct np_executor *executor) {
  const struct np_graph *graph = executor->graph;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const struct np_call *call = &executor->calls[o];
    NP_TRY(check_inputs(call));
    const enum np_status status = call->kernel->run(call);
    if (status != NP_OK) {
      return status == NP_NO_MEMORY ? status : NP_RUN_FAILED;
    }
    for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
      struct np_tensor *tensor = np_out(call, i);
      tensor->data = tensor->room;
    }
  }
  return NP_OK;
}

enum np_status np_executor_run(struct np_executor *executor, const struct np_buffer *inputs,
                               struct np_buffer *outputs, const struct np_limits *limits,
                               uint32_t *output_too_small, struct np_message *why) {
  (void)limits;
  const struct np_graph *graph = executor->graph;
  *output_too_small = UINT32_MAX;
  if (!executor->is_static) {
    NP_TRY(reset_tensors(executor, why));
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    NP_TRY(bind_input(executor, i, &inputs[i], why));
  }
  if (!executor->is_static) {
    const enum np_status inferred = infer_all(executor, why);
    if (inferred != NP_OK) {
      return inferred == NP_NO_MEMORY ? inferred : NP_RUN_FAILED;
    }
    NP_TRY(plan(executor, why));
  }
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    executor->calls[o].why = why;
  }
  NP_TRY(bind_outputs(executor, outputs, output_too_small, why));
  NP_TRY(lend(executor, why));
  NP_TRY(run_all(executor));
  give_back(executor, outputs);
  return NP_OK;
}
