/* The library's models: a plan of a bundle that runs one frame at a time. */
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "executable.h"

struct segment_times {
  uint64_t first_ns;
  uint64_t last_ns;
  struct np_durations durations;
};

struct nnp_model {
  const struct np_bundle *bundle;
  uint64_t cpu_mask;
  struct np_nnapi_library library; /* closed where no segment needs it, or there is none */
  struct np_executable executable;
  struct segment_times *times; /* [n_segments] */
  uint64_t first_ns;
  uint64_t last_ns;
};

static struct np_pipeline *pipeline_of(const struct nnp_model *self) {
  return self->executable.contexts->pipeline;
}

const struct np_executable *np_executable_of(const nnp_model *model) { return &model->executable; }

static nnp_status compile(struct nnp_model *self, const nnp_options *options, nnp_error *error) {
  if (options->plan >= self->bundle->n_plans) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "plan %u of %u", options->plan,
                           self->bundle->n_plans);
  }
  const struct np_bundle_plan *plan = &self->bundle->plans[options->plan];
  nnp_status status =
      np_executable_open(self->bundle, options->plan, options, &self->library, error);
  if (status == NNP_OK) {
    status = np_executable_make(self->bundle, options->plan, 1, options, &self->library, NULL, 0,
                                &self->executable, error);
  }
  if (status != NNP_OK) {
    return status;
  }
  self->times = calloc(plan->n_segments, sizeof *self->times);
  if (!self->times) {
    return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the model");
  }
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    self->times[s] =
        (struct segment_times){NNP_UNKNOWN_NS, NNP_UNKNOWN_NS, {NP_NO_DURATION, NP_NO_DURATION}};
  }
  return NNP_OK;
}

nnp_status nnp_model_compile(const nnp_bundle *bundle, const nnp_options *options,
                             nnp_model **model, nnp_error *error) {
  np_runtime_clear(error);
  if (!bundle || !model) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "bundle or model is NULL");
  }
  *model = NULL;
  nnp_options chosen;
  nnp_status status = np_executable_options(&bundle->bundle, options, &chosen, error);
  if (status != NNP_OK) {
    return status;
  }
  struct nnp_model *self = calloc(1, sizeof *self);
  if (!self) {
    return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the model");
  }
  self->bundle = &bundle->bundle;
  self->cpu_mask = chosen.cpu_mask;
  self->first_ns = NNP_UNKNOWN_NS;
  self->last_ns = NNP_UNKNOWN_NS;
  status = compile(self, &chosen, error);
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
  free(self);
}

/* ---- Running ---- */

static enum np_status run_steps(struct nnp_model *self, uint32_t *segment) {
  const struct np_step *steps = np_pipeline_steps(pipeline_of(self));
  uint64_t before = np_executable_now();
  for (*segment = 0; *segment < self->executable.chosen->n_segments; (*segment)++) {
    const struct np_step *step = &steps[*segment];
    const enum np_status status = step->run(step->ctx);
    if (status != NP_OK) {
      return status;
    }
    const uint64_t after = np_executable_now();
    self->times[*segment].last_ns = after - before;
    before = after;
  }
  return NP_OK;
}

/* What engines tell and free after a run, outside of all times. */
static void settle(struct nnp_model *self) {
  const struct np_step *steps = np_pipeline_steps(pipeline_of(self));
  for (uint32_t s = 0; s < self->executable.chosen->n_segments; s++) {
    struct segment_times *times = &self->times[s];
    times->durations = (struct np_durations){NP_NO_DURATION, NP_NO_DURATION};
    if (steps[s].settle) {
      steps[s].settle(steps[s].ctx, &times->durations);
    }
    if (times->first_ns == NNP_UNKNOWN_NS) {
      times->first_ns = times->last_ns;
      np_pipeline_describe(pipeline_of(self), s, &self->executable.facts[s].engine);
    }
  }
}

nnp_status nnp_model_run(nnp_model *self, const void *const *inputs, void *const *outputs,
                         nnp_error *error) {
  np_runtime_clear(error);
  if (!self) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "model is NULL");
  }
  const nnp_status refusal = np_executable_check(self->bundle, inputs, outputs, error);
  if (refusal != NNP_OK) {
    return refusal;
  }
  struct np_affinity affinity;
  const int cause = np_affinity_enter(self->cpu_mask, &affinity);
  if (cause != 0) {
    return np_runtime_fail(error, NNP_FAILED, -1, 0, "no CPU of the mask may be used: %s",
                           strerror(cause));
  }
  self->executable.contexts->fault = (struct np_fault){.has_code = 0};
  uint32_t segment;
  const uint64_t before = np_executable_now();
  np_executable_take(self->bundle, pipeline_of(self), inputs);
  np_executable_place(self->bundle, pipeline_of(self), outputs);
  const enum np_status status = run_steps(self, &segment);
  if (status == NP_OK) {
    np_executable_give(self->bundle, pipeline_of(self), outputs);
    self->last_ns = np_executable_now() - before;
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

/* ---- What became of it ---- */

uint32_t nnp_model_n_segments(const nnp_model *self) { return self->executable.chosen->n_segments; }

nnp_status nnp_model_segment(const nnp_model *self, uint32_t index, nnp_segment *segment) {
  if (!self || !segment || index >= self->executable.chosen->n_segments) {
    return NNP_BAD_ARGUMENT;
  }
  const struct segment_times *times = &self->times[index];
  *segment = np_executable_segment(&self->executable, index);
  segment->first_ns = times->first_ns;
  segment->last_ns = times->last_ns;
  segment->hardware_ns = times->durations.hardware_ns;
  segment->driver_ns = times->durations.driver_ns;
  return NNP_OK;
}

uint64_t nnp_model_first_ns(const nnp_model *self) { return self->first_ns; }

uint64_t nnp_model_last_ns(const nnp_model *self) { return self->last_ns; }
