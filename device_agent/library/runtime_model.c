/* The library's models: a plan of a bundle that runs one frame at a time. */
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "sysinfo.h"

struct segment_times {
  uint64_t first_ns;
  struct np_durations durations;
};

struct nnp_model {
  const struct np_bundle *bundle;
  uint64_t cpu_mask;
  struct np_nnapi_library library; /* closed if no segment needs it, or there is none */
  struct np_executable executable;
  struct segment_times *times; /* [n_segments] */
  uint64_t *lasts_ns;          /* [n_segments] */
  uint64_t first_ns;
  uint64_t last_ns;
};

static struct np_pipeline *pipeline_of(const struct nnp_model *self) {
  return self->executable.contexts->pipeline;
}

const struct np_executable *np_executable_of(const nnp_model *model) { return &model->executable; }

static nnp_status compile(struct nnp_model *self, const nnp_options *options, nnp_error *error) {
  NNP_REQUIRE(options->plan < self->bundle->n_plans, error, NNP_BAD_ARGUMENT, "plan %u of %u",
              options->plan, self->bundle->n_plans);
  const struct np_bundle_plan *plan = &self->bundle->plans[options->plan];
  NP_TRY(np_executable_open(self->bundle, options->plan, options, &self->library, error));
  NP_TRY(np_executable_make(self->bundle, options->plan, 1, options, &self->library, NULL, 0,
                            &self->executable, error));
  self->times = calloc(plan->n_segments, sizeof *self->times);
  self->lasts_ns = calloc(plan->n_segments, sizeof *self->lasts_ns);
  NNP_REQUIRE(self->times && self->lasts_ns, error, NNP_NO_MEMORY, "no memory for the model");
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    self->times[s] = (struct segment_times){NNP_UNKNOWN_NS, {NP_NO_DURATION, NP_NO_DURATION}};
    self->lasts_ns[s] = NNP_UNKNOWN_NS;
  }
  return NNP_OK;
}

nnp_status nnp_model_compile(const nnp_bundle *bundle, const nnp_options *options,
                             nnp_model **model, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle && model, error, NNP_BAD_ARGUMENT, "bundle or model is NULL");
  *model = NULL;
  nnp_options chosen;
  NP_TRY(np_executable_options(&bundle->bundle, options, &chosen, error));
  struct nnp_model *self = calloc(1, sizeof *self);
  NNP_REQUIRE(self, error, NNP_NO_MEMORY, "no memory for the model");
  self->bundle = &bundle->bundle;
  self->cpu_mask = chosen.cpu_mask;
  self->first_ns = NNP_UNKNOWN_NS;
  self->last_ns = NNP_UNKNOWN_NS;
  const nnp_status status = compile(self, &chosen, error);
  if (status != NNP_OK) {
    nnp_model_free(self);
    return status;
  }
  *model = self;
  return NNP_OK;
}

void nnp_model_free(nnp_model *self) {
  if (!self) {
    return;
  }
  np_executable_free(&self->executable);
  np_executable_close(&self->library);
  free(self->times);
  free(self->lasts_ns);
  free(self);
}

/* ---- Running ---- */

struct call {
  const struct nnp_model *model;
  const void *const *inputs;
  void *const *outputs;
};

static void take(void *ctx) {
  const struct call *call = ctx;
  np_executable_take(call->model->bundle, pipeline_of(call->model), call->inputs);
  np_executable_place(call->model->bundle, pipeline_of(call->model), call->outputs);
}

static void give(void *ctx) {
  const struct call *call = ctx;
  np_executable_give(call->model->bundle, pipeline_of(call->model), call->outputs);
}

/* Reads durations and frees what engines keep after a run; not timed. */
static void settle(struct nnp_model *self) {
  const struct np_step *steps = np_pipeline_steps(pipeline_of(self));
  for (uint32_t s = 0; s < self->executable.chosen->n_segments; s++) {
    struct segment_times *times = &self->times[s];
    times->durations = np_step_settle(&steps[s]);
    if (times->first_ns == NNP_UNKNOWN_NS) {
      times->first_ns = self->lasts_ns[s];
      np_pipeline_describe(pipeline_of(self), s, &self->executable.facts[s].engine);
    }
  }
}

nnp_status nnp_model_run(nnp_model *self, const void *const *inputs, void *const *outputs,
                         nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(self, error, NNP_BAD_ARGUMENT, "model is NULL");
  NP_TRY(np_executable_check(self->bundle, inputs, outputs, error));
  struct np_affinity affinity;
  const int cause = np_affinity_enter(self->cpu_mask, &affinity);
  NNP_REQUIRE(cause == 0, error, NNP_FAILED, "no CPU of the mask may be used: %s", strerror(cause));
  self->executable.contexts->fault = (struct np_fault){.has_code = 0};
  struct call call = {self, inputs, outputs};
  const struct np_run run = {.n_steps = self->executable.chosen->n_segments,
                             .steps = np_pipeline_steps(pipeline_of(self)),
                             .take = take,
                             .give = give,
                             .ctx = &call};
  uint32_t segment = 0;
  uint64_t copies_ns;
  const enum np_status status = np_run_once(&run, np_monotonic_clock(), &segment, self->lasts_ns, 1,
                                            &copies_ns, &self->last_ns);
  if (status == NP_OK) {
    if (self->first_ns == NNP_UNKNOWN_NS) {
      self->first_ns = self->last_ns;
    }
    settle(self);
  }
  np_affinity_leave(&affinity);
  return status == NP_OK ? NNP_OK
                         : np_executable_failed(&self->executable.contexts->fault, status,
                                                (int32_t)segment, error);
}

void *nnp_model_input(nnp_model *self, uint32_t index) {
  if (index >= self->bundle->n_inputs) {
    return NULL;
  }
  return np_pipeline_data(pipeline_of(self), self->bundle->inputs[index].tensor);
}

const void *nnp_model_output(const nnp_model *self, uint32_t index) {
  if (index >= self->bundle->n_outputs) {
    return NULL;
  }
  return np_pipeline_data(pipeline_of(self), self->bundle->outputs[index].tensor);
}

/* ---- Results ---- */

uint32_t nnp_model_n_segments(const nnp_model *self) { return self->executable.chosen->n_segments; }

nnp_status nnp_model_segment(const nnp_model *self, uint32_t index, nnp_segment *segment) {
  if (!self || !segment || index >= self->executable.chosen->n_segments) {
    return NNP_BAD_ARGUMENT;
  }
  const struct segment_times *times = &self->times[index];
  *segment = np_executable_segment(&self->executable, index);
  segment->first_ns = times->first_ns;
  segment->last_ns = self->lasts_ns[index];
  segment->hardware_ns = times->durations.hardware_ns;
  segment->driver_ns = times->durations.driver_ns;
  return NNP_OK;
}

uint64_t nnp_model_first_ns(const nnp_model *self) { return self->first_ns; }

uint64_t nnp_model_last_ns(const nnp_model *self) { return self->last_ns; }
