/* The engine `nnapi`: one model through NNAPI's C API, on one accelerator or on NNAPI's choice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnapi.h"
#include "nnapi_table.h"

struct np_compiled {
  const struct np_nnapi_table *table;
  const struct np_model *source;
  ANeuralNetworksDevice *device; /* NULL: NNAPI chooses */
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksBurst *burst;         /* NULL without burst */
  ANeuralNetworksExecution *execution; /* of the last run, until it is settled */
  int measure_timing;
};

/* Records a call that did not return NO_ERROR. */
static enum np_status failed(struct np_fault *fault, const char *call, int code) {
  fault->has_code = 1;
  fault->code = code;
  np_message_set(&fault->why, "%s returned %s (%d)", call, np_nnapi_result_text(code), code);
  return code == ANEURALNETWORKS_OUT_OF_MEMORY ? NP_NO_MEMORY : NP_RUN_FAILED;
}

/* Records a function that this library lacks. */
static enum np_status absent(struct np_fault *fault, const char *call, int level) {
  np_message_set(&fault->why, "this NNAPI has no %s, which came with API %d", call, level);
  return NP_UNSUPPORTED;
}

static enum np_status add_operands(const struct np_compiled *self, struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const struct np_graph *graph = &self->source->graph;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    const ANeuralNetworksOperandType type = {.type = operand->type,
                                             .dimensionCount = operand->rank,
                                             .dimensions = operand->rank ? operand->dims : NULL,
                                             .scale = operand->scale,
                                             .zeroPoint = operand->zero_point};
    int code = table->ANeuralNetworksModel_addOperand(self->model, &type);
    const char *call = "addOperand";
    if (code == ANEURALNETWORKS_NO_ERROR && operand->channel_scales) {
      if (!table->ANeuralNetworksModel_setOperandSymmPerChannelQuantParams)
        return absent(fault, "setOperandSymmPerChannelQuantParams", 29);
      const ANeuralNetworksSymmPerChannelQuantParams channels = {
          .channelDim = operand->channel_dim,
          .scaleCount = operand->dims[operand->channel_dim],
          .scales = operand->channel_scales};
      call = "setOperandSymmPerChannelQuantParams";
      code = table->ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(self->model,
                                                                             (int32_t)i, &channels);
    }
    if (code == ANEURALNETWORKS_NO_ERROR &&
        (operand->lifetime == NP_CONSTANT || operand->lifetime == NP_NO_VALUE)) {
      /* Values longer than 128 bytes stay where they are: in the request or in a blob, both of
       * which outlive the model. */
      call = "setOperandValue";
      code = table->ANeuralNetworksModel_setOperandValue(self->model, (int32_t)i, operand->value,
                                                         operand->length);
    }
    if (code != ANEURALNETWORKS_NO_ERROR) {
      char what[64];
      (void)snprintf(what, sizeof what, "%s for operand %u", call, i);
      return failed(fault, what, code);
    }
  }
  return NP_OK;
}

static enum np_status add_operations(const struct np_compiled *self, struct np_fault *fault) {
  const struct np_graph *graph = &self->source->graph;
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    const struct np_operation *operation = &graph->operations[i];
    if (operation->code >= NP_FIRST_OWN_CODE || operation->code < 0) {
      np_message_set(&fault->why, "operation %u has code %d, which NNAPI does not know", i,
                     operation->code);
      return NP_UNSUPPORTED;
    }
    const int code = self->table->ANeuralNetworksModel_addOperation(
        self->model, operation->code, operation->n_inputs, operation->inputs, operation->n_outputs,
        operation->outputs);
    if (code != ANEURALNETWORKS_NO_ERROR) {
      char what[96];
      (void)snprintf(what, sizeof what, "addOperation for operation %u, %s", i,
                     np_operation_name(operation->code));
      return failed(fault, what, code);
    }
  }
  return NP_OK;
}

static enum np_status build_model(struct np_compiled *self, const struct np_options *options,
                                  struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const struct np_graph *graph = &self->source->graph;
  int code = table->ANeuralNetworksModel_create(&self->model);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return failed(fault, "Model_create", code);
  enum np_status status = add_operands(self, fault);
  if (status == NP_OK)
    status = add_operations(self, fault);
  if (status != NP_OK)
    return status;
  code = table->ANeuralNetworksModel_identifyInputsAndOutputs(
      self->model, graph->n_inputs, graph->inputs, graph->n_outputs, graph->outputs);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return failed(fault, "identifyInputsAndOutputs", code);
  if (options->relaxed) {
    if (!table->ANeuralNetworksModel_relaxComputationFloat32toFloat16) {
      return absent(fault, "relaxComputationFloat32toFloat16", 28);
    }
    code = table->ANeuralNetworksModel_relaxComputationFloat32toFloat16(self->model, true);
    if (code != ANEURALNETWORKS_NO_ERROR) {
      return failed(fault, "relaxComputationFloat32toFloat16", code);
    }
  }
  code = table->ANeuralNetworksModel_finish(self->model);
  return code == ANEURALNETWORKS_NO_ERROR ? NP_OK : failed(fault, "Model_finish", code);
}

