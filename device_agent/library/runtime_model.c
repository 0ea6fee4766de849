/* The library's models: a plan of a bundle as a pipeline. */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "cpu.h"
#include "nnapi.h"
#include "pipeline.h"
#include "runtime.h"

struct segment_facts {
  struct np_engine_facts engine;
  int fell_back;
  struct np_message why; /* it did */
  uint64_t compile_ns;
  uint64_t first_ns;
  uint64_t last_ns;
  struct np_durations durations;
};

struct nnp_model {
  const struct np_bundle *bundle;
  const struct np_bundle_plan *chosen;
  nnp_options options;
  struct np_nnapi *nnapi; /* NULL where no segment needs it, or there is none */
  struct np_pipeline_plan plan;
  struct np_pipeline *pipeline;
  struct np_fault fault;
  struct segment_facts *facts; /* [n_segments] */
  uint64_t first_ns;
  uint64_t last_ns;
};

static uint64_t now_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

nnp_options nnp_options_default(void) {
  return (nnp_options){.flags = NNP_CPU_FALLBACK | NNP_AS_MEASURED};
}

static nnp_status no_memory(nnp_error *error) {
  return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the model");
}

/* What went wrong in a segment, in the engine's words. */
static nnp_status failed(const struct nnp_model *self, enum np_status status, int32_t segment,
                         nnp_error *error) {
  const struct np_fault *fault = &self->fault;
  /* Models are checked by the engines only: a bad one says nothing of the bundle's bytes. */
  const nnp_status told = status == NP_BAD_MODEL ? NNP_UNSUPPORTED : np_runtime_status(status);
  return np_runtime_fail(error, told, segment, fault->has_code ? fault->code : 0, "%s",
                         fault->why.text);
}

static nnp_status check_options(const nnp_bundle *bundle, const nnp_options *options,
                                nnp_error *error) {
  const uint32_t known =
      NNP_BURST | NNP_ASYNC | NNP_POINTERS | NNP_CPU_FALLBACK | NNP_DURATIONS | NNP_AS_MEASURED;
  if (options->plan >= bundle->bundle.n_plans) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "plan %u of %u", options->plan,
                           bundle->bundle.n_plans);
  }
  if ((options->flags & ~known) != 0 ||
      ((options->flags & NNP_BURST) != 0 && (options->flags & NNP_ASYNC) != 0)) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0,
                           "flags 0x%x: unknown ones, or burst and async together", options->flags);
  }
  return NNP_OK;
}

/* Opens NNAPI's library where the plan has a part for it. Without one, and with the fallback, each
 * such segment will say why. */
static nnp_status open_nnapi(struct nnp_model *self, nnp_error *error) {
  int needed = 0;
  for (uint32_t s = 0; s < self->chosen->n_segments; s++) {
    needed |= self->chosen->segments[s].engine == NP_BUNDLE_NNAPI;
  }
  if (!needed) {
    return NNP_OK;
  }
  const enum np_status status =
      np_nnapi_open(self->options.nnapi_library, &self->nnapi, &self->fault.why);
  if (status == NP_OK || (self->options.flags & NNP_CPU_FALLBACK) != 0) {
    return NNP_OK;
  }
  return failed(self, status, -1, error);
}

static void describe_segment(struct nnp_model *self, uint32_t s) {
  const struct np_bundle_segment *segment = &self->chosen->segments[s];
  struct np_pipeline_segment *described = &self->plan.segments[s];
  const uint32_t flags = self->options.flags;
  const int on_nnapi = segment->engine == NP_BUNDLE_NNAPI && self->nnapi != NULL;
  described->engine = on_nnapi ? np_nnapi_engine(self->nnapi) : np_cpu_engine(NULL);
  described->model = &self->bundle->models[segment->model];
  described->options =
      (struct np_options){.accelerator = segment->accelerator,
                          .preference = segment->preference,
                          .relaxed = (segment->flags & NP_BUNDLE_RELAXED) != 0,
                          .burst = (flags & NNP_BURST) != 0,
                          .async = (flags & NNP_ASYNC) != 0,
                          .pointers = (flags & NNP_POINTERS) != 0,
                          .measure_timing = (flags & NNP_DURATIONS) != 0,
                          .threads = self->options.threads ? self->options.threads : 1};
  memcpy(described->inputs, segment->inputs, segment->n_inputs * sizeof *segment->inputs);
  memcpy(described->outputs, segment->outputs, segment->n_outputs * sizeof *segment->outputs);
  if (segment->engine == NP_BUNDLE_NNAPI && !self->nnapi) {
    self->facts[s].fell_back = 1;
    self->facts[s].why = self->fault.why;
  }
}

