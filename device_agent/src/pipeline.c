#define _POSIX_C_SOURCE 200809L

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

#define TENSOR_ALIGNMENT 64u /* a cache line, and what vendor drivers like best */

/* One segment as it runs. */
struct lane {
  struct np_engine engine;
  struct np_compiled *compiled; /* NULL until compiled */
  struct np_io *inputs;
  struct np_io *outputs;
  struct np_fault *fault; /* the pipeline's */
};

struct np_pipeline {
  const struct np_pipeline_plan *plan;
  struct np_fault *fault;
  void **made;        /* [n_tensors], NULL where the tensor has bytes of its own */
  struct lane *lanes; /* [n_segments] */
  struct np_step *steps;
};

enum np_status np_pipeline_plan_make(uint32_t n_tensors, uint32_t n_segments,
                                     struct np_pipeline_plan *plan) {
  *plan = (struct np_pipeline_plan){.n_tensors = n_tensors, .n_segments = n_segments};
  plan->tensors = calloc(n_tensors + (size_t)1, sizeof *plan->tensors);
  plan->segments = calloc(n_segments + (size_t)1, sizeof *plan->segments);
  return plan->tensors && plan->segments ? NP_OK : NP_NO_MEMORY;
}

enum np_status np_pipeline_plan_bindings(struct np_pipeline_segment *segment, uint32_t n_inputs,
                                         uint32_t n_outputs) {
  segment->n_inputs = n_inputs;
  segment->n_outputs = n_outputs;
  segment->inputs = calloc(n_inputs + (size_t)1, sizeof *segment->inputs);
  segment->outputs = calloc(n_outputs + (size_t)1, sizeof *segment->outputs);
  return segment->inputs && segment->outputs ? NP_OK : NP_NO_MEMORY;
}

void np_pipeline_plan_free(struct np_pipeline_plan *plan) {
  for (uint32_t s = 0; plan->segments && s < plan->n_segments; s++) {
    free(plan->segments[s].inputs);
    free(plan->segments[s].outputs);
  }
  free(plan->tensors);
  free(plan->segments);
  *plan = (struct np_pipeline_plan){.n_tensors = 0};
}

static enum np_status no_memory(struct np_fault *fault, const char *what) {
  np_message_set(&fault->why, "no memory for %s", what);
  return NP_NO_MEMORY;
}

static enum np_status make_tensors(struct np_pipeline *self) {
  for (uint32_t t = 0; t < self->plan->n_tensors; t++) {
    const struct np_pipeline_tensor *tensor = &self->plan->tensors[t];
    if (tensor->bytes)
      continue;
    if (posix_memalign(&self->made[t], TENSOR_ALIGNMENT, tensor->n_bytes) != 0) {
      self->made[t] = NULL;
      np_message_set(&self->fault->why, "no memory for tensor %u of %zu bytes", t, tensor->n_bytes);
      return NP_NO_MEMORY;
    }
    memset(self->made[t], 0, tensor->n_bytes);
  }
  return NP_OK;
}

void *np_pipeline_data(const struct np_pipeline *pipeline, uint32_t tensor) {
  if (pipeline->made[tensor])
    return pipeline->made[tensor];
  return (void *)(uintptr_t)pipeline->plan->tensors[tensor].bytes;
}

/* The list of a segment's inputs or outputs. */
static struct np_io *make_ios(const struct np_pipeline *self, uint32_t n,
                              const struct np_binding *bindings) {
  struct np_io *ios = calloc(n + (size_t)1, sizeof *ios);
  for (uint32_t i = 0; ios && i < n; i++) {
    const struct np_pipeline_tensor *tensor = &self->plan->tensors[bindings[i].tensor];
    ios[i] = (struct np_io){.data = np_pipeline_data(self, bindings[i].tensor),
                            .n_bytes = tensor->n_bytes,
                            .rank = tensor->rank,
                            .dims = tensor->dims};
  }
  return ios;
}

static enum np_status run_lane(void *ctx) {
  struct lane *lane = ctx;
  return lane->engine.run(lane->compiled, lane->inputs, lane->outputs, lane->fault);
}

static void settle_lane(void *ctx, struct np_durations *durations) {
  struct lane *lane = ctx;
  lane->engine.settle(lane->compiled, durations);
}

static enum np_status make_lanes(struct np_pipeline *self) {
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct lane *lane = &self->lanes[s];
    lane->fault = self->fault;
    lane->engine = segment->engine;
    lane->inputs = make_ios(self, segment->n_inputs, segment->inputs);
    lane->outputs = make_ios(self, segment->n_outputs, segment->outputs);
    if (!lane->inputs || !lane->outputs)
      return no_memory(self->fault, "the segments");
    self->steps[s] = (struct np_step){
        .run = run_lane, .settle = lane->engine.settle ? settle_lane : NULL, .ctx = lane};
  }
  return NP_OK;
}

enum np_status np_pipeline_make(const struct np_pipeline_plan *plan, struct np_fault *fault,
                                struct np_pipeline **pipeline) {
  *pipeline = NULL;
  struct np_pipeline *self = calloc(1, sizeof *self);
  if (!self)
    return no_memory(fault, "the segments");
  self->plan = plan;
  self->fault = fault;
  self->made = calloc(plan->n_tensors + (size_t)1, sizeof *self->made);
  self->lanes = calloc(plan->n_segments + (size_t)1, sizeof *self->lanes);
  self->steps = calloc(plan->n_segments + (size_t)1, sizeof *self->steps);
  enum np_status status = self->made && self->lanes && self->steps
                              ? make_tensors(self)
                              : no_memory(fault, "the segments");
  if (status == NP_OK)
    status = make_lanes(self);
  if (status != NP_OK) {
    np_pipeline_free(self);
    return status;
  }
  *pipeline = self;
  return NP_OK;
}

void np_pipeline_free(struct np_pipeline *self) {
  if (!self)
    return;
  for (uint32_t s = 0; self->lanes && s < self->plan->n_segments; s++) {
    struct lane *lane = &self->lanes[s];
    if (lane->compiled)
      lane->engine.free(lane->compiled);
    free(lane->inputs);
    free(lane->outputs);
  }
  for (uint32_t t = 0; self->made && t < self->plan->n_tensors; t++)
    free(self->made[t]);
  free(self->made);
  free(self->lanes);
  free(self->steps);
  free(self);
}

enum np_status np_pipeline_compile(struct np_pipeline *self, uint32_t segment) {
  const struct np_pipeline_segment *described = &self->plan->segments[segment];
  struct lane *lane = &self->lanes[segment];
  return lane->engine.compile(lane->engine.ctx, described->model, &described->options,
                              &lane->compiled, lane->fault);
}

const struct np_step *np_pipeline_steps(const struct np_pipeline *self) { return self->steps; }