/* Appends an operation's name to a list, once; counts those that find no room. */
static void append_name(char *names, size_t size, const char *name, uint32_t *left_out) {
  const size_t used = strlen(names);
  const size_t n = strlen(name);
  for (const char *at = strstr(names, name); at; at = strstr(at + 1, name)) {
    const int begins = at == names || at[-1] == ' ';
    if (begins && (at[n] == ',' || at[n] == 0))
      return;
  }
  if (used + n + 3 > size) {
    (*left_out)++;
    return;
  }
  (void)snprintf(names + used, size - used, "%s%s", used ? ", " : "", name);
}

/* Asks the named accelerator whether it takes every operation. */
static enum np_status check_support(const struct np_compiled *self, const char *accelerator,
                                    struct np_fault *fault) {
  const struct np_graph *graph = &self->source->graph;
  if (!self->table->ANeuralNetworksModel_getSupportedOperationsForDevices)
    return NP_OK;
  bool *supported = calloc(graph->n_operations, sizeof *supported);
  if (!supported) {
    np_message_set(&fault->why, "no memory to ask for %u operations", graph->n_operations);
    return NP_NO_MEMORY;
  }
  const ANeuralNetworksDevice *devices[1] = {self->device};
  const int code = self->table->ANeuralNetworksModel_getSupportedOperationsForDevices(
      self->model, devices, 1, supported);
  char names[160] = "";
  uint32_t n_refused = 0;
  uint32_t left_out = 0;
  for (uint32_t i = 0; code == ANEURALNETWORKS_NO_ERROR && i < graph->n_operations; i++) {
    if (supported[i])
      continue;
    n_refused++;
    append_name(names, sizeof names, np_operation_name(graph->operations[i].code), &left_out);
  }
  free(supported);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return failed(fault, "getSupportedOperationsForDevices", code);
  }
  if (n_refused == 0)
    return NP_OK;
  np_message_set(&fault->why, "%s does not support %s%s", accelerator, names,
                 left_out ? ", and more" : "");
  return NP_UNSUPPORTED;
}

static enum np_status build_compilation(struct np_compiled *self, const struct np_options *options,
                                        struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  int code;
  if (self->device) {
    const enum np_status status = check_support(self, options->accelerator, fault);
    if (status != NP_OK)
      return status;
    const ANeuralNetworksDevice *devices[1] = {self->device};
    code = table->ANeuralNetworksCompilation_createForDevices(self->model, devices, 1,
                                                              &self->compilation);
  } else {
    code = table->ANeuralNetworksCompilation_create(self->model, &self->compilation);
  }
  if (code != ANEURALNETWORKS_NO_ERROR)
    return failed(fault, "Compilation_create", code);
  if (options->preference >= 0) {
    code = table->ANeuralNetworksCompilation_setPreference(self->compilation, options->preference);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return failed(fault, "setPreference", code);
  }
  code = table->ANeuralNetworksCompilation_finish(self->compilation);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return failed(fault, "Compilation_finish", code);

  if (options->burst) {
    if (!table->ANeuralNetworksBurst_create || !table->ANeuralNetworksExecution_burstCompute) {
      return absent(fault, "Burst_create", 29);
    }
    code = table->ANeuralNetworksBurst_create(self->compilation, &self->burst);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return failed(fault, "Burst_create", code);
  }
  return NP_OK;
}

