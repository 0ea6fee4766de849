/* A bare loop over NNAPI's C API, for bench_agent.py: bench_agent LIBRARY RUNS.
 *
 * relu of four floats on the device nnapi-reference, as the agent runs it. The time includes making
 * an execution, setting its input and output, and computing it, but not freeing it. Prints the
 * median of these times and the time of a turn of the loop, both in ns. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "np_nnapi.h"

#define NP_DECLARE(type, name, parameters, level) static type(*name) parameters;
NP_NNAPI_FUNCTIONS(NP_DECLARE)
#undef NP_DECLARE

#define WARM_UP 1000u

static void check(int code, const char *what) {
  if (code != ANEURALNETWORKS_NO_ERROR) {
    (void)fprintf(stderr, "bench_agent: %s gives %d\n", what, code);
    exit(1);
  }
}

static void bind(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    (void)fprintf(stderr, "bench_agent: %s\n", dlerror());
    exit(1);
  }
#define NP_BIND(type, name, parameters, level) *(void **)&name = dlsym(library, #name);
  NP_NNAPI_FUNCTIONS(NP_BIND)
#undef NP_BIND
}

static unsigned long long now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

static ANeuralNetworksCompilation *compile(void) {
  const uint32_t dims[2] = {1, 4}, in = 0, out = 1;
  const ANeuralNetworksOperandType type = {NP_TYPE_TENSOR_FLOAT32, 2, dims, 0, 0};
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksDevice *device = NULL;
  uint32_t n = 0;
  const char *name = "";
  check(ANeuralNetworks_getDeviceCount(&n), "getDeviceCount");
  for (uint32_t i = 0; i < n && strcmp(name, "nnapi-reference") != 0; i++) {
    check(ANeuralNetworks_getDevice(i, &device), "getDevice");
    check(ANeuralNetworksDevice_getName(device, &name), "getName");
  }
  check(ANeuralNetworksModel_create(&model), "Model_create");
  check(ANeuralNetworksModel_addOperand(model, &type), "addOperand");
  check(ANeuralNetworksModel_addOperand(model, &type), "addOperand");
  check(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, &in, 1, &out),
        "addOperation");
  check(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &in, 1, &out), "identify");
  check(ANeuralNetworksModel_finish(model), "Model_finish");
  check(ANeuralNetworksCompilation_createForDevices(
            model, (const ANeuralNetworksDevice *const *)&device, 1, &compilation),
        "createForDevices");
  check(ANeuralNetworksCompilation_finish(compilation), "Compilation_finish");
  return compilation;
}

static unsigned long long run(ANeuralNetworksCompilation *compilation, const float *in,
                              float *out) {
  ANeuralNetworksExecution *execution;
  const unsigned long long before = now_ns();
  check(ANeuralNetworksExecution_create(compilation, &execution), "Execution_create");
  check(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, 16), "setInput");
  check(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, 16), "setOutput");
  check(ANeuralNetworksExecution_compute(execution), "compute");
  const unsigned long long after = now_ns();
  ANeuralNetworksExecution_free(execution);
  return after - before;
}

static int compare(const void *a, const void *b) {
  const unsigned long long x = *(const unsigned long long *)a;
  const unsigned long long y = *(const unsigned long long *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  const size_t n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
  unsigned long long *times = n == 0 ? NULL : calloc(n, sizeof *times);
  if (times == NULL) {
    (void)fprintf(stderr, "usage: bench_agent LIBRARY RUNS\n");
    return 2;
  }
  bind(argv[1]);
  ANeuralNetworksCompilation *compilation = compile();
  const float in[4] = {-1, 2, -3, 4};
  float out[4];
  for (size_t i = 0; i < WARM_UP; i++)
    (void)run(compilation, in, out);
  const unsigned long long begin = now_ns();
  for (size_t i = 0; i < n; i++)
    times[i] = run(compilation, in, out);
  const unsigned long long turn = (now_ns() - begin) / n;
  qsort(times, n, sizeof *times, compare);
  (void)printf("%llu %llu\n", times[n / 2], turn);
  free(times);
  return out[1] == 2 && out[0] == 0 ? 0 : 1;
}
