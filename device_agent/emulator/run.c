/* One execution, from its arguments to its results; simulate.c has its time on a simulated
 * phone. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

/* Fills the executor's buffers with the execution's arguments. */
static void fill_buffers(ANeuralNetworksExecution *execution) {
  const struct np_graph *graph = &execution->compilation->model->graph;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const struct np_argument *a = &execution->inputs[i];
    struct np_buffer *buffer = &execution->input_buffers[i];
    *buffer = (struct np_buffer){
        .data = a->data, .length = a->length, .omitted = a->kind == NP_ARGUMENT_OMITTED};
    if (!np_has_unknown_dims(&graph->operands[graph->inputs[i]])) {
      continue;
    }
    buffer->rank = a->rank;
    memcpy(buffer->dims, a->dims, sizeof a->dims);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const struct np_argument *a = &execution->outputs[i];
    execution->output_buffers[i] = (struct np_buffer){
        .data = a->data, .length = a->length, .omitted = a->kind == NP_ARGUMENT_OMITTED};
  }
}

/* Returns the result code of a run of the executor. */
static int run_code(enum np_status status, uint32_t too_small, const struct np_message *why) {
  if (status == NP_OK) {
    return ANEURALNETWORKS_NO_ERROR;
  }
  const int code = too_small != UINT32_MAX     ? ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE
                   : status == NP_BAD_ARGUMENT ? ANEURALNETWORKS_BAD_DATA
                   : status == NP_NO_MEMORY    ? ANEURALNETWORKS_OUT_OF_MEMORY
                   : status == NP_DEADLINE     ? ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT
                                               : ANEURALNETWORKS_OP_FAILED;
  return np_refuse(code, __func__, "%s", why->text);
}

static bool uses_shared_memory(const ANeuralNetworksExecution *execution) {
  const struct np_graph *graph = &execution->compilation->model->graph;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    if (execution->inputs[i].shared) {
      return true;
    }
  }
  return false;
}

/* Returns the conditions of a run, bits of enum np_error_when. */
static uint32_t when_of(const ANeuralNetworksExecution *execution, bool burst, bool later) {
  uint32_t when = 0;
  when |= burst ? (uint32_t)NP_WHEN_BURST : 0;
  when |= uses_shared_memory(execution) ? (uint32_t)NP_WHEN_SHARED : 0;
  when |= execution->compilation->model->relaxed ? (uint32_t)NP_WHEN_RELAXED : 0;
  when |= later ? (uint32_t)NP_WHEN_LATER : 0;
  return when;
}

/* Computes with an executor of its own. After a failure nothing is known about the outputs, except
 * for their shapes after OUTPUT_INSUFFICIENT_SIZE. */
static int compute(ANeuralNetworksExecution *execution, bool burst, uint64_t deadline_ns) {
  struct np_message why = {""};
  enum np_status status;
  uint32_t too_small = UINT32_MAX;
  struct np_slot *slot = np_slot_acquire(execution->compilation, &status, &why);
  if (!slot) {
    return np_refuse(np_result_code(status), __func__, "%s", why.text);
  }
  const struct np_limits limits = {.deadline_ns = deadline_ns == NP_NEVER ? 0 : deadline_ns,
                                   .loop_timeout_ns = execution->loop_timeout_ns};
  slot->miscompute.when = when_of(execution, burst, slot->n_runs > 0);
  slot->miscompute.earlier = slot->n_runs;
  slot->n_runs++;
  status = np_executor_run(slot->executor, execution->input_buffers, execution->output_buffers,
                           &limits, &too_small, &why);
  np_slot_release(slot);
  return run_code(status, too_small, &why);
}

static int run_real(ANeuralNetworksExecution *execution, uint64_t deadline_ns) {
  const uint64_t start = np_clock_now();
  if (start >= deadline_ns) {
    return NP_REFUSE(MISSED_DEADLINE_PERSISTENT, "the deadline has passed before the run");
  }
  const int code = compute(execution, false, deadline_ns);
  execution->hardware_ns = execution->driver_ns = np_clock_now() - start;
  return code;
}

/* Returns whether a run's results may differ from those of the run before. */
static bool miscomputes(const ANeuralNetworksCompilation *compilation) {
  return compilation->n_devices > 0 && np_miscomputes(compilation->devices[0]->accelerator);
}

/* Returns the offset from which on an injected fault leaves an output unwritten. */
static size_t unwritten_from(const struct np_buffer *output, enum np_fault_kind kind) {
  return kind == NP_FAULT_SKIP ? 0 : output->length / 2;
}

/* Computes, but leaves outputs, or their second halves, unwritten. */
static int compute_unwritten(ANeuralNetworksExecution *execution, bool burst,
                             enum np_fault_kind kind) {
  const uint32_t n = execution->compilation->model->graph.n_outputs;
  const struct np_buffer *outputs = execution->output_buffers;
  size_t n_bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    n_bytes += outputs[i].length - unwritten_from(&outputs[i], kind);
  }
  char *kept = malloc(n_bytes + 1);
  if (!kept) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for an injected fault");
  }
  char *at = kept;
  for (uint32_t i = 0; i < n; i++) {
    const size_t from = unwritten_from(&outputs[i], kind);
    memcpy(at, (char *)outputs[i].data + from, outputs[i].length - from);
    at += outputs[i].length - from;
  }
  const int code = compute(execution, burst, NP_NEVER);
  at = kept;
  for (uint32_t i = 0; i < n; i++) {
    const size_t from = unwritten_from(&outputs[i], kind);
    memcpy((char *)outputs[i].data + from, at, outputs[i].length - from);
    at += outputs[i].length - from;
  }
  free(kept);
  return code;
}

