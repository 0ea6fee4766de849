/* For bench_cpu.py: the agent's CPU engine on a converted model, and XNNPACK's subgraph API driven
 * directly, layer by layer, in one process with PyTorch. Functions that fail end the program with a
 * message. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pthreadpool.h>
#include <xnnpack.h>

#include "cpu.h"
#include "np_ops.h"

#define EXPORT __attribute__((visibility("default")))

static void check(int status, const char *what, const char *why) {
  if (status != 0) {
    fprintf(stderr, "bench_cpu: %s gives %d %s\n", what, status, why);
    exit(1);
  }
}

static double now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Allocates memory that XNNPACK may read beyond. */
static void *room(size_t bytes) {
  void *data = aligned_alloc(64, (bytes + XNN_EXTRA_BYTES + 63) / 64 * 64);
  check(data == NULL, "aligned_alloc", "");
  return data;
}

/* The agent's engine. */

struct engine {
  struct np_model model;
  struct np_engine engine;
  struct np_compiled *compiled;
  struct np_io input, output;
};

static struct np_io io_of(const struct np_operand *operand) {
  size_t bytes = np_type_bytes(operand->type);
  for (uint32_t d = 0; d < operand->rank; d++) {
    bytes *= operand->dims[d];
  }
  return (struct np_io){
      .data = room(bytes), .n_bytes = bytes, .rank = operand->rank, .dims = operand->dims};
}

/* Compiles a model of one input and one output. */
EXPORT struct engine *engine_open(const void *bytes, size_t length, const struct np_bytes *buffers,
                                  uint32_t n_buffers, uint32_t threads) {
  struct engine *self = calloc(1, sizeof *self);
  struct np_fault fault = {0};
  check(self == NULL, "calloc", "");
  check(np_model_open(bytes, length, &self->model, &fault.why), "np_model_open", fault.why.text);
  check(np_model_bind(&self->model, buffers, n_buffers, &fault.why), "np_model_bind",
        fault.why.text);
  const struct np_graph *graph = &self->model.graph;
  check(graph->n_inputs != 1 || graph->n_outputs != 1, "the model's inputs and outputs", "");
  const struct np_options options = {.preference = -1, .threads = threads};
  self->engine = np_cpu_engine(NULL);
  check(self->engine.compile(self->engine.ctx, &self->model, &options, &self->compiled, &fault),
        "compile", fault.why.text);
  self->input = io_of(&graph->operands[graph->inputs[0]]);
  self->output = io_of(&graph->operands[graph->outputs[0]]);
  return self;
}

EXPORT void *engine_data(struct engine *self, int which, size_t *bytes) {
  const struct np_io *io = which == 0 ? &self->input : &self->output;
  *bytes = io->n_bytes;
  return io->data;
}

EXPORT void engine_counts(const struct engine *self, uint32_t counts[2]) {
  struct np_engine_facts facts = {0};
  self->engine.describe(self->compiled, &facts);
  counts[0] = facts.n_xnnpack;
  counts[1] = facts.n_portable;
}

EXPORT void engine_run(struct engine *self, uint32_t runs, double *us) {
  struct np_fault fault = {0};
  for (uint32_t i = 0; i < runs; i++) {
    const double begin = now_us();
    check(self->engine.run(self->compiled, &self->input, &self->output, &fault), "run",
          fault.why.text);
    us[i] = now_us() - begin;
  }
}

EXPORT void engine_close(struct engine *self) {
  self->engine.free(self->compiled);
  np_model_free(&self->model);
  free(self->input.data);
  free(self->output.data);
  free(self);
}

/* XNNPACK. */

struct direct {
  xnn_subgraph_t graph;
  xnn_runtime_t runtime;
  pthreadpool_t pool;
  struct xnn_external_value values[2]; /* input, output */
};

EXPORT struct direct *direct_new(void) {
  struct direct *self = calloc(1, sizeof *self);
  check(self == NULL, "calloc", "");
  check(xnn_initialize(NULL), "xnn_initialize", "");
  check(xnn_create_subgraph(2, 0, &self->graph), "xnn_create_subgraph", "");
  return self;
}

/* Defines a value; external 0 is the input, 1 the output, which get memory here, -1 neither. A
 * scale of 0 means floats; `scales`, if any, are by channel of `axis`. */
EXPORT uint32_t direct_value(struct direct *self, int type, uint32_t rank, const size_t *dims,
                             const void *data, float scale, int32_t zero, const float *scales,
                             uint32_t axis, int external) {
  uint32_t id = 0;
  const uint32_t number = external < 0 ? XNN_INVALID_VALUE_ID : (uint32_t)external;
  const uint32_t flags = external == 0   ? XNN_VALUE_FLAG_EXTERNAL_INPUT
                         : external == 1 ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT
                                         : 0;
  if (external >= 0) {
    size_t bytes = scale == 0.0f ? sizeof(float) : 1;
    for (uint32_t d = 0; d < rank; d++) {
      bytes *= dims[d];
    }
    self->values[external] = (struct xnn_external_value){number, room(bytes)};
  }
  if (scales != NULL) {
    check(xnn_define_channelwise_quantized_tensor_value(self->graph, (enum xnn_datatype)type,
                                                        scales, rank, axis, dims, data, number,
                                                        flags, &id),
          "xnn_define_channelwise_quantized_tensor_value", "");
  } else if (scale != 0.0f) {
    check(xnn_define_quantized_tensor_value(self->graph, (enum xnn_datatype)type, zero, scale, rank,
                                            dims, data, number, flags, &id),
          "xnn_define_quantized_tensor_value", "");
  } else {
    check(xnn_define_tensor_value(self->graph, (enum xnn_datatype)type, rank, dims, data, number,
                                  flags, &id),
          "xnn_define_tensor_value", "");
  }
  return id;
}

