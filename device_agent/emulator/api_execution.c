/* ANeuralNetworksExecution_*, ANeuralNetworksBurst_*: arguments of runs, runs, and their times. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

/* Loop time-outs of Android 11's runtime: 2 s if none is set, 15 s at most. */
#define DEFAULT_LOOP_TIMEOUT_NS UINT64_C(2000000000)
#define MAXIMUM_LOOP_TIMEOUT_NS UINT64_C(15000000000)

int ANeuralNetworksExecution_create(ANeuralNetworksCompilation *compilation,
                                    ANeuralNetworksExecution **execution) {
  if (!compilation || !execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation or execution is NULL");
  }
  *execution = NULL;
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_STATE, "the compilation is not finished, or finish refused it");
  }
  const struct np_graph *graph = &compilation->model->graph;
  ANeuralNetworksExecution *made = calloc(1, sizeof *made);
  struct np_argument *inputs = calloc(graph->n_inputs, sizeof *inputs);
  struct np_argument *outputs = calloc(graph->n_outputs, sizeof *outputs);
  if (!made || !inputs || !outputs) {
    free(made);
    free(inputs);
    free(outputs);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->compilation = compilation;
  made->inputs = inputs;
  made->outputs = outputs;
  atomic_init(&made->state, NP_PREPARING);
  *execution = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* An execution that still runs is waited for. */
void ANeuralNetworksExecution_free(ANeuralNetworksExecution *execution) {
  if (!execution)
    return;
  if (execution->event) {
    np_event_wait(execution->event);
    np_event_release(execution->event);
  }
  free(execution->inputs);
  free(execution->outputs);
  free(execution);
}

/* What setInput* and setOutput* share. `memory` is NULL for a pointer, `buffer` for a memory. */
static int set_argument(ANeuralNetworksExecution *execution, enum np_role_kind kind, int32_t index,
                        const ANeuralNetworksOperandType *type, const void *buffer,
                        const ANeuralNetworksMemory *memory, size_t offset, size_t length) {
  if (atomic_load(&execution->state) != NP_PREPARING) {
    return NP_REFUSE(BAD_STATE, "the execution was started");
  }
  const ANeuralNetworksModel *model = execution->compilation->model;
  const bool input = kind == NP_ROLE_INPUT;
  const uint32_t n = input ? model->graph.n_inputs : model->graph.n_outputs;
  if (index < 0 || (uint32_t)index >= n)
    return NP_REFUSE(BAD_DATA, "index %d of %u", index, n);

  const uint32_t *list = input ? model->graph.inputs : model->graph.outputs;
  const struct np_operand *operand = &model->declared[list[index]];
  const bool omitted = !buffer && !memory;
  struct np_argument made = {.kind = omitted ? NP_ARGUMENT_OMITTED : NP_ARGUMENT_GIVEN,
                             .data = (void *)(uintptr_t)buffer,
                             .length = length};
  int code = np_combine_dims(operand, type, omitted || !input, &made.rank, made.dims);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;

  if (memory) {
    const struct np_role role = {execution->compilation, (uint32_t)index, kind};
    code = np_memory_range(memory, &role, offset, &made.length, &made.data);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return code;
    if (input ? !memory->readable : !memory->writable) {
      return NP_REFUSE(BAD_DATA, "the memory's protection does not allow this");
    }
    /* A memory of a descriptor changes state when it is written; the API takes it as const. */
    made.memory = memory->from_desc ? (ANeuralNetworksMemory *)(uintptr_t)memory : NULL;
  }
  struct np_operand sized = *operand;
  sized.rank = made.rank;
  memcpy(sized.dims, made.dims, sizeof sized.dims);
  const size_t wanted = np_has_unknown_dims(&sized) ? 0 : np_operand_bytes(&sized);
  if (!omitted && made.length != wanted && (wanted != 0 || input)) {
    return NP_REFUSE(BAD_DATA, "%s %d: %zu bytes, wanted %zu", input ? "input" : "output", index,
                     made.length, wanted);
  }
  (input ? execution->inputs : execution->outputs)[index] = made;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution *execution, int32_t index,
                                      const ANeuralNetworksOperandType *type, const void *buffer,
                                      size_t length) {
  if (!execution || (!buffer && length != 0)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL, or buffer is and has a length");
  }
  return set_argument(execution, NP_ROLE_INPUT, index, type, buffer, NULL, 0, length);
}

int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution *execution, int32_t index,
                                       const ANeuralNetworksOperandType *type, void *buffer,
                                       size_t length) {
  if (!execution || (!buffer && length != 0)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL, or buffer is and has a length");
  }
  return set_argument(execution, NP_ROLE_OUTPUT, index, type, buffer, NULL, 0, length);
}

