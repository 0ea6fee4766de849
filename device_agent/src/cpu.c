#include "cpu.h"

#include <stdlib.h>
#include <string.h>

#include "np_executor.h"

/* Our own kernels may be used at any feature level. */
#define ANY_FEATURE_LEVEL ANEURALNETWORKS_FEATURE_LEVEL_8

struct np_compiled {
  struct np_graph graph; /* operands and operations are copies, which the check may sort */
  struct np_executor *executor;
  struct np_buffer *inputs; /* [n_inputs + n_outputs] */
  struct np_buffer *outputs;
  struct np_simulator *simulator; /* NULL in real time */
  uint32_t threads;
  uint32_t n_works;
  int32_t *codes;        /* [n_works], with a simulator */
  struct np_work *works; /* [n_works], with a simulator */
  uint8_t *last_inputs;  /* concatenated inputs of the last run */
  uint8_t *last_outputs; /* ... and its outputs. NULL: not kept */
};

static void cpu_free(struct np_compiled *self) {
  if (self->executor) {
    np_executor_free(self->executor);
  }
  free(self->graph.operands);
  free(self->graph.operations);
  free(self->inputs);
  free(self->codes);
  free(self->works);
  free(self->last_inputs);
  free(self->last_outputs);
  free(self);
}

/* Copies the arrays that the check may sort; shares those that it only reads. */
static enum np_status copy_graph(struct np_compiled *self, const struct np_graph *graph,
                                 struct np_fault *fault) {
  self->graph = *graph;
  self->graph.operands = calloc(graph->n_operands + (size_t)1, sizeof *graph->operands);
  self->graph.operations = calloc(graph->n_operations + (size_t)1, sizeof *graph->operations);
  self->inputs = calloc(graph->n_inputs + (size_t)graph->n_outputs + 1, sizeof *self->inputs);
  NP_REQUIRE(self->graph.operands && self->graph.operations && self->inputs, NP_NO_MEMORY,
             &fault->why, "no memory for a compilation");
  memcpy(self->graph.operands, graph->operands, graph->n_operands * sizeof *graph->operands);
  memcpy(self->graph.operations, graph->operations,
         graph->n_operations * sizeof *graph->operations);
  self->outputs = self->inputs + graph->n_inputs;
  return NP_OK;
}

/* The bytes of the region's inputs and outputs. */
static uint64_t border_bytes(const struct np_graph *graph) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    bytes += np_operand_bytes(&graph->operands[graph->inputs[i]]);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    bytes += np_operand_bytes(&graph->operands[graph->outputs[i]]);
  }
  return bytes;
}

/* Halves the bytes of FLOAT32 data and appends one operation that converts the data at the border
 * between the two types. */
static void halve_work(struct np_compiled *self) {
  const uint64_t border = border_bytes(&self->graph);
  int any = 0;
  for (uint32_t i = 0; i < self->n_works; i++) {
    struct np_work *work = &self->works[i];
    if (work->type == NP_TYPE_TENSOR_FLOAT32) {
      work->type = NP_TYPE_TENSOR_FLOAT16;
      work->input_bytes /= 2;
      work->output_bytes /= 2;
      work->constant_bytes /= 2;
      any = 1;
    }
  }
  if (any) {
    self->codes[self->n_works] = ANEURALNETWORKS_CAST;
    self->works[self->n_works++] = (struct np_work){
        .input_bytes = border, .output_bytes = border / 2, .type = NP_TYPE_TENSOR_FLOAT16};
  }
}

/* Lists the work of every operation for the simulated CPU. */
static enum np_status list_work(struct np_compiled *self, const struct np_options *options,
                                struct np_fault *fault) {
  const uint32_t n = self->graph.n_operations;
  self->codes = calloc(n + (size_t)1, sizeof *self->codes);
  self->works = calloc(n + (size_t)1, sizeof *self->works);
  NP_REQUIRE(self->codes && self->works, NP_NO_MEMORY, &fault->why,
             "no memory for the simulated CPU's work");
  self->n_works = n;
  for (uint32_t i = 0; i < n; i++) {
    self->codes[i] = self->graph.operations[i].code;
    self->works[i] = np_operation_work(&self->graph, i);
  }
  if ((options->relaxed || options->half) && self->simulator->half && self->simulator->half()) {
    halve_work(self);
  }
  return NP_OK;
}

/* Chooses float16 if it is requested, or allowed and faster than float32. */
static const struct np_backend *backend_for(const struct np_options *options) {
  const int fast = options->relaxed && np_half_arithmetic() == NP_HALF_NATIVE;
  return np_backend_named(options->half || fast ? "half" : "fast");
}

