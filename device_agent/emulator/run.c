/* One execution, from its arguments to its results and its time.
 *
 * Results are always computed by the kernels. On a simulated phone the clock is the model's, so how
 * long that takes is nobody's concern, and what a compilation has computed once for the same input
 * bytes is copied instead of computed again: the results are the same to the bit. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "hash.h"

/* Frees the buffers of a list and the list. */
static void free_buffers(struct np_buffer *buffers, uint32_t n) {
  for (uint32_t i = 0; buffers && i < n; i++)
    free(buffers[i].data);
  free(buffers);
}

void np_last_run_free(struct np_last_run *last) {
  free_buffers(last->inputs, last->n_inputs);
  free_buffers(last->outputs, last->n_outputs);
  *last = (struct np_last_run){0};
}

/* Bytes that an output holds, by the shape that the run gave it. */
static size_t output_bytes(const struct np_operand *operand, const struct np_buffer *buffer) {
  size_t bytes = np_type_bytes(operand->type);
  for (uint32_t d = 0; d < buffer->rank; d++)
    bytes *= buffer->dims[d];
  return bytes;
}

static bool same_input(const struct np_buffer *a, const struct np_buffer *b) {
  return a->omitted == b->omitted && a->length == b->length && a->rank == b->rank &&
         memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
         (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

/* Whether the last run had these inputs, and its outputs fit; if so they are copied. */
static bool repeat_last_run(const struct np_last_run *last, const struct np_buffer *inputs,
                            struct np_buffer *outputs) {
  if (!last->valid)
    return false;
  for (uint32_t i = 0; i < last->n_inputs; i++) {
    if (!same_input(&last->inputs[i], &inputs[i]))
      return false;
  }
  for (uint32_t i = 0; i < last->n_outputs; i++) {
    if (outputs[i].length < last->outputs[i].length)
      return false;
  }
  for (uint32_t i = 0; i < last->n_outputs; i++) {
    const struct np_buffer *kept = &last->outputs[i];
    if (kept->length)
      memcpy(outputs[i].data, kept->data, kept->length);
    outputs[i].rank = kept->rank;
    memcpy(outputs[i].dims, kept->dims, sizeof kept->dims);
  }
  return true;
}

/* A copy of `from` with `length` bytes of data of its own in *to; 0 where memory is short. The old
 * data of *to are used again where they have the same length. */
static int keep_buffer(struct np_buffer *to, const struct np_buffer *from, size_t length) {
  void *data = to->data;
  if (!data || to->length != length) {
    free(data);
    data = malloc(length ? length : 1);
  }
  *to = *from;
  to->data = data;
  to->length = length;
  if (data && length)
    memcpy(data, from->data, length);
  return data != NULL;
}

/* Keeps what a run read and wrote. Short memory only means that the next run computes again. */
static void keep_last_run(struct np_last_run *last, const struct np_graph *graph,
                          const struct np_buffer *inputs, const struct np_buffer *outputs) {
  last->valid = false;
  if (!last->inputs) {
    last->inputs = calloc(graph->n_inputs, sizeof *last->inputs);
    last->outputs = calloc(graph->n_outputs, sizeof *last->outputs);
    last->n_inputs = graph->n_inputs;
    last->n_outputs = graph->n_outputs;
    if (!last->inputs || !last->outputs) {
      np_last_run_free(last);
      return;
    }
  }
  int kept = 1;
  for (uint32_t i = 0; kept && i < last->n_inputs; i++) {
    kept = keep_buffer(&last->inputs[i], &inputs[i], inputs[i].length);
  }
  for (uint32_t i = 0; kept && i < last->n_outputs; i++) {
    if (outputs[i].omitted)
      return; /* rare, and nothing to copy from */
    const struct np_operand *operand = &graph->operands[graph->outputs[i]];
    kept = keep_buffer(&last->outputs[i], &outputs[i], output_bytes(operand, &outputs[i]));
  }
  last->valid = kept;
}

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

/* Advances the clock by one execution on the simulated phone and keeps its parts. */
static void simulate_time(ANeuralNetworksExecution *execution, const struct np_phone *phone,
                          bool burst) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_latency latency =
      np_steps_latency(compilation->steps, compilation->n_steps, compilation->preference, burst);
  const uint64_t seed = np_hash_u64(compilation->noise_hash, compilation->n_runs++);
  const double noise = np_noise_factor(seed, phone->noise_spread);
  execution->hardware_ns = (uint64_t)(latency.hardware * noise + 0.5);
  execution->driver_ns = (uint64_t)(latency.driver * noise + 0.5);
  np_clock_advance((uint64_t)(latency.wall * noise + 0.5));
}

/* Computes with the compilation's lock held. */
static int compute_locked(ANeuralNetworksExecution *execution, bool burst,
                          const struct np_buffer *inputs, struct np_buffer *outputs,
                          uint32_t *too_small) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_graph *graph = &compilation->model->graph;
  const struct np_phone *phone = np_device_table()->phone;
  struct np_message why = {""};
  *too_small = UINT32_MAX;
  const uint64_t before = np_clock_now();
  int code = ANEURALNETWORKS_NO_ERROR;
  if (!phone || !repeat_last_run(&compilation->last, inputs, outputs)) {
    const enum np_status status =
        np_executor_run(compilation->executor, inputs, outputs, NULL, too_small, &why);
    code = run_code(status, *too_small, &why);
    if (phone && code == ANEURALNETWORKS_NO_ERROR) {
      keep_last_run(&compilation->last, graph, inputs, outputs);
    }
  }
  if (phone) {
    simulate_time(execution, phone, burst);
  } else {
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