int ANeuralNetworksExecution_setInputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                const ANeuralNetworksOperandType *type,
                                                const ANeuralNetworksMemory *memory, size_t offset,
                                                size_t length) {
  if (!execution || !memory)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or memory is NULL");
  return set_argument(execution, NP_ROLE_INPUT, index, type, NULL, memory, offset, length);
}

int ANeuralNetworksExecution_setOutputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                 const ANeuralNetworksOperandType *type,
                                                 const ANeuralNetworksMemory *memory, size_t offset,
                                                 size_t length) {
  if (!execution || !memory)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or memory is NULL");
  return set_argument(execution, NP_ROLE_OUTPUT, index, type, NULL, memory, offset, length);
}

int ANeuralNetworksExecution_compute(ANeuralNetworksExecution *execution) {
  if (!execution)
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  const int code = np_execution_begin(execution, __func__);
  return code == ANEURALNETWORKS_NO_ERROR ? np_execution_run(execution, false) : code;
}

int ANeuralNetworksExecution_setMeasureTiming(ANeuralNetworksExecution *execution, bool measure) {
  if (!execution)
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  if (!np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "timing needs createForDevices with one device");
  }
  if (atomic_load(&execution->state) != NP_PREPARING) {
    return NP_REFUSE(BAD_STATE, "the execution was started");
  }
  execution->measure = measure;
  return ANEURALNETWORKS_NO_ERROR;
}

/* In real time both durations are what the run took; on a simulated phone they are the model's.
 * UINT64_MAX with every error. The fenced codes tell the same, as nothing here waits in hardware.
 */
int ANeuralNetworksExecution_getDuration(const ANeuralNetworksExecution *execution,
                                         int32_t durationCode, uint64_t *duration) {
  if (!execution || !duration)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or duration is NULL");
  *duration = ANEURALNETWORKS_DURATION_UNAVAILABLE;
  if (durationCode < ANEURALNETWORKS_DURATION_ON_HARDWARE ||
      durationCode > ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER) {
    return NP_REFUSE(BAD_DATA, "%d is no duration code", durationCode);
  }
  if (atomic_load(&execution->state) != NP_COMPLETED ||
      execution->result != ANEURALNETWORKS_NO_ERROR || !execution->measure) {
    return NP_REFUSE(BAD_STATE, "the execution has not completed well with timing on");
  }
  const bool hardware = durationCode == ANEURALNETWORKS_DURATION_ON_HARDWARE ||
                        durationCode == ANEURALNETWORKS_FENCED_DURATION_ON_HARDWARE;
  *duration = hardware ? execution->hardware_ns : execution->driver_ns;
  return ANEURALNETWORKS_NO_ERROR;
}

/* The output whose shape is asked for: NO_ERROR, or OUTPUT_INSUFFICIENT_SIZE where its buffer was
 * too small (its shape is known then, too). */
