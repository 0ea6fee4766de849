/* The emulator with the interface of MediaTek's NeuronAdapter: its function names and result
 * codes. */
#include "np_doors.h"
#include "np_nnapi.h"

#define DECLARE(type, name, parameters, level) type name parameters;
NP_NNAPI_FUNCTIONS(DECLARE)

/* Converts NNAPI's result code to NeuronAdapter's. */
static int code_of(int code) {
  switch (code) {
  case ANEURALNETWORKS_UNMAPPABLE:
    return NP_NEURON_UNMAPPABLE;
  case ANEURALNETWORKS_BAD_STATE:
    return NP_NEURON_BAD_STATE;
  default:
    return code >= ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE ? code + 1 : code;
  }
}

/* Functions that return a result code, and those that free. They use NNAPI's types, which have the
 * same layout. */
#define FORWARD(name, parameters, arguments)                                                       \
  __attribute__((visibility("default"))) int Neuron##name parameters;                              \
  int Neuron##name parameters { return code_of(ANeuralNetworks##name arguments); }
#define FREE(name, type)                                                                           \
  __attribute__((visibility("default"))) void Neuron##name(type *it);                              \
  void Neuron##name(type *it) { ANeuralNetworks##name(it); }

FORWARD(_getDeviceCount, (uint32_t *n), (n))
FORWARD(_getDevice, (uint32_t index, ANeuralNetworksDevice **device), (index, device))
FORWARD(Device_getName, (const ANeuralNetworksDevice *device, const char **name), (device, name))

FORWARD(Memory_createFromFd,
        (size_t size, int protect, int fd, size_t offset, ANeuralNetworksMemory **memory),
        (size, protect, fd, offset, memory))
FREE(Memory_free, ANeuralNetworksMemory)

FORWARD(Model_create, (ANeuralNetworksModel * *model), (model))
FREE(Model_free, ANeuralNetworksModel)
FORWARD(Model_finish, (ANeuralNetworksModel * model), (model))
FORWARD(Model_addOperand, (ANeuralNetworksModel * model, const ANeuralNetworksOperandType *type),
        (model, type))
FORWARD(Model_setOperandValue,
        (ANeuralNetworksModel * model, int32_t index, const void *buffer, size_t length),
        (model, index, buffer, length))
FORWARD(Model_setOperandValueFromModel,
        (ANeuralNetworksModel * model, int32_t index, const ANeuralNetworksModel *value),
        (model, index, value))
FORWARD(Model_setOperandSymmPerChannelQuantParams,
        (ANeuralNetworksModel * model, int32_t index,
         const ANeuralNetworksSymmPerChannelQuantParams *channels),
        (model, index, channels))
FORWARD(Model_addOperation,
        (ANeuralNetworksModel * model, ANeuralNetworksOperationType type, uint32_t n_inputs,
         const uint32_t *inputs, uint32_t n_outputs, const uint32_t *outputs),
        (model, type, n_inputs, inputs, n_outputs, outputs))
FORWARD(Model_identifyInputsAndOutputs,
        (ANeuralNetworksModel * model, uint32_t n_inputs, const uint32_t *inputs,
         uint32_t n_outputs, const uint32_t *outputs),
        (model, n_inputs, inputs, n_outputs, outputs))
FORWARD(Model_getSupportedOperationsForDevices,
        (const ANeuralNetworksModel *model, const ANeuralNetworksDevice *const *devices, uint32_t n,
         bool *supported),
        (model, devices, n, supported))
FORWARD(Model_relaxComputationFloat32toFloat16, (ANeuralNetworksModel * model, bool allow),
        (model, allow))

FORWARD(Compilation_create,
        (ANeuralNetworksModel * model, ANeuralNetworksCompilation **compilation),
        (model, compilation))
FORWARD(Compilation_createForDevices,
        (ANeuralNetworksModel * model, const ANeuralNetworksDevice *const *devices, uint32_t n,
         ANeuralNetworksCompilation **compilation),
        (model, devices, n, compilation))
FREE(Compilation_free, ANeuralNetworksCompilation)
FORWARD(Compilation_finish, (ANeuralNetworksCompilation * compilation), (compilation))
FORWARD(Compilation_setCaching,
        (ANeuralNetworksCompilation * compilation, const char *folder, const uint8_t *token),
        (compilation, folder, token))