static nnp_status make_pipeline(struct nnp_model *self, nnp_error *error) {
  const uint32_t n = self->chosen->n_segments;
  self->facts = calloc(n, sizeof *self->facts);
  if (!self->facts || np_pipeline_plan_make(self->bundle->n_tensors, n, &self->plan) != NP_OK) {
    return no_memory(error);
  }
  for (uint32_t t = 0; t < self->bundle->n_tensors; t++) {
    const struct np_bundle_tensor *tensor = &self->bundle->tensors[t];
    self->plan.tensors[t] = (struct np_pipeline_tensor){.type = tensor->type,
                                                        .rank = tensor->rank,
                                                        .dims = tensor->dims,
                                                        .n_bytes = tensor->n_bytes};
  }
  for (uint32_t s = 0; s < n; s++) {
    const struct np_bundle_segment *segment = &self->chosen->segments[s];
    if (np_pipeline_plan_bindings(&self->plan.segments[s], segment->n_inputs, segment->n_outputs) !=
        NP_OK) {
      return no_memory(error);
    }
    describe_segment(self, s);
  }
  self->fault.why.text[0] = 0;
  if (self->options.folder) {
    self->plan.folder_fd = open(self->options.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  const enum np_status status = np_pipeline_make(&self->plan, &self->fault, &self->pipeline);
  if (self->plan.folder_fd >= 0) {
    (void)close(self->plan.folder_fd);
  }
  self->plan.folder_fd = -1;
  return status == NP_OK ? NNP_OK : failed(self, status, -1, error);
}

static nnp_status compile_segment(struct nnp_model *self, uint32_t s, nnp_error *error) {
  struct segment_facts *facts = &self->facts[s];
  const uint64_t before = now_ns();
  enum np_status status = np_pipeline_compile(self->pipeline, s);
  const int may_fall_back = (self->options.flags & NNP_CPU_FALLBACK) != 0 && self->nnapi &&
                            self->chosen->segments[s].engine == NP_BUNDLE_NNAPI;
  if (status != NP_OK && may_fall_back) {
    facts->fell_back = 1;
    facts->why = self->fault.why;
    self->fault = (struct np_fault){.has_code = 0};
    np_pipeline_replace(self->pipeline, s, np_cpu_engine(NULL));
    status = np_pipeline_compile(self->pipeline, s);
  }
  facts->compile_ns = now_ns() - before;
  facts->first_ns = NNP_UNKNOWN_NS;
  facts->last_ns = NNP_UNKNOWN_NS;
  facts->durations = (struct np_durations){NP_NO_DURATION, NP_NO_DURATION};
  if (status != NP_OK) {
    return failed(self, status, (int32_t)s, error);
  }
  np_pipeline_describe(self->pipeline, s, &facts->engine);
  return NNP_OK;
}

static nnp_status compile(struct nnp_model *self, nnp_error *error) {
  struct np_affinity affinity;
  nnp_status status = open_nnapi(self, error);
  if (status == NNP_OK) {
    status = make_pipeline(self, error);
  }
  if (status != NNP_OK) {
    return status;
  }
  const int cause = np_affinity_enter(self->options.cpu_mask, &affinity);
  if (cause != 0) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "no CPU of mask 0x%llx may be used: %s",
                           (unsigned long long)self->options.cpu_mask, strerror(cause));
  }
  for (uint32_t s = 0; s < self->chosen->n_segments && status == NNP_OK; s++) {
    status = compile_segment(self, s, error);
  }
  np_affinity_leave(&affinity);
  return status;
}