static int completed_output(const ANeuralNetworksExecution *execution, int32_t index,
                            const struct np_argument **output) {
  if (atomic_load(&execution->state) != NP_COMPLETED ||
      (execution->result != ANEURALNETWORKS_NO_ERROR &&
       execution->result != ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE)) {
    return NP_REFUSE(BAD_STATE, "the execution has not completed well");
  }
  const uint32_t n = execution->compilation->model->graph.n_outputs;
  if (index < 0 || (uint32_t)index >= n)
    return NP_REFUSE(BAD_DATA, "output %d of %u", index, n);
  *output = &execution->outputs[index];
  return (*output)->too_small ? ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE : ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksExecution_getOutputOperandRank(ANeuralNetworksExecution *execution,
                                                  int32_t index, uint32_t *rank) {
  if (!execution || !rank)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or rank is NULL");
  const struct np_argument *output = NULL;
  const int code = completed_output(execution, index, &output);
  if (output)
    *rank = output->rank;
  return code;
}

/* BAD_DATA for a scalar, which has no dimensions. */
int ANeuralNetworksExecution_getOutputOperandDimensions(ANeuralNetworksExecution *execution,
                                                        int32_t index, uint32_t *dimensions) {
  if (!execution || !dimensions)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or result is NULL");
  const struct np_argument *output = NULL;
  const int code = completed_output(execution, index, &output);
  if (!output)
    return code;
  if (output->rank == 0)
    return NP_REFUSE(BAD_DATA, "output %d is a scalar", index);
  memcpy(dimensions, output->dims, output->rank * sizeof *dimensions);
  return code;
}

/* Checked and without effect: executions are never aborted. */
int ANeuralNetworksExecution_setTimeout(ANeuralNetworksExecution *execution, uint64_t duration) {
  (void)duration;
  if (!execution)
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  if (!np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "a timeout needs createForDevices with one device");
  }
  return atomic_load(&execution->state) == NP_PREPARING
             ? ANEURALNETWORKS_NO_ERROR
             : NP_REFUSE(BAD_STATE, "the execution was started");
}

/* Checked and without effect: no kernel runs WHILE. */
int ANeuralNetworksExecution_setLoopTimeout(ANeuralNetworksExecution *execution,
                                            uint64_t duration) {
  (void)duration;
  if (!execution)
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  return atomic_load(&execution->state) == NP_PREPARING
             ? ANEURALNETWORKS_NO_ERROR
             : NP_REFUSE(BAD_STATE, "the execution was started");
}

uint64_t ANeuralNetworks_getDefaultLoopTimeout(void) { return DEFAULT_LOOP_TIMEOUT_NS; }
uint64_t ANeuralNetworks_getMaximumLoopTimeout(void) { return MAXIMUM_LOOP_TIMEOUT_NS; }

int ANeuralNetworksBurst_create(ANeuralNetworksCompilation *compilation,
                                ANeuralNetworksBurst **burst) {
  if (!compilation || !burst)
    return NP_REFUSE(UNEXPECTED_NULL, "compilation or burst is NULL");
  *burst = NULL;
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_STATE, "the compilation is not finished, or finish refused it");
  }
  ANeuralNetworksBurst *made = calloc(1, sizeof *made);
  if (!made)
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  made->compilation = compilation;
  atomic_init(&made->busy, false);
  *burst = made;
  return ANEURALNETWORKS_NO_ERROR;
}

void ANeuralNetworksBurst_free(ANeuralNetworksBurst *burst) { free(burst); }

int ANeuralNetworksExecution_burstCompute(ANeuralNetworksExecution *execution,
                                          ANeuralNetworksBurst *burst) {
  if (!execution || !burst)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or burst is NULL");
  if (execution->compilation != burst->compilation) {
    return NP_REFUSE(BAD_DATA, "execution and burst belong to different compilations");
  }
  if (atomic_exchange(&burst->busy, true))
    return NP_REFUSE(BAD_STATE, "the burst is running");
  int code = np_execution_begin(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR)
    code = np_execution_run(execution, true);
  atomic_store(&burst->busy, false);
  return code;
}