static enum np_status cpu_compile(void *ctx, const struct np_model *model,
                                  const struct np_options *options, struct np_compiled **compiled,
                                  struct np_fault *fault) {
  struct np_compiled *self = calloc(1, sizeof *self);
  NP_REQUIRE(self, NP_NO_MEMORY, &fault->why, "no memory for a compilation");
  self->simulator = ctx;
  self->threads = options->threads;
  enum np_status status = copy_graph(self, &model->graph, fault);
  NP_THEN(status, np_graph_check(&self->graph, ANY_FEATURE_LEVEL, &fault->why));
  /* A simulated phone's results are the reference's, the same on every machine. */
  const struct np_executor_options how = {
      .backend = self->simulator ? NULL : backend_for(options),
      .threads = options->threads,
  };
  NP_THEN(status, np_executor_create(&self->graph, &how, &self->executor, &fault->why));
  if (status == NP_OK && self->simulator) {
    status = list_work(self, options, fault);
  }
  if (status != NP_OK) {
    cpu_free(self);
    return status;
  }
  *compiled = self;
  return NP_OK;
}

static struct np_buffer buffer_of(const struct np_io *io) {
  struct np_buffer buffer = {.data = io->data, .length = io->n_bytes, .rank = io->rank};
  memcpy(buffer.dims, io->dims, io->rank * sizeof *io->dims);
  return buffer;
}

static size_t total_bytes(const struct np_io *ios, uint32_t n) {
  size_t total = 0; /* cannot overflow: all tensors are in memory */
  for (uint32_t i = 0; i < n; i++) {
    total += ios[i].n_bytes; /* their shapes never change between runs */
  }
  return total;
}

/* Copies the outputs of the last run if the inputs are the same; returns 0 if not. */
static int repeat_last_run(const struct np_compiled *self, const struct np_io *inputs,
                           const struct np_io *outputs) {
  const uint8_t *last = self->last_inputs;
  for (uint32_t i = 0; last && i < self->graph.n_inputs; i++) {
    last = memcmp(last, inputs[i].data, inputs[i].n_bytes) == 0 ? last + inputs[i].n_bytes : NULL;
  }
  if (!last) {
    return 0;
  }
  last = self->last_outputs;
  for (uint32_t i = 0; i < self->graph.n_outputs; i++) {
    memcpy(outputs[i].data, last, outputs[i].n_bytes);
    last += outputs[i].n_bytes;
  }
  return 1;
}

/* If memory is short, keeps nothing, and every run computes. */
static void keep_last_run(struct np_compiled *self, const struct np_io *inputs,
                          const struct np_io *outputs) {
  const uint32_t n_inputs = self->graph.n_inputs, n_outputs = self->graph.n_outputs;
  if (!self->last_inputs) {
    self->last_inputs = malloc(total_bytes(inputs, n_inputs) + 1);
    self->last_outputs = malloc(total_bytes(outputs, n_outputs) + 1);
  }
  if (!self->last_inputs || !self->last_outputs) {
    free(self->last_inputs);
    free(self->last_outputs);
    self->last_inputs = self->last_outputs = NULL;
    return;
  }
  uint8_t *to = self->last_inputs;
  for (uint32_t i = 0; i < n_inputs; i++) {
    memcpy(to, inputs[i].data, inputs[i].n_bytes);
    to += inputs[i].n_bytes;
  }
  to = self->last_outputs;
  for (uint32_t i = 0; i < n_outputs; i++) {
    memcpy(to, outputs[i].data, outputs[i].n_bytes);
    to += outputs[i].n_bytes;
  }
}

/* Returns whether an output has the shape of the action's tensor. */
static int shape_fits(const struct np_buffer *buffer, const struct np_io *io) {
  return buffer->rank == io->rank &&
         memcmp(buffer->dims, io->dims, io->rank * sizeof *io->dims) == 0;
}

static enum np_status compute(struct np_compiled *self, const struct np_io *inputs,
                              const struct np_io *outputs, struct np_fault *fault) {
  const struct np_graph *graph = &self->graph;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    self->inputs[i] = buffer_of(&inputs[i]);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    self->outputs[i] = buffer_of(&outputs[i]);
  }
  uint32_t too_small;
  NP_TRY(
      np_executor_run(self->executor, self->inputs, self->outputs, NULL, &too_small, &fault->why));
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    NP_REQUIRE(shape_fits(&self->outputs[i], &outputs[i]), NP_RUN_FAILED, &fault->why,
               "output %u has another shape than the action's tensor", i);
  }
  return NP_OK;
}

static enum np_status cpu_run(struct np_compiled *self, const struct np_io *inputs,
                              const struct np_io *outputs, struct np_fault *fault) {
  if (!self->simulator) {
    return compute(self, inputs, outputs, fault);
  }
  if (!repeat_last_run(self, inputs, outputs)) {
    NP_TRY(compute(self, inputs, outputs, fault));
    keep_last_run(self, inputs, outputs);
  }
  self->simulator->cpu_run(self->codes, self->works, self->n_works, self->threads);
  return NP_OK;
}

static void cpu_describe(const struct np_compiled *self, struct np_engine_facts *facts) {
  const struct np_shares shares = np_executor_shares(self->executor);
  facts->has_kernels = 1;
  facts->n_xnnpack = shares.backend;
  facts->n_portable = shares.reference;
}

struct np_engine np_cpu_engine(struct np_simulator *simulator) {
  return (struct np_engine){.name = "cpu",
                            .ctx = simulator,
                            .compile = cpu_compile,
                            .run = cpu_run,
                            .settle = NULL,
                            .describe = cpu_describe,
                            .free = cpu_free};
}
