/* One execution, from its arguments to its results; its time on a simulated phone is simulate.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

/* The execution's arguments as the executor's buffers. */
static void make_buffers(const ANeuralNetworksExecution *execution, struct np_buffer *inputs,
                         struct np_buffer *outputs) {
  const struct np_graph *graph = &execution->compilation->model->graph;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const struct np_argument *a = &execution->inputs[i];
    inputs[i] = (struct np_buffer){
        .data = a->data, .length = a->length, .omitted = a->kind == NP_ARGUMENT_OMITTED};
    if (!np_has_unknown_dims(&graph->operands[graph->inputs[i]]))
      continue;
    inputs[i].rank = a->rank;
    memcpy(inputs[i].dims, a->dims, sizeof a->dims);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const struct np_argument *a = &execution->outputs[i];
    outputs[i] = (struct np_buffer){
        .data = a->data, .length = a->length, .omitted = a->kind == NP_ARGUMENT_OMITTED};
  }
}

/* Result code of a run of the executor. */
static int run_code(enum np_status status, uint32_t too_small, const struct np_message *why) {
  if (status == NP_OK)
    return ANEURALNETWORKS_NO_ERROR;
  const int code = too_small != UINT32_MAX     ? ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE
                   : status == NP_BAD_ARGUMENT ? ANEURALNETWORKS_BAD_DATA
                   : status == NP_NO_MEMORY    ? ANEURALNETWORKS_OUT_OF_MEMORY
                                               : ANEURALNETWORKS_OP_FAILED;
  return np_refuse(code, __func__, "%s", why->text);
}

/* Computes with the compilation's lock held. */
static int compute_locked(ANeuralNetworksExecution *execution, bool burst,
                          const struct np_buffer *inputs, struct np_buffer *outputs,
                          uint32_t *too_small) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_graph *graph = &compilation->model->graph;
  const struct np_phone *phone = np_device_table()->phone;
  struct np_last_run *last = &compilation->simulation.last;
  struct np_message why = {""};
  *too_small = UINT32_MAX;
  const uint64_t before = np_clock_now();
  int code = ANEURALNETWORKS_NO_ERROR;
  if (phone) {
    const struct np_simulate_options options = {.burst = burst, .deadline_ns = NP_NEVER};
    code = np_simulate_execute(execution, &options);
    if (code != ANEURALNETWORKS_NO_ERROR || np_repeat_last_run(last, inputs, outputs))
      return code;
  }
  const enum np_status status =
      np_executor_run(compilation->executor, inputs, outputs, NULL, too_small, &why);
  code = run_code(status, *too_small, &why);
  if (phone && code == ANEURALNETWORKS_NO_ERROR)
    np_keep_last_run(last, graph, inputs, outputs);
  if (!phone) {
    execution->hardware_ns = execution->driver_ns = np_clock_now() - before;
  }
  return code;
}

static int compute(ANeuralNetworksExecution *execution, bool burst) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_graph *graph = &compilation->model->graph;
  struct np_buffer *inputs = calloc(graph->n_inputs, sizeof *inputs);
  struct np_buffer *outputs = calloc(graph->n_outputs, sizeof *outputs);
  int code = ANEURALNETWORKS_OUT_OF_MEMORY;
  if (inputs && outputs) {
    uint32_t too_small;
    make_buffers(execution, inputs, outputs);
    pthread_mutex_lock(&compilation->lock);
    code = compute_locked(execution, burst, inputs, outputs, &too_small);
    pthread_mutex_unlock(&compilation->lock);
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
      struct np_argument *a = &execution->outputs[i];
      a->too_small = too_small == i;
      a->rank = outputs[i].rank;
      memcpy(a->dims, outputs[i].dims, sizeof a->dims);
      if (a->memory && code == ANEURALNETWORKS_NO_ERROR) {
        atomic_store(&a->memory->initialized, true);
      }
    }
  }
  free(inputs);
  free(outputs);
  return code;
}

int np_execution_begin(ANeuralNetworksExecution *execution, const char *function) {
  const struct np_graph *graph = &execution->compilation->model->graph;
  if (atomic_load(&execution->state) != NP_PREPARING) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "the execution was started before");
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const struct np_argument *a = &execution->inputs[i];
    if (a->kind == NP_ARGUMENT_UNSET) {
      return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "input %u is not set", i);
    }
    if (a->memory && !atomic_load(&a->memory->initialized)) {
      return np_refuse(ANEURALNETWORKS_OP_FAILED, function,
                       "input %u is a memory that nothing has written", i);
    }
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    if (execution->outputs[i].kind == NP_ARGUMENT_UNSET) {
      return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "output %u is not set", i);
    }
  }
  int expected = NP_PREPARING;
  if (!atomic_compare_exchange_strong(&execution->state, &expected, NP_RUNNING)) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "the execution was started before");
  }
  return ANEURALNETWORKS_NO_ERROR;
}

int np_execution_run(ANeuralNetworksExecution *execution, bool burst) {
  const int result = compute(execution, burst);
  execution->result = result;
  atomic_store(&execution->state, NP_COMPLETED);
  return result;
}