FORWARD(Compilation_setPreference, (ANeuralNetworksCompilation * compilation, int32_t preference),
        (compilation, preference))
FORWARD(Compilation_setPriority, (ANeuralNetworksCompilation * compilation, int priority),
        (compilation, priority))

FORWARD(Execution_create,
        (ANeuralNetworksCompilation * compilation, ANeuralNetworksExecution **execution),
        (compilation, execution))
FREE(Execution_free, ANeuralNetworksExecution)
FORWARD(Execution_compute, (ANeuralNetworksExecution * execution), (execution))
FORWARD(Execution_setLoopTimeout, (ANeuralNetworksExecution * execution, uint64_t duration),
        (execution, duration))
FORWARD(Execution_getOutputOperandRank,
        (ANeuralNetworksExecution * execution, int32_t index, uint32_t *rank),
        (execution, index, rank))
FORWARD(Execution_getOutputOperandDimensions,
        (ANeuralNetworksExecution * execution, int32_t index, uint32_t *dimensions),
        (execution, index, dimensions))
FORWARD(Execution_startComputeWithDependencies,
        (ANeuralNetworksExecution * execution, const ANeuralNetworksEvent *const *dependencies,
         uint32_t n, uint64_t duration, ANeuralNetworksEvent **event),
        (execution, dependencies, n, duration, event))

/* NeuronAdapter passes arguments of a run without a type. */
#define ARGUMENT(name, parameters, arguments)                                                      \
  __attribute__((visibility("default"))) int Neuron##name parameters;                              \
  int Neuron##name parameters {                                                                    \
    return code_of(type ? ANEURALNETWORKS_BAD_DATA : ANeuralNetworks##name arguments);             \
  }
ARGUMENT(Execution_setInput,
         (ANeuralNetworksExecution * execution, int32_t index,
          const ANeuralNetworksOperandType *type, const void *buffer, size_t length),
         (execution, index, type, buffer, length))
ARGUMENT(Execution_setOutput,
         (ANeuralNetworksExecution * execution, int32_t index,
          const ANeuralNetworksOperandType *type, void *buffer, size_t length),
         (execution, index, type, buffer, length))
ARGUMENT(Execution_setInputFromMemory,
         (ANeuralNetworksExecution * execution, uint32_t index,
          const ANeuralNetworksOperandType *type, const ANeuralNetworksMemory *memory,
          size_t offset, size_t length),
         (execution, (int32_t)index, type, memory, offset, length))
ARGUMENT(Execution_setOutputFromMemory,
         (ANeuralNetworksExecution * execution, uint32_t index,
          const ANeuralNetworksOperandType *type, const ANeuralNetworksMemory *memory,
          size_t offset, size_t length),
         (execution, (int32_t)index, type, memory, offset, length))

FREE(Event_free, ANeuralNetworksEvent)
FORWARD(Event_wait, (ANeuralNetworksEvent * event), (event))
FORWARD(Event_createFromSyncFenceFd, (int fd, ANeuralNetworksEvent **event), (fd, event))
FORWARD(Event_getSyncFenceFd, (const ANeuralNetworksEvent *event, int *fd), (event, fd))

__attribute__((visibility("default"))) uint64_t Neuron_getDefaultLoopTimeout(void);
uint64_t Neuron_getDefaultLoopTimeout(void) { return ANeuralNetworks_getDefaultLoopTimeout(); }
__attribute__((visibility("default"))) uint64_t Neuron_getMaximumLoopTimeout(void);
uint64_t Neuron_getMaximumLoopTimeout(void) { return ANeuralNetworks_getMaximumLoopTimeout(); }

__attribute__((visibility("default"))) int Neuron_getVersion(struct np_neuron_version *version);
int Neuron_getVersion(struct np_neuron_version *version) {
  if (!version) {
    return ANEURALNETWORKS_UNEXPECTED_NULL;
  }
  *version = (struct np_neuron_version){7, 0, 1}; /* version of the header that this file follows */
  return ANEURALNETWORKS_NO_ERROR;
}
