/* Builds NNAPI models from ours, and asks accelerators for support. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnapi_compiled.h"

enum np_status np_nnapi_failed(const struct np_compiled *self, struct np_fault *fault,
                               const char *call, int code) {
  code = np_door_code(self->nnapi, code);
  fault->has_code = 1;
  fault->code = code;
  np_message_set(&fault->why, "%s returned %s (%d)", call, np_nnapi_result_text(code), code);
  return code == ANEURALNETWORKS_OUT_OF_MEMORY ? NP_NO_MEMORY : NP_RUN_FAILED;
}

enum np_status np_nnapi_absent(struct np_fault *fault, const char *call, int level) {
  return np_error(NP_UNSUPPORTED, &fault->why, "this NNAPI has no %s, which came with API %d", call,
                  level);
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
      if (!table->ANeuralNetworksModel_setOperandSymmPerChannelQuantParams) {
        return np_nnapi_absent(fault, "setOperandSymmPerChannelQuantParams", 29);
      }
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
      /* NNAPI does not copy values longer than 128 bytes: they are in the request or in a blob,
       * both of which outlive the model. */
      call = "setOperandValue";
      code = table->ANeuralNetworksModel_setOperandValue(self->model, (int32_t)i, operand->value,
                                                         operand->length);
    }
    if (code != ANEURALNETWORKS_NO_ERROR) {
      char what[64];
      (void)snprintf(what, sizeof what, "%s for operand %u", call, i);
      return np_nnapi_failed(self, fault, what, code);
    }
  }
  return NP_OK;
}

static enum np_status add_operations(const struct np_compiled *self, struct np_fault *fault) {
  const struct np_graph *graph = &self->source->graph;
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    const struct np_operation *operation = &graph->operations[i];
    NP_REQUIRE(operation->code < NP_FIRST_OWN_CODE && operation->code >= 0, NP_UNSUPPORTED,
               &fault->why, "operation %u has code %d, which NNAPI does not know", i,
               operation->code);
    const int code = self->table->ANeuralNetworksModel_addOperation(
        self->model, operation->code, operation->n_inputs, operation->inputs, operation->n_outputs,
        operation->outputs);
    if (code != ANEURALNETWORKS_NO_ERROR) {
      char what[96];
      (void)snprintf(what, sizeof what, "addOperation for operation %u, %s", i,
                     np_operation_name(operation->code));
      return np_nnapi_failed(self, fault, what, code);
    }
  }
  return NP_OK;
}

enum np_status np_nnapi_build_model(struct np_compiled *self, const struct np_options *options,
                                    struct np_fault *fault) {
  const struct np_nnapi_table *table = self->table;
  const struct np_graph *graph = &self->source->graph;
  NP_NNAPI_TRY(self, fault, "Model_create", table->ANeuralNetworksModel_create(&self->model));
  NP_TRY(add_operands(self, fault));
  NP_TRY(add_operations(self, fault));
  NP_NNAPI_TRY(self, fault, "identifyInputsAndOutputs",
               table->ANeuralNetworksModel_identifyInputsAndOutputs(
                   self->model, graph->n_inputs, graph->inputs, graph->n_outputs, graph->outputs));
  if (options->relaxed) {
    if (!table->ANeuralNetworksModel_relaxComputationFloat32toFloat16) {
      return np_nnapi_absent(fault, "relaxComputationFloat32toFloat16", 28);
    }
    NP_NNAPI_TRY(self, fault, "relaxComputationFloat32toFloat16",
                 table->ANeuralNetworksModel_relaxComputationFloat32toFloat16(self->model, true));
  }
  NP_NNAPI_TRY(self, fault, "Model_finish", table->ANeuralNetworksModel_finish(self->model));
  return NP_OK;
}

/* Appends an operation's name to a list, once; counts names that do not fit. */
static void append_name(char *names, size_t size, const char *name, uint32_t *left_out) {
  const size_t used = strlen(names);
  const size_t n = strlen(name);
  for (const char *at = strstr(names, name); at; at = strstr(at + 1, name)) {
    const int begins = at == names || at[-1] == ' ';
    if (begins && (at[n] == ',' || at[n] == 0)) {
      return;
    }
  }
  if (used + n + 3 > size) {
    (*left_out)++;
    return;
  }
  (void)snprintf(names + used, size - used, "%s%s", used ? ", " : "", name);
}

enum np_status np_nnapi_check_support(const struct np_compiled *self, const char *accelerator,
                                      struct np_fault *fault) {
  const struct np_graph *graph = &self->source->graph;
  if (!self->table->ANeuralNetworksModel_getSupportedOperationsForDevices) {
    return NP_OK;
  }
  bool *supported = calloc(graph->n_operations, sizeof *supported);
  NP_REQUIRE(supported, NP_NO_MEMORY, &fault->why, "no memory to ask for %u operations",
             graph->n_operations);
  const ANeuralNetworksDevice *devices[1] = {self->device};
  const int code = self->table->ANeuralNetworksModel_getSupportedOperationsForDevices(
      self->model, devices, 1, supported);
  char names[160] = "";
  uint32_t n_refused = 0;
  uint32_t left_out = 0;
  for (uint32_t i = 0; code == ANEURALNETWORKS_NO_ERROR && i < graph->n_operations; i++) {
    if (supported[i]) {
      continue;
    }
    n_refused++;
    append_name(names, sizeof names, np_operation_name(graph->operations[i].code), &left_out);
  }
  free(supported);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return np_nnapi_failed(self, fault, "getSupportedOperationsForDevices", code);
  }
  if (n_refused == 0) {
    return NP_OK;
  }
  return np_error(NP_UNSUPPORTED, &fault->why, "%s does not support %s%s", accelerator, names,
                  left_out ? ", and more" : "");
}
