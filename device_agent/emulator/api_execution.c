/* ANeuralNetworksExecution_*: the arguments and limits of a run, and runs. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

/* Loop time-outs of Android 11's runtime: 2 s if none is set, 15 s at most. */
#define DEFAULT_LOOP_TIMEOUT_NS UINT64_C(2000000000)
#define MAXIMUM_LOOP_TIMEOUT_NS UINT64_C(15000000000)

uint64_t np_deadline_after(uint64_t duration) {
  const uint64_t now = np_clock_now();
  return duration == 0 || duration > NP_NEVER - now ? NP_NEVER : now + duration;
}

static void free_execution(ANeuralNetworksExecution *execution) {
  free(execution->inputs);
  free(execution->outputs);
  free(execution->input_buffers);
  free(execution->output_buffers);
  free(execution);
}

int ANeuralNetworksExecution_create(ANeuralNetworksCompilation *compilation,
                                    ANeuralNetworksExecution **execution) {
  if (execution) {
    *execution = NULL;
  }
  if (!compilation || !execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation or execution is NULL");
  }
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_STATE, "the compilation is not finished, or finish refused it");
  }
  const struct np_graph *graph = &compilation->model->graph;
  ANeuralNetworksExecution *made = calloc(1, sizeof *made);
  if (!made) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->compilation = compilation;
  made->inputs = calloc(graph->n_inputs, sizeof *made->inputs);
  made->outputs = calloc(graph->n_outputs, sizeof *made->outputs);
  made->input_buffers = calloc(graph->n_inputs, sizeof *made->input_buffers);
  made->output_buffers = calloc(graph->n_outputs, sizeof *made->output_buffers);
  atomic_init(&made->state, NP_PREPARING);
  if (!made->inputs || !made->outputs || !made->input_buffers || !made->output_buffers) {
    free_execution(made);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  *execution = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Waits for an execution that is still running. */
void ANeuralNetworksExecution_free(ANeuralNetworksExecution *execution) {
  if (!execution) {
    return;
  }
  if (execution->event) {
    np_event_wait(execution->event);
    np_event_release(execution->event);
  }
  free_execution(execution);
}

/* NO_ERROR, or BAD_STATE once the execution was started. */
static int check_preparing(const ANeuralNetworksExecution *execution, const char *function) {
  return atomic_load(&execution->state) == NP_PREPARING
             ? ANEURALNETWORKS_NO_ERROR
             : np_refuse(ANEURALNETWORKS_BAD_STATE, function, "the execution was started");
}

/* The source of an argument: a pointer, or a part of a memory; neither: it is omitted. */
struct source {
  const void *buffer;
  const ANeuralNetworksMemory *memory;
  size_t offset, length;
};

/* Finds the bytes of a memory for an argument, whose dimensions may be only partly known. */
static int bind_memory(const struct source *source, const struct np_role *role,
                       struct np_argument *argument, const char *function) {
  const ANeuralNetworksMemory *memory = source->memory;
  const int code =
      np_memory_range(memory, role, source->offset, &argument->length, &argument->data);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (role->kind == NP_ROLE_INPUT ? !memory->readable : !memory->writable) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function,
                     "the memory's protection does not allow this");
  }
  if (!memory->from_desc) {
    return ANEURALNETWORKS_NO_ERROR;
  }
  if (!np_dims_agree(argument->rank, argument->dims, memory->operand.rank, memory->operand.dims)) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function,
                     "dimensions contradict those of the memory");
  }
  /* Writing changes the state of a memory from a descriptor, but the API takes it as const. */
  argument->memory = (ANeuralNetworksMemory *)(uintptr_t)memory;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Sets an argument, for setInput* and setOutput*. */
