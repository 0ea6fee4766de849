/* A plan of a bundle as a pipeline, compiled. */
#define _POSIX_C_SOURCE 200809L

#include "executable.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu.h"
#include "sysinfo.h"
#include "trial.h"

static nnp_status no_memory(nnp_error *error) {
  return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the model");
}

nnp_status np_executable_failed(const struct np_fault *fault, enum np_status status,
                                int32_t segment, nnp_error *error) {
  /* Only engines check models, so a bad model does not make the bundle's bytes bad. */
  const nnp_status ours = status == NP_BAD_MODEL ? NNP_UNSUPPORTED : np_runtime_status(status);
  return np_runtime_fail(error, ours, segment, fault->has_code ? fault->code : 0, "%s",
                         fault->why.text);
}

nnp_status np_executable_open(const struct np_bundle *bundle, uint32_t plan,
                              const nnp_options *options, struct np_nnapi_library *library,
                              nnp_error *error) {
  const struct np_bundle_plan *chosen = &bundle->plans[plan];
  int needed = 0;
  for (uint32_t s = 0; s < chosen->n_segments; s++) {
    needed |= chosen->segments[s].engine == NP_BUNDLE_NNAPI;
  }
  if (!needed || library->nnapi || library->why.text[0] != 0) {
    return NNP_OK;
  }
  struct np_trial_record *trial = &library->trial;
  struct np_trial_job job = {.bundle = bundle, .plan = plan, .options = options};
  if ((options->flags & NNP_TRIAL) != 0) {
    library->tried = plan;
    NP_TRY(np_trial_judge(&job, trial) == NP_OK ? NNP_OK : no_memory(error));
  }
  struct np_fault fault = trial->opening.fault;
  const enum np_status status =
      trial->opening.status == NP_OK
          ? np_nnapi_open(options->nnapi_library, &library->nnapi, &fault.why)
          : trial->opening.status;
  library->why = fault.why;
  library->cause = trial->opening.status == NP_OK ? NNP_NO_LIBRARY : trial->opening.cause;
  if (status == NP_OK && trial->is_recalled && !np_trial_fits(trial, library->nnapi)) {
    np_trial_record_free(trial);
    job.nnapi = library->nnapi;
    NP_TRY(np_trial_judge(&job, trial) == NP_OK ? NNP_OK : no_memory(error));
  }
  if (status == NP_OK || (options->flags & NNP_CPU_FALLBACK) != 0) {
    return NNP_OK;
  }
  return np_executable_failed(&fault, status, -1, error);
}

void np_executable_close(struct np_nnapi_library *library) {
  np_nnapi_close(library->nnapi);
  np_trial_record_free(&library->trial);
  *library = (struct np_nnapi_library){.nnapi = NULL};
}

/* ---- Compiling ---- */

static void describe_segment(struct np_executable *self, uint32_t s, const nnp_options *options) {
  const struct np_bundle_segment *segment = &self->chosen->segments[s];
  struct np_pipeline_segment *described = &self->plan.segments[s];
  described->engine = segment->engine == NP_BUNDLE_NNAPI ? np_fallback_engine(&self->fallback)
                                                         : np_cpu_engine(self->simulator);
  described->model = &self->bundle->models[segment->model];
  described->options = np_executable_segment_options(segment, options, s);
  described->n_inputs = segment->n_inputs;
  described->inputs = segment->inputs;
  described->n_outputs = segment->n_outputs;
  described->outputs = segment->outputs;
}

