/* The engine `nnapi`: runs a model through NNAPI's C API, on one accelerator or on NNAPI's
 * choice. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nnapi_compiled.h"

static enum np_status build_compilation(struct np_compiled *self, const struct np_options *options,
                                        struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const ANeuralNetworksDevice *devices[1] = {self->device};
  if (self->device) {
    NP_TRY(np_nnapi_check_support(self, options->accelerator, fault));
  }
  NP_NNAPI_TRY(self, fault, "Compilation_create",
               self->device
                   ? table->ANeuralNetworksCompilation_createForDevices(self->model, devices, 1,
                                                                        &self->compilation)
                   : table->ANeuralNetworksCompilation_create(self->model, &self->compilation));
  if (options->preference >= 0) {
    NP_NNAPI_TRY(
        self, fault, "setPreference",
        table->ANeuralNetworksCompilation_setPreference(self->compilation, options->preference));
  }
  np_nnapi_set_wishes(self, options);
  NP_NNAPI_TRY(self, fault, "Compilation_finish",
               table->ANeuralNetworksCompilation_finish(self->compilation));

  if (options->burst) {
    if (!table->ANeuralNetworksBurst_create || !table->ANeuralNetworksExecution_burstCompute) {
      return np_nnapi_absent(fault, "Burst_create", 29);
    }
    NP_NNAPI_TRY(self, fault, "Burst_create",
                 table->ANeuralNetworksBurst_create(self->compilation, &self->burst));
  }
  return NP_OK;
}

static int can_wait(const struct np_nnapi_table *table) {
  return (table->ANeuralNetworksExecution_startCompute ||
          table->ANeuralNetworksExecution_startComputeWithDependencies) &&
         table->ANeuralNetworksEvent_wait && table->ANeuralNetworksEvent_free;
}

/* Checks that all functions of API 27 are present: without them nothing runs. */
static enum np_status check_basics(const struct np_nnapi_table *table,
                                   const struct np_options *options, struct np_fault *fault) {
#define NEED(name)                                                                                 \
  if (!table->name)                                                                                \
  return np_nnapi_absent(fault, #name, 27)
  NEED(ANeuralNetworksModel_create);
  NEED(ANeuralNetworksModel_free);
  NEED(ANeuralNetworksModel_addOperand);
  NEED(ANeuralNetworksModel_setOperandValue);
  NEED(ANeuralNetworksModel_addOperation);
  NEED(ANeuralNetworksModel_identifyInputsAndOutputs);
  NEED(ANeuralNetworksModel_finish);
  if (!options->accelerator) {
    NEED(ANeuralNetworksCompilation_create);
  }
  NEED(ANeuralNetworksCompilation_free);
  NEED(ANeuralNetworksCompilation_setPreference);
  NEED(ANeuralNetworksCompilation_finish);
  NEED(ANeuralNetworksExecution_create);
  NEED(ANeuralNetworksExecution_free);
  NEED(ANeuralNetworksExecution_setInput);
  NEED(ANeuralNetworksExecution_setOutput);
#undef NEED
  if ((!table->ANeuralNetworksExecution_compute || options->async) && !can_wait(table)) {
    return np_nnapi_absent(fault, "ANeuralNetworksExecution_startCompute", 27);
  }
  return NP_OK;
}

/* Returns whether durations are available: NNAPI measures only if exactly one device was named. */
static int can_tell(const struct np_compiled *self) {
  return self->device && self->table->ANeuralNetworksExecution_setMeasureTiming &&
         self->table->ANeuralNetworksExecution_getDuration;
}

static void drop_execution(struct np_compiled *self) {
  if (self->execution) {
    self->table->ANeuralNetworksExecution_free(self->execution);
  }
  self->execution = NULL;
}

static int nnapi_ask(struct np_compiled *self) {
  drop_execution(self); /* it was made without measuring */
  self->measure_timing = 1;
  return can_tell(self);
}

static void nnapi_settle(struct np_compiled *self, struct np_durations *durations) {
  const struct np_nnapi_table *table = self->table;
  if (!self->execution) {
    return;
  }
  if (can_tell(self) && self->measure_timing) {
    /* NNAPI returns UINT64_MAX, our NP_NO_DURATION, if the driver does not report one. */
    if (table->ANeuralNetworksExecution_getDuration(
            self->execution, ANEURALNETWORKS_DURATION_ON_HARDWARE, &durations->hardware_ns) !=
        ANEURALNETWORKS_NO_ERROR) {
      durations->hardware_ns = NP_NO_DURATION;
    }
    if (table->ANeuralNetworksExecution_getDuration(
            self->execution, ANEURALNETWORKS_DURATION_IN_DRIVER, &durations->driver_ns) !=
        ANEURALNETWORKS_NO_ERROR) {
      durations->driver_ns = NP_NO_DURATION;
    }
  }
  if (!self->places) {
    drop_execution(self);
  }
}

static void nnapi_free(struct np_compiled *self) {
  const struct np_nnapi_table *table = self->table;
  drop_execution(self);
  if (self->burst && table->ANeuralNetworksBurst_free) {
    table->ANeuralNetworksBurst_free(self->burst);
  }
  if (self->compilation) {
    table->ANeuralNetworksCompilation_free(self->compilation);
  }
  if (self->model) {
    table->ANeuralNetworksModel_free(self->model);
  }
  free(self->places);
  free(self);
}

static enum np_status nnapi_compile(void *ctx, const struct np_model *model,
                                    const struct np_options *options, struct np_compiled **compiled,
                                    struct np_fault *fault) {
  const struct np_nnapi *nnapi = ctx;
  NP_REQUIRE(options->accelerator || nnapi->door == NP_DOOR_NNAPI, NP_UNSUPPORTED, &fault->why,
             "%s is a %s, which chooses no accelerator: name one of its own, such as NAME@%s",
             nnapi->file, np_door_text(nnapi->door), nnapi->file);
  NP_TRY(check_basics(&nnapi->table, options, fault));
  enum np_status status = NP_OK;
  struct np_compiled *self = calloc(1, sizeof *self);
  NP_REQUIRE(self, NP_NO_MEMORY, &fault->why, "no memory for a compilation");
  self->nnapi = nnapi;
  self->table = &nnapi->table;
  self->source = model;
  self->async = options->async;
  self->reuse = nnapi->table.ANeuralNetworksExecution_setReusable && !options->async
                    ? NP_REUSE_TRY
                    : NP_REUSE_NEVER;
  self->measure_timing = options->measure_timing;
  if (options->accelerator) {
    status = np_nnapi_find(nnapi, options->accelerator, &self->device, &fault->why);
  }
  NP_THEN(status, np_nnapi_build_model(self, options, fault));
  NP_THEN(status, build_compilation(self, options, fault));
  if (status != NP_OK) {
    nnapi_free(self);
    return status;
  }
  *compiled = self;
  return NP_OK;
}

/* Sets one input or output, with its present shape if the model leaves that open. */
static int set_io(const struct np_compiled *self, int is_output, uint32_t index,
                  const struct np_io *io) {
  const struct np_graph *graph = &self->source->graph;
  const uint32_t i = is_output ? graph->outputs[index] : graph->inputs[index];
  const struct np_operand *operand = &graph->operands[i];
  const ANeuralNetworksOperandType type = {.type = operand->type,
                                           .dimensionCount = io->rank,
                                           .dimensions = io->dims,
                                           .scale = operand->scale,
                                           .zeroPoint = operand->zero_point};
  const ANeuralNetworksOperandType *now = np_operand_bytes(operand) == 0 ? &type : NULL;
  if (io->memory) {
    const ANeuralNetworksMemory *memory = (const ANeuralNetworksMemory *)io->memory;
    return is_output ? self->table->ANeuralNetworksExecution_setOutputFromMemory(
                           self->execution, (int32_t)index, now, memory, io->offset, io->n_bytes)
                     : self->table->ANeuralNetworksExecution_setInputFromMemory(
                           self->execution, (int32_t)index, now, memory, io->offset, io->n_bytes);
  }
  if (is_output) {
    return self->table->ANeuralNetworksExecution_setOutput(self->execution, (int32_t)index, now,
                                                           io->data, io->n_bytes);
  }
  return self->table->ANeuralNetworksExecution_setInput(self->execution, (int32_t)index, now,
                                                        io->data, io->n_bytes);
}

static int compute(const struct np_compiled *self) {
  const struct np_nnapi_table *table = self->table;
  if (self->burst) {
    return table->ANeuralNetworksExecution_burstCompute(self->execution, self->burst);
  }
  if (table->ANeuralNetworksExecution_compute && !self->async) {
    return table->ANeuralNetworksExecution_compute(self->execution);
  }
  ANeuralNetworksEvent *event = NULL;
  int code = table->ANeuralNetworksExecution_startCompute
                 ? table->ANeuralNetworksExecution_startCompute(self->execution, &event)
                 : table->ANeuralNetworksExecution_startComputeWithDependencies(self->execution,
                                                                                NULL, 0, 0, &event);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  code = table->ANeuralNetworksEvent_wait(event);
  table->ANeuralNetworksEvent_free(event);
  return code;
}

/* Checks that the driver reports the model's shapes for the outputs: once, since shapes are the
 * same in every run. */
static enum np_status check_shapes(const struct np_compiled *self, const struct np_io *outputs,
                                   struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const uint32_t n = self->source->graph.n_outputs;
  if (!table->ANeuralNetworksExecution_getOutputOperandRank ||
      !table->ANeuralNetworksExecution_getOutputOperandDimensions) {
    return NP_OK;
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t rank = 0;
    uint32_t dims[NP_MAX_RANK] = {0};
    int code =
        table->ANeuralNetworksExecution_getOutputOperandRank(self->execution, (int32_t)i, &rank);
    if (code == ANEURALNETWORKS_NO_ERROR && rank != 0 && rank == outputs[i].rank) {
      code = table->ANeuralNetworksExecution_getOutputOperandDimensions(self->execution, (int32_t)i,
                                                                        dims);
    }
    code = np_door_code(self->nnapi, code);
    if (code != ANEURALNETWORKS_NO_ERROR && code != ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE) {
      return NP_OK; /* not reported */
    }
    if (rank != outputs[i].rank || memcmp(dims, outputs[i].dims, rank * sizeof *dims) != 0) {
      fault->wrong_shape = 1;
      return np_error(NP_RUN_FAILED, &fault->why,
                      "the driver gave output %u of %u another shape than the model's", i, n);
    }
  }
  return NP_OK;
}

/* Makes an execution with its inputs and outputs set. */
static enum np_status make_execution(struct np_compiled *self, const struct np_io *inputs,
                                     const struct np_io *outputs, struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const struct np_graph *graph = &self->source->graph;
  drop_execution(self); /* left by a failed run, or with other inputs */
  NP_NNAPI_TRY(self, fault, "Execution_create",
               table->ANeuralNetworksExecution_create(self->compilation, &self->execution));
  np_nnapi_make_reusable(self, inputs, outputs);
  if (can_tell(self) && self->measure_timing) {
    NP_NNAPI_TRY(self, fault, "setMeasureTiming",
                 table->ANeuralNetworksExecution_setMeasureTiming(self->execution, true));
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    NP_NNAPI_TRY(self, fault, "setInput", set_io(self, 0, i, &inputs[i]));
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    NP_NNAPI_TRY(self, fault, "setOutput", set_io(self, 1, i, &outputs[i]));
  }
  return NP_OK;
}

static enum np_status nnapi_run(struct np_compiled *self, const struct np_io *inputs,
                                const struct np_io *outputs, struct np_fault *fault) {
  const int again = np_nnapi_runs_again(self, inputs, outputs);
  enum np_status status = again ? NP_OK : make_execution(self, inputs, outputs, fault);
  int code = status == NP_OK ? compute(self) : ANEURALNETWORKS_NO_ERROR;
  if (again && np_door_code(self->nnapi, code) == ANEURALNETWORKS_BAD_STATE) {
    np_nnapi_never_reuse(self); /* it was declared reusable but is not */
    status = make_execution(self, inputs, outputs, fault);
    code = status == NP_OK ? compute(self) : ANEURALNETWORKS_NO_ERROR;
  }
  if (status != NP_OK) {
    drop_execution(self);
    return status;
  }
  if (code != ANEURALNETWORKS_NO_ERROR) {
    drop_execution(self);
    return np_nnapi_failed(self, fault, "compute", code);
  }
  if (!self->has_run) {
    status = check_shapes(self, outputs, fault);
    self->has_run = status == NP_OK;
    return status;
  }
  return NP_OK;
}

static enum np_status nnapi_share(void *ctx, int fd, size_t size,
                                  struct np_engine_memory **memory) {
  const struct np_nnapi_table *table = &((const struct np_nnapi *)ctx)->table;
  if (!table->ANeuralNetworksMemory_createFromFd || !table->ANeuralNetworksMemory_free ||
      !table->ANeuralNetworksExecution_setInputFromMemory ||
      !table->ANeuralNetworksExecution_setOutputFromMemory) {
    return NP_UNSUPPORTED;
  }
  ANeuralNetworksMemory *made = NULL;
  const int code =
      table->ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, fd, 0, &made);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return NP_UNSUPPORTED;
  }
  *memory = (struct np_engine_memory *)made;
  return NP_OK;
}

static void nnapi_unshare(void *ctx, struct np_engine_memory *memory) {
  struct np_nnapi *nnapi = ctx;
  atomic_fetch_add(&nnapi->n_unshared, 1);
  nnapi->table.ANeuralNetworksMemory_free((ANeuralNetworksMemory *)memory);
}

struct np_engine np_nnapi_engine(struct np_nnapi *nnapi) {
  return (struct np_engine){.name = "nnapi",
                            .ctx = nnapi,
                            .compile = nnapi_compile,
                            .run = nnapi_run,
                            .settle = nnapi_settle,
                            .ask = nnapi_ask,
                            .free = nnapi_free,
                            .share = nnapi_share,
                            .unshare = nnapi_unshare};
}