/* `window` is pad, kernel, stride, groups, channels in and out of each group. */
EXPORT void direct_conv(struct direct *self, const uint32_t window[6], float low, float high,
                        const uint32_t values[4]) {
  const uint32_t pad = window[0], kernel = window[1], stride = window[2];
  check(xnn_define_convolution_2d(self->graph, pad, pad, pad, pad, kernel, kernel, stride, stride,
                                  1, 1, window[3], window[4], window[5], low, high, values[0],
                                  values[1], values[2], values[3], 0),
        "xnn_define_convolution_2d", "");
}

EXPORT void direct_depthwise(struct direct *self, const uint32_t window[6], float low, float high,
                             const uint32_t values[4]) {
  const uint32_t pad = window[0], kernel = window[1], stride = window[2];
  check(xnn_define_depthwise_convolution_2d(self->graph, pad, pad, pad, pad, kernel, kernel, stride,
                                            stride, 1, 1, 1, window[3], low, high, values[0],
                                            values[1], values[2], values[3], 0),
        "xnn_define_depthwise_convolution_2d", "");
}

EXPORT void direct_dense(struct direct *self, const uint32_t values[4]) {
  check(xnn_define_fully_connected(self->graph, -1.0f / 0.0f, 1.0f / 0.0f, values[0], values[1],
                                   values[2], values[3], 0),
        "xnn_define_fully_connected", "");
}

EXPORT void direct_add(struct direct *self, float low, float high, const uint32_t values[3]) {
  const struct xnn_binary_params limits = {(double)low, (double)high};
  check(xnn_define_binary(self->graph, xnn_binary_add, &limits, values[0], values[1], values[2], 0),
        "xnn_define_binary", "");
}

EXPORT void direct_max_pool(struct direct *self, const uint32_t window[3],
                            const uint32_t values[2]) {
  const uint32_t pad = window[0], kernel = window[1], stride = window[2];
  check(xnn_define_max_pooling_2d(self->graph, pad, pad, pad, pad, kernel, kernel, stride, stride,
                                  1, 1, -1.0f / 0.0f, 1.0f / 0.0f, values[0], values[1], 0),
        "xnn_define_max_pooling_2d", "");
}

/* Takes the mean over height and width, and removes these dimensions. */
EXPORT void direct_mean(struct direct *self, const uint32_t values[2]) {
  static const size_t AXES[2] = {1, 2};
  check(xnn_define_static_reduce(self->graph, xnn_reduce_mean, 2, AXES, values[0], values[1], 0),
        "xnn_define_static_reduce", "");
}

/* Converts a value from floats to integers or back. */
EXPORT void direct_convert(struct direct *self, const uint32_t values[2]) {
  check(xnn_define_unary(self->graph, xnn_unary_convert, NULL, values[0], values[1], 0),
        "xnn_define_unary", "");
}

EXPORT void direct_transpose(struct direct *self, const uint32_t values[2]) {
  static const size_t NCHW_TO_NHWC[4] = {0, 2, 3, 1};
  check(xnn_define_static_transpose(self->graph, 4, NCHW_TO_NHWC, values[0], values[1], 0),
        "xnn_define_static_transpose", "");
}

EXPORT void direct_ready(struct direct *self, uint32_t threads, uint32_t flags) {
  self->pool = threads > 1 ? pthreadpool_create(threads) : NULL;
  check(xnn_create_runtime_v3(self->graph, NULL, self->pool, flags, &self->runtime),
        "xnn_create_runtime_v3", "");
  check(xnn_reshape_runtime(self->runtime), "xnn_reshape_runtime", "");
  check(xnn_setup_runtime_v2(self->runtime, 2, self->values), "xnn_setup_runtime_v2", "");
  check(xnn_delete_subgraph(self->graph), "xnn_delete_subgraph", "");
}

EXPORT void *direct_data(struct direct *self, int which) { return self->values[which].data; }

EXPORT void direct_run(struct direct *self, uint32_t runs, double *us) {
  for (uint32_t i = 0; i < runs; i++) {
    const double begin = now_us();
    check(xnn_invoke_runtime(self->runtime), "xnn_invoke_runtime", "");
    us[i] = now_us() - begin;
  }
}

EXPORT void direct_close(struct direct *self) {
  check(xnn_delete_runtime(self->runtime), "xnn_delete_runtime", "");
  if (self->pool != NULL) {
    pthreadpool_destroy(self->pool);
  }
  free(self->values[0].data);
  free(self->values[1].data);
  free(self);
}