static int set_argument(ANeuralNetworksExecution *execution, enum np_role_kind kind, int32_t index,
                        const ANeuralNetworksOperandType *type, const struct source *source,
                        const char *function) {
  int code = check_preparing(execution, function);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  const ANeuralNetworksModel *model = execution->compilation->model;
  const bool input = kind == NP_ROLE_INPUT;
  const uint32_t n = input ? model->graph.n_inputs : model->graph.n_outputs;
  if (index < 0 || (uint32_t)index >= n) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "index %d of %u", index, n);
  }

  const uint32_t *list = input ? model->graph.inputs : model->graph.outputs;
  const struct np_operand *operand = &model->declared[list[index]];
  struct np_argument *argument = &(input ? execution->inputs : execution->outputs)[index];
  const bool omitted = !source->buffer && !source->memory;
  struct np_argument made = {.kind = omitted ? NP_ARGUMENT_OMITTED : NP_ARGUMENT_GIVEN,
                             .data = (void *)(uintptr_t)source->buffer,
                             .length = source->length,
                             .shared = source->memory != NULL};
  code = np_combine_dims(operand, type, omitted || !input, &made.rank, made.dims);
  if (code == ANEURALNETWORKS_NO_ERROR && source->memory) {
    const struct np_role role = {execution->compilation, (uint32_t)index, kind};
    code = bind_memory(source, &role, &made, function);
  }
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (argument->kind != NP_ARGUMENT_UNSET) {
    return np_refuse(ANEURALNETWORKS_BAD_STATE, function, "argument %d is set already", index);
  }
  struct np_operand sized = *operand;
  sized.rank = made.rank;
  memcpy(sized.dims, made.dims, sizeof sized.dims);
  const size_t wanted = np_has_unknown_dims(&sized) ? 0 : np_operand_bytes(&sized);
  if (!omitted && (made.length == 0 || (wanted != 0 && made.length != wanted))) {
    return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "argument %d: %zu bytes, wanted %zu",
                     index, made.length, wanted);
  }
  execution->memory_kinds |= source->memory ? source->memory->kind : 0;
  *argument = made;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution *execution, int32_t index,
                                      const ANeuralNetworksOperandType *type, const void *buffer,
                                      size_t length) {
  if (!execution || (!buffer && length != 0)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL, or buffer is and has a length");
  }
  const struct source source = {.buffer = buffer, .length = length};
  return set_argument(execution, NP_ROLE_INPUT, index, type, &source, __func__);
}

int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution *execution, int32_t index,
                                       const ANeuralNetworksOperandType *type, void *buffer,
                                       size_t length) {
  if (!execution || (!buffer && length != 0)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL, or buffer is and has a length");
  }
  const struct source source = {.buffer = buffer, .length = length};
  return set_argument(execution, NP_ROLE_OUTPUT, index, type, &source, __func__);
}

int ANeuralNetworksExecution_setInputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                const ANeuralNetworksOperandType *type,
                                                const ANeuralNetworksMemory *memory, size_t offset,
                                                size_t length) {
  if (!execution || !memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or memory is NULL");
  }
  const struct source source = {.memory = memory, .offset = offset, .length = length};
  return set_argument(execution, NP_ROLE_INPUT, index, type, &source, __func__);
}

int ANeuralNetworksExecution_setOutputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                 const ANeuralNetworksOperandType *type,
                                                 const ANeuralNetworksMemory *memory, size_t offset,
                                                 size_t length) {
  if (!execution || !memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or memory is NULL");
  }
  const struct source source = {.memory = memory, .offset = offset, .length = length};
  return set_argument(execution, NP_ROLE_OUTPUT, index, type, &source, __func__);
}

int ANeuralNetworksExecution_compute(ANeuralNetworksExecution *execution) {
  if (!execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  }
  const int code = np_execution_begin(execution, __func__);
  return code == ANEURALNETWORKS_NO_ERROR ? np_execution_run(execution, false, 0) : code;
}

/* Works only from level 5 on, which has the function. */
int ANeuralNetworksExecution_setReusable(ANeuralNetworksExecution *execution, bool reusable) {
  if (!execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  }
  if (np_device_table()->level < ANEURALNETWORKS_FEATURE_LEVEL_5) {
    return NP_REFUSE(BAD_STATE, "no execution is reusable below feature level 5");
  }
  const int code = check_preparing(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    execution->reusable = reusable;
  }
  return code;
}

int ANeuralNetworksExecution_setMeasureTiming(ANeuralNetworksExecution *execution, bool measure) {
  if (!execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  }
  if (!np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "timing needs createForDevices with one device");
  }
  const int code = check_preparing(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    execution->measure = measure;
  }
  return code;
}

/* The time starts with the execution; 0: no limit. A run that starts too late fails with
 * MISSED_DEADLINE_PERSISTENT, one that takes too long with MISSED_DEADLINE_TRANSIENT. */
int ANeuralNetworksExecution_setTimeout(ANeuralNetworksExecution *execution, uint64_t duration) {
  if (!execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  }
  if (!np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "a timeout needs createForDevices with one device");
  }
  const int code = check_preparing(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    execution->timeout_ns = duration;
  }
  return code;
}

/* Limits the time to the maximum; with 0 no WHILE iterates. */
int ANeuralNetworksExecution_setLoopTimeout(ANeuralNetworksExecution *execution,
                                            uint64_t duration) {
  if (!execution) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution is NULL");
  }
  const int code = check_preparing(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    execution->loop_timeout_ns = duration == 0                        ? 1
                                 : duration > MAXIMUM_LOOP_TIMEOUT_NS ? MAXIMUM_LOOP_TIMEOUT_NS
                                                                      : duration;
  }
  return code;
}

uint64_t ANeuralNetworks_getDefaultLoopTimeout(void) { return DEFAULT_LOOP_TIMEOUT_NS; }
uint64_t ANeuralNetworks_getMaximumLoopTimeout(void) { return MAXIMUM_LOOP_TIMEOUT_NS; }
