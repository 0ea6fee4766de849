/* A run that infers shapes on the way: each operation is inferred when its inputs have values, its
 * outputs get room, and it runs. The rooms are kept, so that a second run with the same shapes
 * allocates nothing. */
#include <string.h>

#include "execute/np_clock.h"
#include "execute/np_execute.h"

/* Returns the index of the model output that an operand is, UINT32_MAX for none. */
static uint32_t output_of(const struct np_graph *graph, uint32_t operand) {
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    if (graph->outputs[i] == operand) {
      return i;
    }
  }
  return UINT32_MAX;
}

/* Returns whether an operation that lowering inserted before another one passes on an omitted
 * input. */
static int passes_omission(const struct np_call *call) {
  return np_in(call, 0)->omitted && (call->operation->code == ANEURALNETWORKS_CAST ||
                                     call->operation->code == ANEURALNETWORKS_TRANSPOSE);
}

/* Everything a run carries from operation to operation. */
struct dynamic_run {
  struct np_executor *executor;
  struct np_buffer *outputs;
  int lent;
  uint32_t *too_small;
  struct np_message *why;
};

/* Makes room for an output: the caller's buffer if it can be used, else the executor's own. */
static enum np_status make_room(const struct dynamic_run *run, uint32_t operand) {
  struct np_executor *executor = run->executor;
  struct np_tensor *tensor = &executor->tensors[operand];
  const size_t bytes = np_tensor_bytes(tensor);
  const uint32_t output = output_of(executor->graph, operand);
  tensor->room = NULL;
  if (output != UINT32_MAX && !run->lent) {
    const struct np_buffer *buffer = &run->outputs[output];
    const size_t unit = np_type_bytes(tensor->type);
    if (!buffer->omitted && buffer->data != NULL && buffer->length >= bytes &&
        (uintptr_t)buffer->data % unit == 0) {
      tensor->room = buffer->data;
      return NP_OK;
    }
  }
  struct np_block *block = &executor->rooms[operand];
  NP_TRY(np_block_grow(block, np_add_saturated(bytes, NP_TAIL), run->why));
  tensor->room = block->start;
  return NP_OK;
}

static enum np_status run_one(const struct dynamic_run *run, struct np_call *call) {
  struct np_executor *executor = run->executor;
  if (passes_omission(call)) {
    np_out(call, 0)->omitted = 1;
    return NP_OK;
  }
  NP_TRY(np_check_inputs(call));
  const enum np_status inferred = call->kernel->infer(call);
  if (inferred == NP_MISSING) {
    return np_fail(call, NP_RUN_FAILED, "its output shape depends on a value that is left out");
  }
  if (inferred != NP_OK) {
    return inferred == NP_BAD_MODEL ? NP_RUN_FAILED : inferred;
  }
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    NP_TRY(make_room(run, call->operation->outputs[i]));
  }
  if (call->kernel->scratch != NULL) {
    NP_TRY(np_block_grow(&executor->scratch, call->kernel->scratch(call), run->why));
  }
  call->scratch = executor->scratch.start;
  const enum np_status status = call->kernel->run(call);
  if (status != NP_OK) {
    return status == NP_NO_MEMORY || status == NP_DEADLINE ? status : NP_RUN_FAILED;
  }
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    struct np_tensor *tensor = np_out(call, i);
    tensor->data = tensor->room;
  }
  return NP_OK;
}

/* Returns the results: in the caller's buffers, or lent. */
static enum np_status hand_over(const struct dynamic_run *run) {
  const struct np_graph *graph = run->executor->graph;
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const struct np_tensor *tensor = &run->executor->tensors[graph->outputs[i]];
    struct np_buffer *buffer = &run->outputs[i];
    const size_t bytes = np_tensor_bytes(tensor);
    if (tensor->omitted) {
      np_message_set(run->why, "output %u comes from an input that is left out", i);
      return NP_BAD_ARGUMENT;
    }
    buffer->rank = tensor->rank;
    memcpy(buffer->dims, tensor->dims, sizeof buffer->dims);
    if (run->lent) {
      buffer->omitted = 0;
      buffer->data = tensor->room;
      buffer->length = bytes;
      continue;
    }
    if (buffer->omitted || tensor->room == buffer->data) {
      continue;
    }
    if (buffer->length < bytes || (buffer->data == NULL && bytes > 0)) {
      if (*run->too_small == UINT32_MAX) {
        *run->too_small = i;
        np_message_set(run->why, "output %u has room for %zu bytes, wanted %zu", i,
                       buffer->data == NULL ? (size_t)0 : buffer->length, bytes);
      }
    } else if (bytes > 0) {
      memcpy(buffer->data, tensor->room, bytes);
    }
  }
  return *run->too_small == UINT32_MAX ? NP_OK : NP_BAD_ARGUMENT;
}

enum np_status np_run_dynamic(struct np_executor *executor, const struct np_buffer *inputs,
                              struct np_buffer *outputs, int lent, const struct np_limits *limits,
                              uint32_t *too_small, struct np_message *why) {
  const struct dynamic_run run = {executor, outputs, lent, too_small, why};
  *too_small = UINT32_MAX;
  executor->settled = 0;
  NP_TRY(np_reset_tensors(executor, why));
  NP_TRY(np_bind_inputs(executor, inputs, why));
  NP_TRY(np_lend(executor, 0, why));
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    NP_TRY(np_check_deadline(limits, why));
    call->why = why;
    call->limits = limits;
    NP_TRY(run_one(&run, call));
  }
  return hand_over(&run);
}