/* Runs on a simulated phone, whose clock does not advance while the results are computed, so the
 * executor has no deadline. */
static int run_simulated(ANeuralNetworksExecution *execution, bool burst, uint64_t deadline_ns) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_graph *graph = &compilation->model->graph;
  struct np_last_run *last = &compilation->simulation.last;
  const struct np_simulate_options options = {.burst = burst, .deadline_ns = deadline_ns};
  pthread_mutex_lock(&compilation->lock);
  int code = np_simulate_execute(execution, &options);
  const enum np_fault_kind silent = execution->silent ? execution->silent->kind : NP_FAULT_RESHAPE;
  if (code == ANEURALNETWORKS_NO_ERROR && silent != NP_FAULT_RESHAPE) {
    code = compute_unwritten(execution, burst, silent);
  } else if (code == ANEURALNETWORKS_NO_ERROR &&
             !np_repeat_last_run(last, execution->input_buffers, execution->output_buffers)) {
    code = compute(execution, burst, NP_NEVER);
    if (code == ANEURALNETWORKS_NO_ERROR && !miscomputes(compilation)) {
      np_keep_last_run(last, graph, execution->input_buffers, execution->output_buffers);
    }
  }
  pthread_mutex_unlock(&compilation->lock);
  return code;
}

/* Returns whether the shape that the run gave an output agrees with what was known before. */
static bool fits(uint32_t rank, const uint32_t *dims, const struct np_buffer *made) {
  if (rank == 0) {
    return true;
  }
  if (rank != made->rank) {
    return false;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] != 0 && dims[i] != made->dims[i]) {
      return false;
    }
  }
  return true;
}

/* Takes over the shape of an output. Returns false if it contradicts what the execution or a memory
 * from a descriptor said before. */
static bool settle_output(const struct np_operand *declared, struct np_argument *output,
                          const struct np_buffer *buffer) {
  if (output->kind == NP_ARGUMENT_OMITTED || (buffer->rank == 0 && np_has_unknown_dims(declared))) {
    return true; /* not wanted, or not known yet */
  }
  const struct np_operand *kept = output->memory ? &output->memory->operand : NULL;
  const bool agrees =
      fits(output->rank, output->dims, buffer) && (!kept || fits(kept->rank, kept->dims, buffer));
  struct np_operand made = {.type = declared->type, .rank = buffer->rank};
  memcpy(made.dims, buffer->dims, sizeof made.dims);
  output->rank = buffer->rank;
  memcpy(output->dims, buffer->dims, sizeof output->dims);
  output->too_small = np_operand_bytes(&made) > output->length;
  return agrees;
}

/* Settles all outputs, and whether memories from descriptors now have contents. */
static int settle(ANeuralNetworksExecution *execution, int code) {
  const ANeuralNetworksModel *model = execution->compilation->model;
  const bool shapes_known =
      code == ANEURALNETWORKS_NO_ERROR || code == ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE;
  for (uint32_t i = 0; i < model->graph.n_outputs && shapes_known; i++) {
    if (!settle_output(&model->declared[model->graph.outputs[i]], &execution->outputs[i],
                       &execution->output_buffers[i])) {
      code = NP_REFUSE(OP_FAILED, "output %u has another shape than it was said to have", i);
    }
  }
  for (uint32_t i = 0; i < model->graph.n_outputs; i++) {
    const struct np_argument *output = &execution->outputs[i];
    if (execution->silent && execution->silent->kind == NP_FAULT_RESHAPE && output->rank > 0) {
      execution->outputs[i].dims[output->rank - 1]++;
    }
    if (output->memory) {
      atomic_store(&execution->outputs[i].memory->initialized, code == ANEURALNETWORKS_NO_ERROR);
    }
  }
  return code;
}

int np_execution_begin(ANeuralNetworksExecution *execution, const char *function) {
  const struct np_graph *graph = &execution->compilation->model->graph;
  int expected = atomic_load(&execution->state);
  if (expected != NP_PREPARING && (expected != NP_COMPLETED || !execution->reusable)) {
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
  if (!atomic_compare_exchange_strong(&execution->state, &expected, NP_RUNNING)) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "the execution was started before");
  }
  execution->deadline_ns = np_deadline_after(execution->timeout_ns);
  execution->lane = np_device_table()->phone ? np_lanes_mine() : -1;
  return ANEURALNETWORKS_NO_ERROR;
}

void np_execution_abandon(ANeuralNetworksExecution *execution, int result) {
  execution->result = settle(execution, result);
  atomic_store(&execution->state, NP_COMPLETED);
}

int np_execution_run(ANeuralNetworksExecution *execution, bool burst, uint64_t duration) {
  const uint64_t other = np_deadline_after(duration);
  const uint64_t deadline = other < execution->deadline_ns ? other : execution->deadline_ns;
  fill_buffers(execution);
  const int code = np_device_table()->phone ? run_simulated(execution, burst, deadline)
                                            : run_real(execution, deadline);
  execution->result = settle(execution, code);
  const int result = execution->result;
  atomic_store(&execution->state, NP_COMPLETED); /* it may be freed from here on */
  return result;
}
