/* MobileNetV2 (float32, 224 x 224, random weights) on one thread, in turns: XNNPACK driven
 * directly, and through NNAPI on the devices nnapi-fast and nnapi-reference.
 *
 *   bench_backends LIBRARY ROUNDS
 *
 * Prints one JSON object: microseconds of every run, the largest difference between the outputs,
 * and the allocations and locks in executions of the warm fast device. bench_backends.py builds and
 * runs it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xnnpack.h>

#include "bench_network.h"
#include "count_calls.h"
#include "np_nnapi.h"

#define NP_DECLARE(type, name, parameters, level) static type(*name) parameters;
NP_NNAPI_FUNCTIONS(NP_DECLARE)
#undef NP_DECLARE

enum { COUNTED = 20 };

/* XNNPACK, driven directly. */

static uint32_t xnn_value(xnn_subgraph_t graph, size_t rank, const size_t *dims, const void *data,
                          uint32_t external, uint32_t flags) {
  uint32_t id;
  check(xnn_define_tensor_value(graph, xnn_datatype_fp32, rank, dims, data, external, flags, &id),
        "xnn_define_tensor_value");
  return id;
}

static xnn_runtime_t xnn_network(float *output) {
  xnn_subgraph_t graph;
  xnn_runtime_t runtime;
  uint32_t ids[MOST_LAYERS + 1];
  check(xnn_initialize(NULL), "xnn_initialize");
  check(xnn_create_subgraph(2, 0, &graph), "xnn_create_subgraph");
  const size_t dims[4] = {1, IMAGE, IMAGE, 3};
  ids[0] = xnn_value(graph, 4, dims, NULL, 0, XNN_VALUE_FLAG_EXTERNAL_INPUT);
  for (uint32_t i = 0; i < n_layers; i++) {
    const struct layer *l = &layers[i];
    const size_t out[4] = {1, l->size_out, l->size_out, l->out};
    const size_t classes[2] = {1, l->out};
    const int is_last = i + 1 == n_layers;
    const uint32_t to =
        xnn_value(graph, is_last ? 2 : 4, is_last ? classes : out, NULL,
                  is_last ? 1 : XNN_INVALID_VALUE_ID, is_last ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT : 0);
    const uint32_t from = ids[l->from];
    const float low = l->relu6 ? 0.0f : -INFINITY;
    const float high = l->relu6 ? 6.0f : INFINITY;
    uint32_t weights = XNN_INVALID_VALUE_ID;
    uint32_t bias = XNN_INVALID_VALUE_ID;
    ids[i + 1] = to;
    if (l->weights != NULL) {
      const size_t conv[4] = {l->out, l->kernel, l->kernel, l->in};
      const size_t depthwise[4] = {1, l->kernel, l->kernel, l->out};
      const size_t dense[2] = {l->out, l->in};
      const size_t length[1] = {l->out};
      weights = xnn_value(graph, l->kind == DENSE ? 2 : 4,
                          l->kind == DENSE       ? dense
                          : l->kind == DEPTHWISE ? depthwise
                                                 : conv,
                          l->weights, XNN_INVALID_VALUE_ID, 0);
      bias = xnn_value(graph, 1, length, l->bias, XNN_INVALID_VALUE_ID, 0);
    }
    switch (l->kind) {
    case CONV:
      check(xnn_define_convolution_2d(graph, 0, 0, 0, 0, l->kernel, l->kernel, l->stride, l->stride,
                                      1, 1, 1, l->in, l->out, low, high, from, weights, bias, to,
                                      XNN_FLAG_TENSORFLOW_SAME_PADDING),
            "xnn_define_convolution_2d");
      break;
    case DEPTHWISE:
      check(xnn_define_depthwise_convolution_2d(graph, 0, 0, 0, 0, l->kernel, l->kernel, l->stride,
                                                l->stride, 1, 1, 1, l->in, low, high, from, weights,
                                                bias, to, XNN_FLAG_TENSORFLOW_SAME_PADDING),
            "xnn_define_depthwise_convolution_2d");
      break;
    case ADD:
      check(xnn_define_binary(graph, xnn_binary_add, NULL, from, ids[l->other], to, 0),
            "xnn_define_binary");
      break;
    case POOL:
      check(xnn_define_average_pooling_2d(graph, 0, 0, 0, 0, l->kernel, l->kernel, 1, 1, low, high,
                                          from, to, 0),
            "xnn_define_average_pooling_2d");
      break;
    case DENSE:
      check(xnn_define_fully_connected(graph, low, high, from, weights, bias, to,
                                       XNN_FLAG_TENSORFLOW_RESHAPE_2D),
            "xnn_define_fully_connected");
      break;
    }
  }
  check(xnn_create_runtime_v2(graph, NULL, 0, &runtime), "xnn_create_runtime_v2");
  check(xnn_reshape_runtime(runtime), "xnn_reshape_runtime");
  const struct xnn_external_value values[2] = {{0, image}, {1, output}};
  check(xnn_setup_runtime_v2(runtime, 2, values), "xnn_setup_runtime_v2");
  check(xnn_delete_subgraph(graph), "xnn_delete_subgraph");
  return runtime;
}