enum np_status np_executable_describe(const struct np_bundle *bundle, uint32_t plan,
                                      const nnp_options *options,
                                      const struct np_nnapi_library *library,
                                      struct np_executable *self) {
  const uint32_t n = bundle->plans[plan].n_segments;
  *self =
      (struct np_executable){.bundle = bundle,
                             .chosen = &bundle->plans[plan],
                             .simulator = library->simulator,
                             .facts = calloc(n, sizeof *self->facts),
                             .fallback = {.nnapi = library->nnapi,
                                          .missing_cause = library->cause,
                                          .missing = library->why,
                                          .is_allowed = (options->flags & NNP_CPU_FALLBACK) != 0,
                                          .compile_limit_ns = options->compile_limit_ns,
                                          .run_limit_ns = options->run_limit_ns,
                                          .log = options->log,
                                          .log_context = options->log_context,
                                          .plan = plan,
                                          .n_left = bundle->n_left}};
  self->plan = (struct np_pipeline_plan){
      .n_tensors = bundle->n_tensors,
      .tensors = calloc(bundle->n_tensors + (size_t)1, sizeof *self->plan.tensors),
      .n_segments = n,
      .segments = calloc(n, sizeof *self->plan.segments),
      .folder_fd = -1};
  if (!self->facts || !self->plan.tensors || !self->plan.segments) {
    return NP_NO_MEMORY;
  }
  for (uint32_t t = 0; t < bundle->n_tensors; t++) {
    const struct np_bundle_tensor *tensor = &bundle->tensors[t];
    self->plan.tensors[t] =
        (struct np_pipeline_tensor){tensor->rank, tensor->dims, tensor->n_bytes};
  }
  for (uint32_t s = 0; s < n; s++) {
    describe_segment(self, s, options);
  }
  return NP_OK;
}

enum np_status np_executable_contexts(struct np_executable *self, uint32_t n) {
  self->contexts = calloc(n, sizeof *self->contexts);
  if (!self->contexts) {
    return NP_NO_MEMORY;
  }
  for (self->n_contexts = 0; self->n_contexts < n;) {
    struct np_context *context = &self->contexts[self->n_contexts++];
    NP_TRY(np_pipeline_make(&self->plan, &context->fault, &context->pipeline));
  }
  return NP_OK;
}