nnp_status nnp_model_compile(const nnp_bundle *bundle, const nnp_options *options,
                             nnp_model **model, nnp_error *error) {
  np_runtime_clear(error);
  if (!bundle || !model) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "bundle or model is NULL");
  }
  *model = NULL;
  const nnp_options chosen = options ? *options : nnp_options_default();
  nnp_status status = check_options(bundle, &chosen, error);
  if (status != NNP_OK) {
    return status;
  }
  struct nnp_model *self = calloc(1, sizeof *self);
  if (!self) {
    return no_memory(error);
  }
  self->bundle = &bundle->bundle;
  self->chosen = &bundle->bundle.plans[chosen.plan];
  self->options = chosen;
  if ((chosen.flags & NNP_AS_MEASURED) != 0 && (chosen.flags & (NNP_BURST | NNP_ASYNC)) == 0) {
    self->options.flags |= bundle->bundle.mode == NP_BUNDLE_BURST   ? NNP_BURST
                           : bundle->bundle.mode == NP_BUNDLE_ASYNC ? NNP_ASYNC
                                                                    : 0u;
  }
  if (chosen.threads == 0) {
    self->options.threads = bundle->bundle.threads;
  }
  self->first_ns = NNP_UNKNOWN_NS;
  self->last_ns = NNP_UNKNOWN_NS;
  status = compile(self, error);
  /* Texts of the caller's, which need not live on. */
  self->options.nnapi_library = NULL;
  self->options.folder = NULL;
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
  np_pipeline_free(self->pipeline);
  np_pipeline_plan_free(&self->plan);
  np_nnapi_close(self->nnapi);
  free(self->facts);
  free(self);
}

/* ---- Running ---- */

static nnp_status check_buffers(uint32_t n, const struct np_bundle_end *ends,
                                const void *const *buffers, const char *what, nnp_error *error) {
  for (uint32_t i = 0; buffers && i < n; i++) {
    const size_t element_bytes = np_type_bytes(ends[i].known.type);
    if ((uintptr_t)buffers[i] % element_bytes != 0) {
      return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0,
                             "%s %u (%s) must stand at a multiple of %zu bytes", what, i,
                             ends[i].known.name, element_bytes);
    }
  }
  return NNP_OK;
}

/* Lets the run read the caller's inputs where they are, or copies them. */
static void take_inputs(struct nnp_model *self, const void *const *inputs) {
  for (uint32_t i = 0; i < self->bundle->n_inputs; i++) {
    const struct np_bundle_end *end = &self->bundle->inputs[i];
    const void *from = inputs ? inputs[i] : NULL;
    if (!np_pipeline_bind(self->pipeline, end->tensor, (void *)(uintptr_t)from)) {
      memcpy(np_pipeline_data(self->pipeline, end->tensor), from, end->known.n_bytes);
    }
  }
}

/* The same for outputs; those that are to be copied after the run are marked by being unbound. */
static void place_outputs(struct nnp_model *self, void *const *outputs) {
  for (uint32_t i = 0; i < self->bundle->n_outputs; i++) {
    (void)np_pipeline_bind(self->pipeline, self->bundle->outputs[i].tensor,
                           outputs ? outputs[i] : NULL);
  }
}

static void give_outputs(struct nnp_model *self, void *const *outputs) {
  for (uint32_t i = 0; outputs && i < self->bundle->n_outputs; i++) {
    const struct np_bundle_end *end = &self->bundle->outputs[i];
    if (outputs[i] && np_pipeline_is_shared(self->pipeline, end->tensor)) {
      memcpy(outputs[i], np_pipeline_data(self->pipeline, end->tensor), end->known.n_bytes);
    }
  }
}

static enum np_status run_steps(struct nnp_model *self, uint32_t *segment) {
  const struct np_step *steps = np_pipeline_steps(self->pipeline);
  uint64_t before = now_ns();
  for (*segment = 0; *segment < self->chosen->n_segments; (*segment)++) {
    const struct np_step *step = &steps[*segment];
    const enum np_status status = step->run(step->ctx);
    if (status != NP_OK) {
      return status;
    }
    const uint64_t after = now_ns();
    self->facts[*segment].last_ns = after - before;
    before = after;
  }
  return NP_OK;
}

