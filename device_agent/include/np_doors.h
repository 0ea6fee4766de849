/* Other interfaces to NNAPI's functions ("doors"), from the public headers of NNAPI support
 * libraries (Android's NeuralNetworksSupportLibraryImpl.h) and of MediaTek's NeuronAdapter
 * (NeuronAdapter.h). */
#ifndef NP_DOORS_H
#define NP_DOORS_H

#include <stddef.h>
#include <stdint.h>

/* ---- Support libraries ----
 *
 * A support library exports one function, which returns a table: the feature level, which is also
 * the table's version, then function pointers. Tables of levels 5 to 8 agree in the part declared
 * here. The functions after it, for caches, performance and diagnostics, differ between versions of
 * the header and are not needed here. There is no Compilation_create and no startCompute, since a
 * support library has no runtime that chooses devices. The table does not contain its size, so
 * reading past its end cannot be detected. */

#define NP_SL_SYMBOL "ANeuralNetworks_getSLDriverImpl"

/* NP_SL_FUNCTIONS(NNAPI, OTHER): all functions in the table's order, NNAPI for those that NNAPI has
 * up to API 31, OTHER for the rest. */
#define NP_SL_FUNCTIONS(NNAPI, OTHER)                                                              \
  NNAPI(ANeuralNetworksBurst_create)                                                               \
  NNAPI(ANeuralNetworksBurst_free)                                                                 \
  NNAPI(ANeuralNetworksCompilation_createForDevices)                                               \
  NNAPI(ANeuralNetworksCompilation_finish)                                                         \
  NNAPI(ANeuralNetworksCompilation_free)                                                           \
  NNAPI(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput)                            \
  NNAPI(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput)                           \
  NNAPI(ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput)                              \
  NNAPI(ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput)                             \
  NNAPI(ANeuralNetworksCompilation_setCaching)                                                     \
  NNAPI(ANeuralNetworksCompilation_setPreference)                                                  \
  NNAPI(ANeuralNetworksCompilation_setPriority)                                                    \
  NNAPI(ANeuralNetworksCompilation_setTimeout)                                                     \
  OTHER(ANeuralNetworksDevice_getExtensionSupport)                                                 \
  NNAPI(ANeuralNetworksDevice_getFeatureLevel)                                                     \
  NNAPI(ANeuralNetworksDevice_getName)                                                             \
  NNAPI(ANeuralNetworksDevice_getType)                                                             \
  NNAPI(ANeuralNetworksDevice_getVersion)                                                          \
  NNAPI(ANeuralNetworksDevice_wait)                                                                \
  NNAPI(ANeuralNetworksEvent_createFromSyncFenceFd)                                                \
  NNAPI(ANeuralNetworksEvent_free)                                                                 \
  NNAPI(ANeuralNetworksEvent_getSyncFenceFd)                                                       \
  NNAPI(ANeuralNetworksEvent_wait)                                                                 \
  NNAPI(ANeuralNetworksExecution_burstCompute)                                                     \
  NNAPI(ANeuralNetworksExecution_compute)                                                          \
  NNAPI(ANeuralNetworksExecution_create)                                                           \
  NNAPI(ANeuralNetworksExecution_enableInputAndOutputPadding)                                      \
  NNAPI(ANeuralNetworksExecution_free)                                                             \
  NNAPI(ANeuralNetworksExecution_getDuration)                                                      \
  NNAPI(ANeuralNetworksExecution_getOutputOperandDimensions)                                       \
  NNAPI(ANeuralNetworksExecution_getOutputOperandRank)                                             \
  NNAPI(ANeuralNetworksExecution_setInput)                                                         \
  NNAPI(ANeuralNetworksExecution_setInputFromMemory)                                               \
  NNAPI(ANeuralNetworksExecution_setLoopTimeout)                                                   \
  NNAPI(ANeuralNetworksExecution_setMeasureTiming)                                                 \
  NNAPI(ANeuralNetworksExecution_setOutput)                                                        \
  NNAPI(ANeuralNetworksExecution_setOutputFromMemory)                                              \
  NNAPI(ANeuralNetworksExecution_setReusable)                                                      \
  NNAPI(ANeuralNetworksExecution_setTimeout)                                                       \
  NNAPI(ANeuralNetworksExecution_startComputeWithDependencies)                                     \
  NNAPI(ANeuralNetworksMemoryDesc_addInputRole)                                                    \
  NNAPI(ANeuralNetworksMemoryDesc_addOutputRole)                                                   \
  NNAPI(ANeuralNetworksMemoryDesc_create)                                                          \
  NNAPI(ANeuralNetworksMemoryDesc_finish)                                                          \
  NNAPI(ANeuralNetworksMemoryDesc_free)                                                            \
  NNAPI(ANeuralNetworksMemoryDesc_setDimensions)                                                   \
  NNAPI(ANeuralNetworksMemory_copy)                                                                \
  NNAPI(ANeuralNetworksMemory_createFromAHardwareBuffer)                                           \
  NNAPI(ANeuralNetworksMemory_createFromDesc)                                                      \
  NNAPI(ANeuralNetworksMemory_createFromFd)                                                        \
  NNAPI(ANeuralNetworksMemory_free)                                                                \
  NNAPI(ANeuralNetworksModel_addOperand)                                                           \
  NNAPI(ANeuralNetworksModel_addOperation)                                                         \
  NNAPI(ANeuralNetworksModel_create)                                                               \
  NNAPI(ANeuralNetworksModel_finish)                                                               \
  NNAPI(ANeuralNetworksModel_free)                                                                 \
  OTHER(ANeuralNetworksModel_getExtensionOperandType)                                              \
  OTHER(ANeuralNetworksModel_getExtensionOperationType)                                            \
  NNAPI(ANeuralNetworksModel_getSupportedOperationsForDevices)                                     \
  NNAPI(ANeuralNetworksModel_identifyInputsAndOutputs)                                             \
  NNAPI(ANeuralNetworksModel_relaxComputationFloat32toFloat16)                                     \
  OTHER(ANeuralNetworksModel_setOperandExtensionData)                                              \
  NNAPI(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams)                                  \
  NNAPI(ANeuralNetworksModel_setOperandValue)                                                      \
  NNAPI(ANeuralNetworksModel_setOperandValueFromMemory)                                            \
  NNAPI(ANeuralNetworksModel_setOperandValueFromModel)                                             \
  NNAPI(ANeuralNetworks_getDefaultLoopTimeout)                                                     \
  NNAPI(ANeuralNetworks_getDevice)                                                                 \
  NNAPI(ANeuralNetworks_getDeviceCount)                                                            \
  NNAPI(ANeuralNetworks_getMaximumLoopTimeout)                                                     \
  NNAPI(ANeuralNetworks_getRuntimeFeatureLevel)