/* The same through NNAPI. */

struct model {
  ANeuralNetworksModel *model;
  uint32_t n;
};

static uint32_t operand(struct model *m, int32_t type, uint32_t rank, const uint32_t *dims) {
  const ANeuralNetworksOperandType described = {type, rank, dims, 0.0f, 0};
  check(ANeuralNetworksModel_addOperand(m->model, &described), "addOperand");
  return m->n++;
}

static uint32_t tensor(struct model *m, uint32_t rank, const uint32_t *dims, const float *values) {
  const uint32_t index = operand(m, NP_TYPE_TENSOR_FLOAT32, rank, dims);
  size_t n = 1;
  for (uint32_t d = 0; d < rank; d++) {
    n *= dims[d];
  }
  if (values != NULL) {
    check(
        ANeuralNetworksModel_setOperandValue(m->model, (int32_t)index, values, n * sizeof *values),
        "setOperandValue");
  }
  return index;
}

static uint32_t number(struct model *m, int32_t value) {
  const uint32_t index = operand(m, NP_TYPE_INT32, 0, NULL);
  check(ANeuralNetworksModel_setOperandValue(m->model, (int32_t)index, &value, sizeof value),
        "setOperandValue");
  return index;
}

/* Adds one layer that reads the operands in `ids` and writes `to`. */
static void nnapi_layer(struct model *m, const struct layer *l, const uint32_t *ids, uint32_t to) {
  static const int32_t CODES[] = {ANEURALNETWORKS_CONV_2D, ANEURALNETWORKS_DEPTHWISE_CONV_2D,
                                  ANEURALNETWORKS_ADD, ANEURALNETWORKS_AVERAGE_POOL_2D,
                                  ANEURALNETWORKS_FULLY_CONNECTED};
  const uint32_t conv[4] = {l->out, l->kernel, l->kernel, l->in};
  const uint32_t depthwise[4] = {1, l->kernel, l->kernel, l->out};
  const uint32_t dense[2] = {l->out, l->in};
  uint32_t in[10] = {ids[l->from]};
  uint32_t n = 1;
  if (l->kind == ADD) {
    in[n++] = ids[l->other];
  }
  if (l->weights != NULL) {
    in[n++] = tensor(m, l->kind == DENSE ? 2 : 4,
                     l->kind == DENSE       ? dense
                     : l->kind == DEPTHWISE ? depthwise
                                            : conv,
                     l->weights);
    in[n++] = tensor(m, 1, &l->out, l->bias);
  }
  if (l->kind == CONV || l->kind == DEPTHWISE || l->kind == POOL) {
    in[n++] =
        number(m, l->kind == POOL ? ANEURALNETWORKS_PADDING_VALID : ANEURALNETWORKS_PADDING_SAME);
    in[n++] = number(m, (int32_t)l->stride);
    in[n++] = number(m, (int32_t)l->stride);
  }
  if (l->kind == POOL) {
    in[n++] = number(m, (int32_t)l->kernel);
    in[n++] = number(m, (int32_t)l->kernel);
  } else if (l->kind == DEPTHWISE) {
    in[n++] = number(m, 1);
  }
  in[n++] = number(m, l->relu6 ? ANEURALNETWORKS_FUSED_RELU6 : ANEURALNETWORKS_FUSED_NONE);
  check(ANeuralNetworksModel_addOperation(m->model, CODES[l->kind], n, in, 1, &to), "addOperation");
}

static ANeuralNetworksDevice *device_named(const char *wanted) {
  uint32_t n = 0;
  check(ANeuralNetworks_getDeviceCount(&n), "getDeviceCount");
  for (uint32_t i = 0; i < n; i++) {
    ANeuralNetworksDevice *device;
    const char *name;
    check(ANeuralNetworks_getDevice(i, &device), "getDevice");
    check(ANeuralNetworksDevice_getName(device, &name), "getName");
    if (strcmp(name, wanted) == 0) {
      return device;
    }
  }
  die(wanted);
  return NULL;
}

