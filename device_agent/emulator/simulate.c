/* Simulated compilations and executions: where operations go, what they take, and what is kept.
 *
 * Results are always computed by the kernels. On a simulated phone the clock is the model's, so how
 * long that takes is nobody's concern, and what a compilation has computed once for the same input
 * bytes is copied instead of computed again: the results are the same to the bit. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "hash.h"
#include "partition.h"

/* What tells one placed model's noise from another's: operations, shapes, accelerator,
 * preference. */
static uint64_t noise_hash(const ANeuralNetworksCompilation *compilation,
                           const struct np_phone *phone) {
  const struct np_graph *graph = &compilation->model->graph;
  uint64_t hash = np_hash_u64(NP_HASH_START, phone->noise_seed);
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const struct np_operation *o = &graph->operations[k];
    hash = np_hash_u32(hash, (uint32_t)o->code);
    for (uint32_t i = 0; i < o->n_inputs + o->n_outputs; i++) {
      const uint32_t index = i < o->n_inputs ? o->inputs[i] : o->outputs[i - o->n_inputs];
      const struct np_operand *operand = &graph->operands[index];
      hash = np_hash_u32(hash, operand->rank);
      for (uint32_t d = 0; d < operand->rank; d++)
        hash = np_hash_u32(hash, operand->dims[d]);
    }
  }
  const struct np_simulation *simulation = &compilation->simulation;
  /* A model that NNAPI itself put on one accelerator whole is the same work as on that accelerator
   * by name: it draws the same noise, so that the two do not differ by chance. */
  const char *name = simulation->n_steps == 1 ? simulation->steps[0].accelerator->name : "several";
  hash = np_hash_bytes(hash, name, strlen(name) + 1);
  return np_hash_u32(hash, (uint32_t)compilation->preference);
}

/* Places the operations on the accelerators of a simulated phone and cuts steps. */
static int place(ANeuralNetworksCompilation *compilation, struct np_device_table *table,
                 const bool *supported) {
  const struct np_graph *graph = &compilation->model->graph;
  struct np_simulation *simulation = &compilation->simulation;
  const struct np_accelerator *accelerators[NP_MAX_ACCELERATORS + 1];
  struct np_choices choices = {accelerators, compilation->n_devices, supported};
  for (uint32_t i = 0; i < compilation->n_devices; i++) {
    accelerators[i] = compilation->devices[i]->accelerator;
  }
  /* The row behind the devices is the host CPU's; it counts only where NNAPI chooses. */
  accelerators[choices.n_accelerators] = &table->host_cpu;
  if (!compilation->explicit_devices)
    choices.n_accelerators++;

  uint32_t *assignment = malloc(graph->n_operations * sizeof *assignment);
  if (!assignment)
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  uint32_t refused = 0;
  int code = ANEURALNETWORKS_NO_ERROR;
  if (np_assign(graph, &choices, assignment, &refused) != NP_OK) {
    code = NP_REFUSE(BAD_DATA, "no device can run operation %u (%s)",
                     compilation->model->order[refused],
                     np_operation_name(graph->operations[refused].code));
  } else if (np_make_steps(graph, &choices, assignment, compilation->model->relaxed,
                           &simulation->steps, &simulation->n_steps) != NP_OK) {
    code = NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  }
  free(assignment);
  return code;
}

/* Advances the clock by `ns`, or as far as the deadline where that comes first. */
static int spend(uint64_t ns, uint64_t deadline_ns, const char *function) {
  const uint64_t now = np_clock_now();
  if (deadline_ns == NP_NEVER || (now <= deadline_ns && ns <= deadline_ns - now)) {
    np_clock_advance(ns);
    return ANEURALNETWORKS_NO_ERROR;
  }
  if (deadline_ns > now)
    np_clock_advance(deadline_ns - now);
  return np_refuse(ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT, function,
                   "%llu ns do not fit in front of the deadline", (unsigned long long)ns);
}

int np_simulate_compile(ANeuralNetworksCompilation *compilation, const bool *supported,
                        const struct np_simulate_options *options) {
  struct np_device_table *table = np_device_table();
  struct np_simulation *simulation = &compilation->simulation;
  const int code = place(compilation, table, supported);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;
  simulation->noise_hash = noise_hash(compilation, table->phone);
  const double ns = np_steps_compile_ns(simulation->steps, simulation->n_steps);
  return spend((uint64_t)(ns + 0.5), options->deadline_ns, __func__);
}

int np_simulate_execute(ANeuralNetworksExecution *execution,
                        const struct np_simulate_options *options) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  struct np_simulation *simulation = &compilation->simulation;
  const struct np_latency latency = np_steps_latency(simulation->steps, simulation->n_steps,
                                                     compilation->preference, options->burst);
  const uint64_t seed = np_hash_u64(simulation->noise_hash, simulation->n_runs++);
  const double noise = np_noise_factor(seed, np_device_table()->phone->noise_spread);
  execution->hardware_ns = (uint64_t)(latency.hardware * noise + 0.5);
  execution->driver_ns = (uint64_t)(latency.driver * noise + 0.5);
  return spend((uint64_t)(latency.wall * noise + 0.5), options->deadline_ns, __func__);
}

/* Frees the buffers of a list and the list. */
static void free_buffers(struct np_buffer *buffers, uint32_t n) {
  for (uint32_t i = 0; buffers && i < n; i++)
    free(buffers[i].data);
  free(buffers);
}

static void last_run_free(struct np_last_run *last) {
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

bool np_repeat_last_run(const struct np_last_run *last, const struct np_buffer *inputs,
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

void np_keep_last_run(struct np_last_run *last, const struct np_graph *graph,
                      const struct np_buffer *inputs, const struct np_buffer *outputs) {
  last->valid = false;
  if (!last->inputs) {
    last->inputs = calloc(graph->n_inputs, sizeof *last->inputs);
    last->outputs = calloc(graph->n_outputs, sizeof *last->outputs);
    last->n_inputs = graph->n_inputs;
    last->n_outputs = graph->n_outputs;
    if (!last->inputs || !last->outputs) {
      last_run_free(last);
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

void np_simulation_free(struct np_simulation *simulation) {
  last_run_free(&simulation->last);
  free(simulation->steps);
  *simulation = (struct np_simulation){0};
}
