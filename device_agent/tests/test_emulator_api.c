/* Every function of the C API from C, with NULLs and with objects of each kind, for the sanitizers.
 * Python tests check results and refusals in detail. */
#define _GNU_SOURCE /* memfd_create, mkdtemp */
#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "np_test_api.h"

static const float DATA[API_LENGTH] = {-1, 2, -3, 4, -5, 6, -7, 8};
static const float WANTED[API_LENGTH] = {0, 2, 0, 4, 0, 6, 0, 8};

static int right(const float *out) { return memcmp(out, WANTED, sizeof WANTED) == 0; }

static void test_null_models(void) {
  ANeuralNetworksModel *m = NULL;
  const uint32_t list[] = {0};
  bool supported[1];
  CHECK(ANeuralNetworksModel_create(NULL) == IS_NULL);
  CHECK(ANeuralNetworksModel_finish(m) == IS_NULL);
  CHECK(ANeuralNetworksModel_addOperand(m, &API_TENSOR) == IS_NULL);
  CHECK(ANeuralNetworksModel_setOperandValue(m, 0, NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksModel_setOperandValueFromMemory(m, 0, NULL, 0, 0) == IS_NULL);
  CHECK(ANeuralNetworksModel_setOperandValueFromModel(m, 0, NULL) == IS_NULL);
  CHECK(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(m, 0, NULL) == IS_NULL);
  CHECK(ANeuralNetworksModel_addOperation(m, 0, 1, list, 1, list) == IS_NULL);
  CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, list, 1, list) == IS_NULL);
  CHECK(ANeuralNetworksModel_relaxComputationFloat32toFloat16(m, true) == IS_NULL);
  CHECK(ANeuralNetworksModel_getSupportedOperationsForDevices(m, NULL, 0, supported) == IS_NULL);
  ANeuralNetworksModel_free(m);
}