/* What engines tell and free after a run, outside of all times. */
static void settle(struct nnp_model *self) {
  const struct np_step *steps = np_pipeline_steps(self->pipeline);
  for (uint32_t s = 0; s < self->chosen->n_segments; s++) {
    struct segment_facts *facts = &self->facts[s];
    facts->durations = (struct np_durations){NP_NO_DURATION, NP_NO_DURATION};
    if (steps[s].settle) {
      steps[s].settle(steps[s].ctx, &facts->durations);
    }
    if (facts->first_ns == NNP_UNKNOWN_NS) {
      facts->first_ns = facts->last_ns;
      np_pipeline_describe(self->pipeline, s, &facts->engine);
    }
  }
}

nnp_status nnp_model_run(nnp_model *self, const void *const *inputs, void *const *outputs,
                         nnp_error *error) {
  np_runtime_clear(error);
  if (!self) {
    return np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "model is NULL");
  }
  nnp_status told =
      check_buffers(self->bundle->n_inputs, self->bundle->inputs, inputs, "input", error);
  if (told == NNP_OK) {
    told = check_buffers(self->bundle->n_outputs, self->bundle->outputs,
                         (const void *const *)outputs, "output", error);
  }
  if (told != NNP_OK) {
    return told;
  }
  struct np_affinity affinity;
  const int cause = np_affinity_enter(self->options.cpu_mask, &affinity);
  if (cause != 0) {
    return np_runtime_fail(error, NNP_FAILED, -1, 0, "no CPU of the mask may be used: %s",
                           strerror(cause));
  }
  self->fault = (struct np_fault){.has_code = 0};
  uint32_t segment;
  const uint64_t before = now_ns();
  take_inputs(self, inputs);
  place_outputs(self, outputs);
  const enum np_status status = run_steps(self, &segment);
  if (status == NP_OK) {
    give_outputs(self, outputs);
    self->last_ns = now_ns() - before;
    if (self->first_ns == NNP_UNKNOWN_NS) {
      self->first_ns = self->last_ns;
    }
    settle(self);
  }
  np_affinity_leave(&affinity);
  return status == NP_OK ? NNP_OK : failed(self, status, (int32_t)segment, error);
}

void *nnp_model_input(nnp_model *self, uint32_t index) {
  if (index >= self->bundle->n_inputs) {
    return NULL;
  }
  return np_pipeline_data(self->pipeline, self->bundle->inputs[index].tensor);
}

const void *nnp_model_output(const nnp_model *self, uint32_t index) {
  if (index >= self->bundle->n_outputs) {
    return NULL;
  }
  return np_pipeline_data(self->pipeline, self->bundle->outputs[index].tensor);
}

/* ---- What became of it ---- */

uint32_t nnp_model_n_segments(const nnp_model *self) { return self->chosen->n_segments; }

nnp_status nnp_model_segment(const nnp_model *self, uint32_t index, nnp_segment *segment) {
  if (!self || !segment || index >= self->chosen->n_segments) {
    return NNP_BAD_ARGUMENT;
  }
  const struct np_bundle_segment *described = &self->chosen->segments[index];
  const struct segment_facts *facts = &self->facts[index];
  const int on_nnapi = described->engine == NP_BUNDLE_NNAPI && !facts->fell_back;
  *segment = (nnp_segment){.engine = on_nnapi ? "nnapi" : "cpu",
                           .accelerator = described->accelerator,
                           .preference = described->preference,
                           .fell_back = facts->fell_back,
                           .why = facts->why.text,
                           .shared_memory = facts->engine.shared,
                           .n_xnnpack = facts->engine.n_xnnpack,
                           .n_portable = facts->engine.n_portable,
                           .compile_ns = facts->compile_ns,
                           .first_ns = facts->first_ns,
                           .last_ns = facts->last_ns,
                           .hardware_ns = facts->durations.hardware_ns,
                           .driver_ns = facts->durations.driver_ns};
  return NNP_OK;
}

uint64_t nnp_model_first_ns(const nnp_model *self) { return self->first_ns; }

uint64_t nnp_model_last_ns(const nnp_model *self) { return self->last_ns; }