static nnp_status make_contexts(struct np_executable *self, uint32_t n, const char *folder,
                                nnp_error *error) {
  if (folder) {
    self->plan.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  const enum np_status status = np_executable_contexts(self, n);
  if (self->plan.folder_fd >= 0) {
    (void)close(self->plan.folder_fd);
  }
  self->plan.folder_fd = -1;
  return status == NP_OK ? NNP_OK : no_memory(error);
}

/* Lets a segment borrow another plan's compiled segment, if one has the same model and options. */
static void borrow(struct np_executable *self, uint32_t s, const struct np_executable *others,
                   uint32_t n_others) {
  const struct np_bundle_segment *wanted = &self->chosen->segments[s];
  for (uint32_t i = 0; i < n_others; i++) {
    for (uint32_t o = 0; o < others[i].chosen->n_segments; o++) {
      const struct np_bundle_segment *offered = &others[i].chosen->segments[o];
      if (wanted->model == offered->model && wanted->engine == offered->engine &&
          wanted->accelerator == offered->accelerator && /* strings are stored once */
          wanted->preference == offered->preference && wanted->flags == offered->flags) {
        np_pipeline_borrow(self->contexts->pipeline, s, others[i].contexts->pipeline, o);
        self->facts[s] = others[i].facts[o];
        self->facts[s].compile_ns = 0;
        self->facts[s].is_borrowed = 1;
        return;
      }
    }
  }
}

/* Lets segments fall back that failed a trial, either when the library was opened or for this
 * plan. */
static nnp_status judge_segments(struct np_executable *self, uint32_t plan,
                                 const nnp_options *options, const struct np_nnapi_library *library,
                                 nnp_error *error) {
  const struct np_trial_job job = {self->bundle, plan, options, library->nnapi, self->facts};
  if (library->trial.verdicts && library->tried == plan) {
    self->fallback.verdicts = library->trial.verdicts;
  } else if (np_trial_judge(&job, &self->trial) == NP_OK) {
    self->fallback.verdicts = self->trial.verdicts;
  }
  return self->fallback.verdicts ? NNP_OK : no_memory(error);
}

static nnp_status compile_segment(struct np_executable *self, uint32_t s, nnp_error *error) {
  struct np_segment_facts *facts = &self->facts[s];
  struct np_pipeline *pipeline = self->contexts->pipeline;
  struct np_fault *fault = &self->contexts->fault;
  const uint64_t before = np_now_ns();
  const enum np_status status = np_pipeline_compile(pipeline, s);
  facts->compile_ns = np_now_ns() - before;
  if (status != NP_OK) {
    return np_executable_failed(fault, status, (int32_t)s, error);
  }
  np_pipeline_describe(pipeline, s, &facts->engine);
  return NNP_OK;
}

/* Compiles each segment in the first context, on the CPUs of the options' mask. */
static nnp_status compile(struct np_executable *self, uint32_t plan, const nnp_options *options,
                          const struct np_nnapi_library *library,
                          const struct np_executable *others, uint32_t n_others, nnp_error *error) {
  struct np_affinity affinity;
  const int cause = np_affinity_enter(options->cpu_mask, &affinity);
  NNP_REQUIRE(cause == 0, error, NNP_BAD_ARGUMENT, "no CPU of mask 0x%llx may be used: %s",
              (unsigned long long)options->cpu_mask, strerror(cause));
  nnp_status status = NNP_OK;
  for (uint32_t s = 0; s < self->chosen->n_segments; s++) {
    borrow(self, s, others, n_others);
  }
  if ((options->flags & NNP_TRIAL) != 0 && self->fallback.nnapi) {
    status = judge_segments(self, plan, options, library, error);
  }
  for (uint32_t s = 0; s < self->chosen->n_segments && status == NNP_OK; s++) {
    if (!self->facts[s].is_borrowed) {
      status = compile_segment(self, s, error);
    }
  }
  np_affinity_leave(&affinity);
  return status;
}

nnp_status np_executable_make(const struct np_bundle *bundle, uint32_t plan, uint32_t n_contexts,
                              const nnp_options *options, const struct np_nnapi_library *library,
                              const struct np_executable *others, uint32_t n_others,
                              struct np_executable *self, nnp_error *error) {
  nnp_status status = np_executable_describe(bundle, plan, options, library, self) == NP_OK
                          ? NNP_OK
                          : no_memory(error);
  NP_THEN(status, make_contexts(self, n_contexts, options->folder, error));
  NP_THEN(status, compile(self, plan, options, library, others, n_others, error));
  for (uint32_t i = 1; i < n_contexts && status == NNP_OK; i++) {
    for (uint32_t s = 0; s < self->chosen->n_segments; s++) {
      np_pipeline_borrow(self->contexts[i].pipeline, s, self->contexts->pipeline, s);
    }
  }
  return status;
}

void np_executable_free(struct np_executable *self) {
  /* The other contexts borrow the first one's segments. */
  for (uint32_t i = 0; i < self->n_contexts; i++) {
    np_pipeline_free(self->contexts[i].pipeline);
  }
  free(self->contexts);
  free(self->plan.tensors);
  free(self->plan.segments);
  free(self->facts);
  np_trial_record_free(&self->trial);
  *self = (struct np_executable){.bundle = NULL};
}

/* ---- Results ---- */

/* Returns the stand-in that runs a segment instead of NNAPI, NULL: none. */
static const struct np_stand_in *stand_in(const struct np_executable *self, uint32_t s) {
  const struct np_stand_in *stand_in = self->facts[s].engine.stand_in;
  const int is_cpu = stand_in && atomic_load_explicit(&stand_in->is_cpu, memory_order_acquire) != 0;
  return is_cpu ? stand_in : NULL;
}

int np_executable_on_nnapi(const struct np_executable *self, uint32_t s) {
  return self->chosen->segments[s].engine == NP_BUNDLE_NNAPI && !stand_in(self, s);
}

nnp_segment np_executable_segment(const struct np_executable *self, uint32_t s) {
  const struct np_bundle_segment *described = &self->chosen->segments[s];
  const struct np_segment_facts *facts = &self->facts[s];
  const struct np_stand_in *cpu = stand_in(self, s);
  const struct np_engine_facts *engine = cpu ? &cpu->engine : &facts->engine;
  return (nnp_segment){.engine = np_executable_on_nnapi(self, s) ? "nnapi" : "cpu",
                       .accelerator = described->accelerator,
                       .preference = described->preference,
                       .fell_back = cpu != NULL,
                       .cause = cpu ? cpu->cause : NNP_NO_CAUSE,
                       .why = cpu ? cpu->why.text : "",
                       .shared_memory = np_shm_is_shared(engine->memory),
                       .n_xnnpack = engine->n_xnnpack,
                       .n_portable = engine->n_portable,
                       .compile_ns = facts->compile_ns,
                       .first_ns = NNP_UNKNOWN_NS,
                       .last_ns = NNP_UNKNOWN_NS,
                       .hardware_ns = NNP_UNKNOWN_NS,
                       .driver_ns = NNP_UNKNOWN_NS};
}