typedef void np_sl_function(void);

#define NP_SL_FIELD(name) np_sl_function *name;

struct np_sl_table {
  int64_t implFeatureLevel;
  NP_SL_FUNCTIONS(NP_SL_FIELD, NP_SL_FIELD)
};

/* Positions as counted in the header: 71 pointers without padding between them, on 32 and 64
 * bits. */
#define NP_SL_AT(name, place)                                                                      \
  _Static_assert(offsetof(struct np_sl_table, name) == 8 + ((place) - 1) * sizeof(void *),         \
                 "this is where the header has it")
NP_SL_AT(ANeuralNetworksBurst_create, 1);
NP_SL_AT(ANeuralNetworksCompilation_createForDevices, 3);
NP_SL_AT(ANeuralNetworksDevice_getName, 16);
NP_SL_AT(ANeuralNetworksEvent_wait, 23);
NP_SL_AT(ANeuralNetworksExecution_compute, 25);
NP_SL_AT(ANeuralNetworksExecution_startComputeWithDependencies, 40);
NP_SL_AT(ANeuralNetworksMemory_createFromFd, 50);
NP_SL_AT(ANeuralNetworksModel_create, 54);
NP_SL_AT(ANeuralNetworksModel_setOperandValue, 64);
NP_SL_AT(ANeuralNetworks_getRuntimeFeatureLevel, 71);
_Static_assert(sizeof(np_sl_function *) == sizeof(void *), "a table of pointers of one size");
_Static_assert(sizeof(struct np_sl_table) ==
                   8 + 71 * sizeof(void *) + (sizeof(void *) == 4) * 4 * (_Alignof(int64_t) == 8),
               "nothing stands behind the last one but padding");

/* ---- NeuronAdapter ----
 *
 * Its functions are NNAPI's, named Neuron... instead of ANeuralNetworks..., with the same
 * parameters, structures, operations, operand types and preferences. It lacks some of them, its
 * result codes differ, and a device has no attribute but its name. */

#define NP_NEURON_PREFIX "Neuron"
#define NP_NNAPI_PREFIX "ANeuralNetworks"

enum {
  NP_NEURON_UNMAPPABLE = 6,
  NP_NEURON_BAD_STATE = 7,
  NP_NEURON_BAD_VERSION = 8, /* not in NNAPI, where the codes that follow are one less */
  NP_NEURON_DEAD_OBJECT = 15
};

struct np_neuron_version {
  uint8_t major, minor, patch;
};
_Static_assert(sizeof(struct np_neuron_version) == 3, "three bytes");

#define NP_NEURON_LEVEL 30 /* feature level of the operations that its header lists */

#endif
