/* Helpers of the C tests for the C API, and small models. */
#ifndef NP_TEST_API_H
#define NP_TEST_API_H

#include "np_nnapi.h"
#include "np_test.h"

#define NP_DECLARE(type, name, parameters, level) type name parameters;
NP_NNAPI_FUNCTIONS(NP_DECLARE)
#undef NP_DECLARE

#define OK ANEURALNETWORKS_NO_ERROR
#define BAD_DATA ANEURALNETWORKS_BAD_DATA
#define BAD_STATE ANEURALNETWORKS_BAD_STATE
#define IS_NULL ANEURALNETWORKS_UNEXPECTED_NULL

enum { API_LENGTH = 8, API_BYTES = API_LENGTH * (int)sizeof(float) };

static const uint32_t API_DIMS[] = {1, API_LENGTH};
static const ANeuralNetworksOperandType API_TENSOR = {NP_TYPE_TENSOR_FLOAT32, 2, API_DIMS, 0, 0};

/* A model of `n` RELUs in a row over [1, API_LENGTH], not finished. */
static inline ANeuralNetworksModel *api_open_chain(uint32_t n) {
  ANeuralNetworksModel *model = NULL;
  const uint32_t first = 0;
  CHECK(ANeuralNetworksModel_create(&model) == OK);
  CHECK(ANeuralNetworksModel_addOperand(model, &API_TENSOR) == OK);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t next = i + 1;
    CHECK(ANeuralNetworksModel_addOperand(model, &API_TENSOR) == OK);
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, &i, 1, &next) == OK);
  }
  CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &first, 1, &n) == OK);
  return model;
}

static inline ANeuralNetworksModel *api_chain(uint32_t n) {
  ANeuralNetworksModel *model = api_open_chain(n);
  CHECK(ANeuralNetworksModel_finish(model) == OK);
  return model;
}

/* Returns device `index`, NULL if there are fewer. */
static inline ANeuralNetworksDevice *api_device(uint32_t index) {
  uint32_t n = 0;
  ANeuralNetworksDevice *device = NULL;
  CHECK(ANeuralNetworks_getDeviceCount(&n) == OK && n > 0);
  return index < n && ANeuralNetworks_getDevice(index, &device) == OK ? device : NULL;
}

/* A finished compilation for one device. */
static inline ANeuralNetworksCompilation *api_compile(ANeuralNetworksModel *model,
                                                      ANeuralNetworksDevice *device) {
  const ANeuralNetworksDevice *list[] = {device};
  ANeuralNetworksCompilation *compilation = NULL;
  CHECK(ANeuralNetworksCompilation_createForDevices(model, list, 1, &compilation) == OK);
  CHECK(ANeuralNetworksCompilation_finish(compilation) == OK);
  return compilation;
}

/* An execution of a chain with both arguments set. */
static inline ANeuralNetworksExecution *api_prepared(ANeuralNetworksCompilation *compilation,
                                                     const float *in, float *out) {
  ANeuralNetworksExecution *execution = NULL;
  CHECK(ANeuralNetworksExecution_create(compilation, &execution) == OK);
  CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, API_BYTES) == OK);
  CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, API_BYTES) == OK);
  return execution;
}

#endif