/* Whether the functions that API 27 has are all there: without them nothing runs. */
static enum np_status check_basics(const struct np_nnapi_table *table, struct np_fault *fault) {
#define NEED(name)                                                                                 \
  if (!table->name)                                                                                \
  return absent(fault, #name, 27)
  NEED(ANeuralNetworksModel_create);
  NEED(ANeuralNetworksModel_free);
  NEED(ANeuralNetworksModel_addOperand);
  NEED(ANeuralNetworksModel_setOperandValue);
  NEED(ANeuralNetworksModel_addOperation);
  NEED(ANeuralNetworksModel_identifyInputsAndOutputs);
  NEED(ANeuralNetworksModel_finish);
  NEED(ANeuralNetworksCompilation_create);
  NEED(ANeuralNetworksCompilation_free);
  NEED(ANeuralNetworksCompilation_setPreference);
  NEED(ANeuralNetworksCompilation_finish);
  NEED(ANeuralNetworksExecution_create);
  NEED(ANeuralNetworksExecution_free);
  NEED(ANeuralNetworksExecution_setInput);
  NEED(ANeuralNetworksExecution_setOutput);
#undef NEED
  const int asynchronous = table->ANeuralNetworksExecution_startCompute &&
                           table->ANeuralNetworksEvent_wait && table->ANeuralNetworksEvent_free;
  if (!table->ANeuralNetworksExecution_compute && !asynchronous) {
    return absent(fault, "ANeuralNetworksExecution_startCompute", 27);
  }
  return NP_OK;
}

static void nnapi_settle(struct np_compiled *self, struct np_durations *durations) {
  const struct np_nnapi_table *table = self->table;
  if (!self->execution)
    return;
  if (self->measure_timing) {
    /* NNAPI says UINT64_MAX, our NP_NO_DURATION, where the driver does not tell. */
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
  table->ANeuralNetworksExecution_free(self->execution);
  self->execution = NULL;
}

static void nnapi_free(struct np_compiled *self) {
  const struct np_nnapi_table *table = self->table;
  if (self->execution)
    table->ANeuralNetworksExecution_free(self->execution);
  if (self->burst && table->ANeuralNetworksBurst_free) {
    table->ANeuralNetworksBurst_free(self->burst);
  }
  if (self->compilation)
    table->ANeuralNetworksCompilation_free(self->compilation);
  if (self->model)
    table->ANeuralNetworksModel_free(self->model);
  free(self);
}

static enum np_status nnapi_compile(void *ctx, const struct np_model *model,
                                    const struct np_options *options, struct np_compiled **compiled,
                                    struct np_fault *fault) {
  const struct np_nnapi *nnapi = ctx;
  enum np_status status = check_basics(&nnapi->table, fault);
  if (status != NP_OK)
    return status;
  struct np_compiled *self = calloc(1, sizeof *self);
  if (!self) {
    np_message_set(&fault->why, "no memory for a compilation");
    return NP_NO_MEMORY;
  }
  self->table = &nnapi->table;
  self->source = model;
  /* NNAPI measures where exactly one device was named, and nowhere else. */
  self->measure_timing = options->measure_timing && options->accelerator &&
                         nnapi->table.ANeuralNetworksExecution_setMeasureTiming &&
                         nnapi->table.ANeuralNetworksExecution_getDuration;
  if (options->accelerator) {
    status = np_nnapi_find(nnapi, options->accelerator, &self->device, &fault->why);
  }
  if (status == NP_OK)
    status = build_model(self, options, fault);
  if (status == NP_OK)
    status = build_compilation(self, options, fault);
  if (status != NP_OK) {
    nnapi_free(self);
    return status;
  }
  *compiled = self;
  return NP_OK;
}

/* Sets one input or output; where the model leaves its shape open, with the shape of now. */
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
  const int open = np_operand_bytes(operand) == 0;
  if (is_output) {
    return self->table->ANeuralNetworksExecution_setOutput(
        self->execution, (int32_t)index, open ? &type : NULL, io->data, io->n_bytes);
  }
  return self->table->ANeuralNetworksExecution_setInput(self->execution, (int32_t)index,
                                                        open ? &type : NULL, io->data, io->n_bytes);
}

static int compute(const struct np_compiled *self) {
  const struct np_nnapi_table *table = self->table;
  if (self->burst) {
    return table->ANeuralNetworksExecution_burstCompute(self->execution, self->burst);
  }
  if (table->ANeuralNetworksExecution_compute) {
    return table->ANeuralNetworksExecution_compute(self->execution);
  }
  ANeuralNetworksEvent *event = NULL;
  int code = table->ANeuralNetworksExecution_startCompute(self->execution, &event);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;
  code = table->ANeuralNetworksEvent_wait(event);
  table->ANeuralNetworksEvent_free(event);
  return code;
}

static enum np_status nnapi_run(struct np_compiled *self, const struct np_io *inputs,
                                const struct np_io *outputs, struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const struct np_graph *graph = &self->source->graph;
  int code = table->ANeuralNetworksExecution_create(self->compilation, &self->execution);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return failed(fault, "Execution_create", code);
  if (self->measure_timing) {
    code = table->ANeuralNetworksExecution_setMeasureTiming(self->execution, true);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return failed(fault, "setMeasureTiming", code);
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    code = set_io(self, 0, i, &inputs[i]);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return failed(fault, "setInput", code);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    code = set_io(self, 1, i, &outputs[i]);
    if (code != ANEURALNETWORKS_NO_ERROR)
      return failed(fault, "setOutput", code);
  }
  code = compute(self);
  return code == ANEURALNETWORKS_NO_ERROR ? NP_OK : failed(fault, "compute", code);
}

struct np_engine np_nnapi_engine(struct np_nnapi *nnapi) {
  return (struct np_engine){.name = "nnapi",
                            .kernels = NULL,
                            .ctx = nnapi,
                            .compile = nnapi_compile,
                            .run = nnapi_run,
                            .settle = nnapi_settle,
                            .free = nnapi_free};
}