static void test_null_devices_and_compilations(void) {
  ANeuralNetworksCompilation *c = NULL;
  CHECK(ANeuralNetworks_getDeviceCount(NULL) == IS_NULL);
  CHECK(ANeuralNetworks_getDevice(0, NULL) == IS_NULL);
  CHECK(ANeuralNetworksDevice_getName(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksDevice_getType(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksDevice_getVersion(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksDevice_getFeatureLevel(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksDevice_wait(NULL) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_create(NULL, &c) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_createForDevices(NULL, NULL, 0, &c) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_setPreference(NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_setCaching(NULL, "", NULL) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_setPriority(NULL, 100) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_setTimeout(NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksCompilation_finish(NULL) == IS_NULL);
  ANeuralNetworksCompilation_free(NULL);
}

static void test_null_executions(void) {
  ANeuralNetworksExecution *e = NULL;
  ANeuralNetworksEvent *event = NULL;
  ANeuralNetworksBurst *burst = NULL;
  uint64_t duration = 0;
  uint32_t number = 0;
  int descriptor = 0;
  CHECK(ANeuralNetworksExecution_create(NULL, &e) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setInput(NULL, 0, NULL, NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setOutput(NULL, 0, NULL, NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setInputFromMemory(NULL, 0, NULL, NULL, 0, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setOutputFromMemory(NULL, 0, NULL, NULL, 0, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setMeasureTiming(NULL, true) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setTimeout(NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_setLoopTimeout(NULL, 0) == IS_NULL);
  CHECK(ANeuralNetworksExecution_compute(NULL) == IS_NULL);
  CHECK(ANeuralNetworksExecution_startCompute(NULL, &event) == IS_NULL);
  CHECK(ANeuralNetworksExecution_startComputeWithDependencies(NULL, NULL, 0, 0, &event) == IS_NULL);
  CHECK(ANeuralNetworksExecution_burstCompute(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksExecution_getDuration(NULL, 0, &duration) == IS_NULL);
  CHECK(ANeuralNetworksExecution_getOutputOperandRank(NULL, 0, &number) == IS_NULL);
  CHECK(ANeuralNetworksExecution_getOutputOperandDimensions(NULL, 0, &number) == IS_NULL);
  CHECK(ANeuralNetworksBurst_create(NULL, &burst) == IS_NULL);
  CHECK(ANeuralNetworksEvent_wait(NULL) == IS_NULL);
  CHECK(ANeuralNetworksEvent_createFromSyncFenceFd(1, NULL) == IS_NULL);
  CHECK(ANeuralNetworksEvent_getSyncFenceFd(NULL, &descriptor) == IS_NULL && descriptor == -1);
  ANeuralNetworksExecution_free(NULL);
  ANeuralNetworksBurst_free(NULL);
  ANeuralNetworksEvent_free(NULL);
}

static void test_null_memories(void) {
  ANeuralNetworksMemory *memory = NULL;
  CHECK(ANeuralNetworksMemory_createFromFd(1, PROT_READ, 0, 0, NULL) == IS_NULL);
  CHECK(ANeuralNetworksMemory_createFromAHardwareBuffer(NULL, &memory) == IS_NULL);
  CHECK(ANeuralNetworksMemory_createFromDesc(NULL, &memory) == IS_NULL);
  CHECK(ANeuralNetworksMemory_copy(NULL, NULL) == IS_NULL);
  CHECK(ANeuralNetworksMemoryDesc_create(NULL) == IS_NULL);
  CHECK(ANeuralNetworksMemoryDesc_addInputRole(NULL, NULL, 0, 1) == IS_NULL);
  CHECK(ANeuralNetworksMemoryDesc_addOutputRole(NULL, NULL, 0, 1) == IS_NULL);
  CHECK(ANeuralNetworksMemoryDesc_setDimensions(NULL, 0, NULL) == IS_NULL);
  CHECK(ANeuralNetworksMemoryDesc_finish(NULL) == IS_NULL);
  ANeuralNetworksMemory_free(NULL);
  ANeuralNetworksMemoryDesc_free(NULL);
}

/* The output of one execution is the input of the next and is copied to a file. */
static void test_device_memory(ANeuralNetworksCompilation *compilation) {
  ANeuralNetworksMemoryDesc *desc = NULL;
  ANeuralNetworksMemory *memory = NULL, *file = NULL;
  CHECK(ANeuralNetworksMemoryDesc_create(&desc) == OK);
  CHECK(ANeuralNetworksMemoryDesc_addOutputRole(desc, compilation, 0, 1.0f) == OK);
  CHECK(ANeuralNetworksMemoryDesc_addInputRole(desc, compilation, 0, 0.5f) == OK);
  CHECK(ANeuralNetworksMemoryDesc_setDimensions(desc, 2, API_DIMS) == OK);
  CHECK(ANeuralNetworksMemory_createFromDesc(desc, &memory) == BAD_STATE);
  CHECK(ANeuralNetworksMemoryDesc_finish(desc) == OK);
  CHECK(ANeuralNetworksMemory_createFromDesc(desc, &memory) == OK);
  ANeuralNetworksMemoryDesc_free(desc);
  ANeuralNetworksExecution *writer = NULL, *reader = NULL;
  float out[API_LENGTH] = {0};
  CHECK(ANeuralNetworksExecution_create(compilation, &writer) == OK);
  CHECK(ANeuralNetworksExecution_setInput(writer, 0, NULL, DATA, sizeof DATA) == OK);
  CHECK(ANeuralNetworksExecution_setOutputFromMemory(writer, 0, NULL, memory, 0, 0) == OK);
  CHECK(ANeuralNetworksExecution_compute(writer) == OK);
  CHECK(ANeuralNetworksExecution_create(compilation, &reader) == OK);
  CHECK(ANeuralNetworksExecution_setInputFromMemory(reader, 0, NULL, memory, 0, 0) == OK);
  CHECK(ANeuralNetworksExecution_setOutput(reader, 0, NULL, out, sizeof out) == OK);
  CHECK(ANeuralNetworksExecution_compute(reader) == OK && right(out));
  const int fd = memfd_create("np", 0);
  float kept[API_LENGTH] = {0};
  CHECK(fd >= 0 && ftruncate(fd, sizeof kept) == 0);
  CHECK(ANeuralNetworksMemory_createFromFd(sizeof kept, PROT_READ | PROT_WRITE, fd, 0, &file) ==
        OK);
  CHECK(ANeuralNetworksMemory_copy(memory, file) == OK);
  CHECK(pread(fd, kept, sizeof kept, 0) == (ssize_t)sizeof kept && right(kept));
  (void)close(fd);
  ANeuralNetworksExecution_free(writer);
  ANeuralNetworksExecution_free(reader);
  ANeuralNetworksMemory_free(memory);
  ANeuralNetworksMemory_free(file);
}

/* An execution that waits for a pipe, and one that waits for it. */
static void test_dependencies(ANeuralNetworksCompilation *compilation) {
  int ends[2], signal = -1;
  float first[API_LENGTH] = {0}, second[API_LENGTH] = {0};
  CHECK(pipe(ends) == 0);
  ANeuralNetworksEvent *gate = NULL, *one = NULL, *two = NULL;
  CHECK(ANeuralNetworksEvent_createFromSyncFenceFd(ends[0], &gate) == OK);
  ANeuralNetworksExecution *a = api_prepared(compilation, DATA, first);
  ANeuralNetworksExecution *b = api_prepared(compilation, DATA, second);
  const ANeuralNetworksEvent *before_a[] = {gate};
  CHECK(ANeuralNetworksExecution_startComputeWithDependencies(a, before_a, 1, 0, &one) == OK);
  const ANeuralNetworksEvent *before_b[] = {one, gate};
  CHECK(ANeuralNetworksExecution_startComputeWithDependencies(b, before_b, 2, 0, &two) == OK);
  CHECK(ANeuralNetworksEvent_getSyncFenceFd(two, &signal) == OK);
  struct pollfd poller = {signal, POLLIN, 0};
  CHECK(poll(&poller, 1, 0) == 0); /* not yet */
  CHECK(write(ends[1], "!", 1) == 1);
  CHECK(poll(&poller, 1, 10000) == 1 && (poller.revents & POLLIN));
  CHECK(ANeuralNetworksEvent_wait(two) == OK && right(first) && right(second));
  (void)close(signal);
  (void)close(ends[0]);
  (void)close(ends[1]);
  ANeuralNetworksEvent_free(gate);
  ANeuralNetworksEvent_free(one);
  ANeuralNetworksExecution_free(a);
  ANeuralNetworksExecution_free(b);
  ANeuralNetworksEvent_free(two);
}

/* Executions and events that are not waited for. */
static void test_abandoned(ANeuralNetworksCompilation *compilation) {
  float out[4][API_LENGTH] = {{0}};
  for (int i = 0; i < 4; i++) {
    ANeuralNetworksEvent *event = NULL;
    ANeuralNetworksExecution *execution = api_prepared(compilation, DATA, out[i]);
    CHECK(ANeuralNetworksExecution_startCompute(execution, &event) == OK);
    if (i % 2 == 0) {
      ANeuralNetworksExecution_free(execution);
      CHECK(right(out[i]));
      ANeuralNetworksEvent_free(event);
    } else {
      ANeuralNetworksEvent_free(event);
      CHECK(right(out[i]));
      ANeuralNetworksExecution_free(execution);
    }
  }
}

/* Compiles twice with a cache; one file appears and stays. */
static void test_caching(ANeuralNetworksModel *model) {
  char folder[] = "np-cache-XXXXXX";
  static const uint8_t token[ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN] = {1, 2, 3};
  CHECK(mkdtemp(folder) != NULL);
  for (int i = 0; i < 2; i++) {
    ANeuralNetworksCompilation *compilation = NULL;
    CHECK(ANeuralNetworksCompilation_create(model, &compilation) == OK);
    CHECK(ANeuralNetworksCompilation_setCaching(compilation, "/nowhere", token) == OK);
    CHECK(ANeuralNetworksCompilation_setCaching(compilation, folder, token) == OK);
    CHECK(ANeuralNetworksCompilation_finish(compilation) == OK);
    ANeuralNetworksCompilation_free(compilation);
  }
  DIR *listing = opendir(folder);
  CHECK(listing != NULL);
  int n_files = 0;
  for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
    if (entry->d_name[0] == '.') {
      continue;
    }
    n_files++;
    CHECK(unlinkat(dirfd(listing), entry->d_name, 0) == 0);
  }
  CHECK(n_files == 1);
  if (listing) {
    (void)closedir(listing);
  }
  CHECK(rmdir(folder) == 0);
}

/* IF over two models, which outlive it. */
static void test_models_in_models(void) {
  static const uint32_t one[] = {1};
  const ANeuralNetworksOperandType condition = {NP_TYPE_TENSOR_BOOL8, 1, one, 0, 0};
  const ANeuralNetworksOperandType type = {NP_TYPE_MODEL, 0, NULL, 0, 0};
  ANeuralNetworksModel *branches[] = {api_chain(1), api_chain(2)}, *model = NULL;
  CHECK(ANeuralNetworksModel_create(&model) == OK);
  CHECK(ANeuralNetworksModel_addOperand(model, &condition) == OK);
  for (int32_t i = 0; i < 2; i++) { /* operands 1 and 3 are models, 2 and 4 input and output */
    CHECK(ANeuralNetworksModel_addOperand(model, &type) == OK);
    CHECK(ANeuralNetworksModel_addOperand(model, &API_TENSOR) == OK);
    CHECK(ANeuralNetworksModel_setOperandValueFromModel(model, 1 + 2 * i, branches[i]) == OK);
  }
  const uint32_t inputs[] = {0, 1, 3, 2}, output = 4, ends[] = {0, 2};
  CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, inputs, 1, &output) == OK);
  CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, ends, 1, &output) == OK);
  CHECK(ANeuralNetworksModel_finish(model) == OK);
  ANeuralNetworksCompilation *compilation = api_compile(model, api_device(0));
  for (uint8_t taken = 0; taken < 2; taken++) {
    ANeuralNetworksExecution *execution = NULL;
    float out[API_LENGTH] = {0};
    CHECK(ANeuralNetworksExecution_create(compilation, &execution) == OK);
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, &taken, 1) == OK);
    CHECK(ANeuralNetworksExecution_setInput(execution, 1, NULL, DATA, sizeof DATA) == OK);
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, sizeof out) == OK);
    CHECK(ANeuralNetworksExecution_compute(execution) == OK && right(out));
    ANeuralNetworksExecution_free(execution);
  }
  ANeuralNetworksCompilation_free(compilation);
  ANeuralNetworksModel_free(model);
  ANeuralNetworksModel_free(branches[0]);
  ANeuralNetworksModel_free(branches[1]);
}

int main(void) {
  test_null_models();
  test_null_devices_and_compilations();
  test_null_executions();
  test_null_memories();
  ANeuralNetworksModel *model = api_chain(3);
  ANeuralNetworksCompilation *compilation = api_compile(model, api_device(0));
  test_device_memory(compilation);
  test_dependencies(compilation);
  test_abandoned(compilation);
  ANeuralNetworksCompilation_free(compilation);
  test_caching(model);
  ANeuralNetworksModel_free(model);
  test_models_in_models();
  CHECK(ANeuralNetworks_getDefaultLoopTimeout() <= ANeuralNetworks_getMaximumLoopTimeout());
  return np_test_exit();
}