static ANeuralNetworksCompilation *nnapi_network(const char *device_name) {
  struct model m = {0};
  uint32_t ids[MOST_LAYERS + 1];
  check(ANeuralNetworksModel_create(&m.model), "Model_create");
  const uint32_t dims[4] = {1, IMAGE, IMAGE, 3};
  ids[0] = tensor(&m, 4, dims, NULL);
  for (uint32_t i = 0; i < n_layers; i++) {
    const uint32_t out[4] = {1, layers[i].size_out, layers[i].size_out, layers[i].out};
    const uint32_t classes[2] = {1, layers[i].out};
    ids[i + 1] = i + 1 == n_layers ? tensor(&m, 2, classes, NULL) : tensor(&m, 4, out, NULL);
    nnapi_layer(&m, &layers[i], ids, ids[i + 1]);
  }
  check(ANeuralNetworksModel_identifyInputsAndOutputs(m.model, 1, &ids[0], 1, &ids[n_layers]),
        "identifyInputsAndOutputs");
  check(ANeuralNetworksModel_finish(m.model), "Model_finish");
  const ANeuralNetworksDevice *const device = device_named(device_name);
  ANeuralNetworksCompilation *compilation;
  check(ANeuralNetworksCompilation_createForDevices(m.model, &device, 1, &compilation),
        "createForDevices");
  check(ANeuralNetworksCompilation_finish(compilation), "Compilation_finish");
  return compilation;
}

static ANeuralNetworksExecution *prepared(ANeuralNetworksCompilation *compilation, float *output) {
  ANeuralNetworksExecution *execution;
  check(ANeuralNetworksExecution_create(compilation, &execution), "Execution_create");
  check(ANeuralNetworksExecution_setInput(execution, 0, NULL, image,
                                          (size_t)IMAGE * IMAGE * 3 * sizeof *image),
        "setInput");
  check(ANeuralNetworksExecution_setOutput(execution, 0, NULL, output, CLASSES * sizeof *output),
        "setOutput");
  return execution;
}

static void nnapi_run(ANeuralNetworksCompilation *compilation, float *output) {
  ANeuralNetworksExecution *execution = prepared(compilation, output);
  check(ANeuralNetworksExecution_compute(execution), "compute");
  ANeuralNetworksExecution_free(execution);
}

static double now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double difference(const float *a, const float *b) {
  double most = 0.0;
  double scale = 0.0;
  for (int i = 0; i < CLASSES; i++) {
    most = fmax(most, fabs((double)a[i] - (double)b[i]));
    scale = fmax(scale, fabs((double)b[i]));
  }
  return most / scale;
}

static void print_times(const char *name, const double *times, int n) {
  printf("\"%s\": [", name);
  for (int i = 0; i < n; i++) {
    printf("%s%.1f", i == 0 ? "" : ", ", times[i]);
  }
  printf("], ");
}

static void bind(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    die(dlerror());
  }
#define NP_BIND(type, name, parameters, level) *(void **)&name = dlsym(library, #name);
  NP_NNAPI_FUNCTIONS(NP_BIND)
#undef NP_BIND
}

int main(int argc, char **argv) {
  if (argc != 3) {
    die("usage: bench_backends LIBRARY ROUNDS");
  }
  const int rounds = atoi(argv[2]);
  double *times = calloc(3 * (size_t)rounds, sizeof *times);
  float *outputs[3];
  bind(argv[1]);
  make_network();
  for (int i = 0; i < 3; i++) {
    outputs[i] = random_floats(CLASSES, 0.0f);
  }
  xnn_runtime_t direct = xnn_network(outputs[0]);
  ANeuralNetworksCompilation *compilations[3] = {NULL, nnapi_network("nnapi-fast"),
                                                 nnapi_network("nnapi-reference")};
  for (int round = -2; round < rounds; round++) { /* two to warm up */
    for (int turn = 0; turn < 3; turn++) {
      const int which = (turn + round + 3) % 3;
      const double begin = now_us();
      if (which == 0) {
        check(xnn_invoke_runtime(direct), "xnn_invoke_runtime");
      } else {
        nnapi_run(compilations[which], outputs[which]);
      }
      if (round >= 0) {
        times[which * rounds + round] = now_us() - begin;
      }
    }
  }
  struct counts compute = {0};
  for (int i = 0; i < COUNTED; i++) {
    ANeuralNetworksExecution *execution = prepared(compilations[1], outputs[1]);
    count_start();
    const int status = ANeuralNetworksExecution_compute(execution);
    const struct counts one = count_stop();
    check(status, "compute");
    ANeuralNetworksExecution_free(execution);
    compute.allocations += one.allocations;
    compute.frees += one.frees;
    compute.locks += one.locks;
  }
  /* Making an execution allocates inside the library, which shows that its calls are counted. */
  count_start();
  ANeuralNetworksExecution *execution = prepared(compilations[1], outputs[1]);
  const struct counts control = count_stop();
  ANeuralNetworksExecution_free(execution);
  printf("{");
  print_times("direct_us", times, rounds);
  print_times("fast_us", times + rounds, rounds);
  print_times("reference_us", times + 2 * rounds, rounds);
  printf("\"fast_difference\": %.3g, \"reference_difference\": %.3g, ",
         difference(outputs[1], outputs[0]), difference(outputs[2], outputs[0]));
  printf("\"counted_runs\": %d, \"allocations\": %ld, \"frees\": %ld, \"locks\": %ld, "
         "\"control_allocations\": %ld}\n",
         COUNTED, compute.allocations, compute.frees, compute.locks, control.allocations);
  return 0;
}
