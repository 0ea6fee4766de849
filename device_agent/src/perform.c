#define _POSIX_C_SOURCE 200809L

#include "perform.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "cpus.h"
#include "frames.h"
#include "kept.h"
#include "nnapi.h"
#include "pipeline.h"
#include "rounds.h"
#include "simulator.h"
#include "sysinfo.h"
#include "tensors.h"

struct performance {
  const struct np_session *session;
  const struct np_action *action;
  const struct np_record_view *view;
  struct np_record *record;
  struct np_nnapi *nnapi; /* NULL where no segment and no simulation needs it */
  struct np_simulator simulator;
  struct np_clock clock;
  uint64_t cpus;       /* that the process may use, 0 unknown */
  char **accelerators; /* [n_segments], names as C strings, NULL where none is named */
  struct np_pipeline_plan plan;
  struct np_pipeline *pipeline;
  struct np_rounds rounds;
  struct np_beside_lane *lanes; /* [n_segments] of segments side by side, else NULL */
  struct np_frames *frames;     /* of frames at once, which need no pipeline of ours, else NULL */
};

static void enter(const struct performance *self, enum np_stage stage, uint32_t segment) {
  __atomic_store_n(&self->record->segment, segment, __ATOMIC_RELEASE);
  __atomic_store_n(&self->record->stage, (uint32_t)stage, __ATOMIC_RELEASE);
}

static enum np_status no_memory(const struct performance *self, const char *what) {
  np_message_set(&self->record->fault.why, "no memory for %s", what);
  return NP_NO_MEMORY;
}

static int needs_nnapi(const struct performance *self) {
  for (uint32_t s = 0; s < self->action->n_segments; s++) {
    if (self->action->segments[s].engine == NP_ENGINE_NNAPI) {
      return 1;
    }
  }
  return self->session->simulated; /* the simulated clock lives in the library */
}

static enum np_status open_library(struct performance *self) {
  if (!needs_nnapi(self)) {
    return NP_OK;
  }
  const enum np_status status =
      np_nnapi_open(self->session->library, &self->nnapi, &self->record->fault.why);
  if (status != NP_OK) {
    return status;
  }
  self->simulator = np_simulator_of(self->nnapi);
  self->clock = np_simulator_clock(&self->simulator);
  return NP_OK;
}

/* The name of a segment's accelerator as a C string. */
static enum np_status name_accelerator(struct performance *self, uint32_t s) {
  const uint32_t index = self->action->segments[s].accelerator;
  if (index == NP_NONE) {
    return NP_OK;
  }
  const struct np_text text = self->session->request->strings[index];
  self->accelerators[s] = calloc((size_t)text.length + 1, 1);
  if (!self->accelerators[s]) {
    return no_memory(self, "a name");
  }
  memcpy(self->accelerators[s], text.bytes, text.length);
  return NP_OK;
}

static void describe_tensors(struct performance *self) {
  for (uint32_t t = 0; t < self->action->n_tensors; t++) {
    const struct np_tensor *tensor = &self->action->tensors[t];
    self->plan.tensors[t] = (struct np_pipeline_tensor){
        .type = tensor->type,
        .rank = tensor->rank,
        .dims = tensor->dims,
        .n_bytes = tensor->n_bytes,
        .bytes = tensor->source == NP_FROM_BLOB ? self->session->blobs[tensor->value].data : NULL};
  }
}

static enum np_status describe_segment(struct performance *self, uint32_t s) {
  const struct np_action *action = self->action;
  const struct np_segment *segment = &action->segments[s];
  struct np_pipeline_segment *described = &self->plan.segments[s];
  if (name_accelerator(self, s) != NP_OK ||
      np_pipeline_plan_bindings(described, segment->n_inputs, segment->n_outputs) != NP_OK) {
    return no_memory(self, "the action");
  }
  described->engine = segment->engine == NP_ENGINE_NNAPI
                          ? np_nnapi_engine(self->nnapi)
                          : np_cpu_engine(self->session->simulated ? &self->simulator : NULL);
  described->model = &self->session->request->models[segment->model].model;
  described->options = (struct np_options){
      .accelerator = self->accelerators[s],
      .preference = segment->preference,
      .relaxed = (segment->flags & NP_SEGMENT_RELAXED) != 0,
      .burst = (action->flags & NP_ACTION_BURST) != 0,
      .async = (action->flags & NP_ACTION_ASYNC) != 0,
      .pointers = (action->flags & NP_ACTION_POINTERS) != 0 ||
                  (segment->engine == NP_ENGINE_NNAPI &&
                   np_segment_memory(self->session->drivers, segment) == NP_SHM_POINTERS),
      .measure_timing = (action->flags & NP_ACTION_UNTIMED) == 0,
      .threads = action->threads,
  };
  for (uint32_t i = 0; i < segment->n_inputs; i++) {
    described->inputs[i] = segment->inputs[i];
  }
  for (uint32_t i = 0; i < segment->n_outputs; i++) {
    described->outputs[i] = segment->outputs[i];
  }
  return NP_OK;
}

static int runs_frames(const struct performance *self) {
  return (self->action->flags & NP_ACTION_FRAMES) != 0;
}

/* Segments side by side: the CPU's threads keep to the action's CPUs. */
static enum np_status make_lanes(struct performance *self) {
  const struct np_action *action = self->action;
  if ((action->flags & NP_ACTION_BESIDE) == 0) {
    return NP_OK;
  }
  self->lanes = calloc(action->n_segments, sizeof *self->lanes);
  if (!self->lanes) {
    return no_memory(self, "the lanes");
  }
  const struct np_lane_cpus cpus = np_lane_cpus(self->session, action, self->record, self->cpus);
  for (uint32_t s = 0; s < action->n_segments; s++) {
    struct np_beside_lane *lane = &self->lanes[s];
    lane->step = &np_pipeline_steps(self->pipeline)[s];
    lane->on_cpu = action->segments[s].engine == NP_ENGINE_CPU;
    lane->threads = action->threads;
    lane->cpu_mask = lane->on_cpu ? cpus.cpu_mask : cpus.nnapi_mask;
  }
  return NP_OK;
}

static enum np_status set_up(struct performance *self) {
  const struct np_action *action = self->action;
  enter(self, NP_STAGE_SETUP, 0);
  self->cpus = np_affinity();
  if (np_keep_to_cpus(self->session, action, self->record, self->cpus) != NP_OK) {
    return NP_BAD_ARGUMENT;
  }
  enum np_status status = open_library(self);
  if (status != NP_OK || runs_frames(self)) {
    return status;
  }
  self->accelerators = calloc(action->n_segments, sizeof *self->accelerators);
  if (!self->accelerators ||
      np_pipeline_plan_make(action->n_tensors, action->n_segments, &self->plan) != NP_OK) {
    return no_memory(self, "the action");
  }
  self->plan.folder_fd = self->session->work_fd;
  self->plan.memory = np_action_memory(self->session->drivers, action);
  describe_tensors(self);
  for (uint32_t s = 0; s < action->n_segments && status == NP_OK; s++) {
    status = describe_segment(self, s);
  }
  if (status == NP_OK) {
    status = np_pipeline_make(&self->plan, &self->record->fault, &self->pipeline);
  }
  if (status == NP_OK) {
    np_tensors_fill(action, self->pipeline);
    status = make_lanes(self);
  }
  return status;
}

/* What the simulated phone, whose state lives in this process, tells now. */
static void read_phone(const struct performance *self, struct np_readings *readings) {
  if (self->session->simulated && np_simulator_phone(&self->simulator)) {
    *readings = np_simulator_readings(&self->simulator);
  }
}

static enum np_status compile_segment(struct performance *self, uint32_t s) {
  enter(self, NP_STAGE_COMPILE, s);
  if (self->lanes && self->lanes[s].cpu_mask != 0) {
    (void)np_set_affinity(self->lanes[s].cpu_mask); /* which the engine's own threads inherit */
  }
  const uint64_t before = self->clock.now_ns(self->clock.ctx);
  const enum np_status status = np_pipeline_compile(self->pipeline, s);
  const uint64_t after = self->clock.now_ns(self->clock.ctx);
  if (status != NP_OK) {
    return status;
  }
  np_pipeline_describe(self->pipeline, s, &self->view->facts[s]);
  self->view->compile_ns[s] = 1 + (after - before);
  return NP_OK;
}

/* A driver may have refused shared memory when it was to use it. */
static void describe_segments(struct performance *self) {
  for (uint32_t s = 0; s < self->action->n_segments; s++) {
    np_pipeline_describe(self->pipeline, s, &self->view->facts[s]);
  }
}

static enum np_status warm_up(struct performance *self) {
  enter(self, NP_STAGE_EXECUTE, 0);
  np_rounds_open(self->action, self->view, self->session->sysfs,
                 self->session->simulated ? &self->simulator : NULL, self->clock, &self->rounds);
  return np_rounds_warm_up(&self->rounds, np_pipeline_steps(self->pipeline));
}

static enum np_status open_frames(struct performance *self) {
  struct np_simulator *simulator = self->session->simulated ? &self->simulator : NULL;
  return np_frames_open(self->session, self->action, simulator,
                        np_lane_cpus(self->session, self->action, self->record, self->cpus),
                        self->view, &self->frames);
}

static enum np_status prepare(struct performance *self) {
  enum np_status status = set_up(self);
  read_phone(self, &self->record->first_reading);
  if (runs_frames(self)) {
    status = status == NP_OK ? open_frames(self) : status;
    read_phone(self, &self->record->readings[1]);
    return status;
  }
  for (uint32_t s = 0; s < self->action->n_segments && status == NP_OK; s++) {
    status = compile_segment(self, s);
  }
  if (status == NP_OK) {
    status = warm_up(self);
  }
  if (status == NP_OK) {
    describe_segments(self);
  }
  read_phone(self, &self->record->readings[1]);
  return status;
}

/* A round of segments side by side. */
static enum np_status run_beside(struct performance *self) {
  const struct np_action *action = self->action;
  const struct np_beside_samples samples = np_record_beside(self->view);
  struct np_record *record = self->record;
  for (uint32_t s = 0; s < action->n_segments; s++) {
    np_pipeline_tell(self->pipeline, s, &self->lanes[s].fault);
  }
  const enum np_status status =
      np_beside_round(self->lanes, action->n_segments, self->clock, &self->simulator,
                      self->rounds.watched ? action->spin_ns : 0,
                      (uint32_t)np_share(action, action->max_runs), &samples);
  if (status != NP_OK) {
    record->fault = self->lanes[record->segment].fault;
  }
  return status;
}

static enum np_status run_round(struct performance *self) {
  if (self->lanes || self->frames) {
    read_phone(self, &self->record->readings[0]);
    const enum np_status status =
        self->lanes ? run_beside(self) : np_frames_round(self->frames, self->clock, self->view);
    read_phone(self, &self->record->readings[1]);
    return status;
  }
  if (np_return_to_cpus(self->session, self->action, self->record, self->cpus)) {
    np_rounds_forget(&self->rounds);
  }
  read_phone(self, &self->record->readings[0]);
  const enum np_status status = np_rounds_run(&self->rounds, np_pipeline_steps(self->pipeline));
  read_phone(self, &self->record->readings[1]);
  return status;
}

static void release(struct performance *self) {
  np_frames_close(self->frames);
  np_pipeline_free(self->pipeline);
  np_pipeline_plan_free(&self->plan);
  for (uint32_t s = 0; self->accelerators && s < self->action->n_segments; s++) {
    free(self->accelerators[s]);
  }
  free(self->accelerators);
  free(self->lanes);
  np_nnapi_close(self->nnapi);
}

/* While a process of a simulated phone waited, others had the phone. */
static void rest(const struct performance *self) {
  if (self->session->simulated && self->simulator.away) {
    self->simulator.away(self->record->away_ns);
  }
  self->record->away_ns = 0;
}

/* Carries out one command; *last tells whether it is the last one. */
static enum np_status handle_command(struct performance *self, int *last) {
  struct np_record *record = self->record;
  switch ((enum np_command)record->command) {
  case NP_COMMAND_ROUND:
    return run_round(self);
  case NP_COMMAND_COOL:
    record->cool_ns = np_simulator_cool(&self->simulator, record->cool_ns);
    read_phone(self, &record->readings[1]);
    return NP_OK;
  case NP_COMMAND_FINISH:
    break;
  }
  *last = 1;
  if (self->frames) {
    return NP_OK;
  }
  describe_segments(self);
  return np_kept_write(self->session->work_fd, self->action, self->pipeline, self->view);
}

static void conclude(const struct performance *self, enum np_status status) {
  if (status != NP_OK && self->record->fault.why.text[0] == 0) {
    np_message_set(&self->record->fault.why, "%s", np_status_text(status));
  }
  self->record->verdict = status == NP_OK            ? NP_VERDICT_OK
                          : status == NP_UNSUPPORTED ? NP_REFUSED
                                                     : NP_FAILED;
  __atomic_store_n(&self->record->done, 1u, __ATOMIC_RELEASE);
}

void np_perform(const struct np_session *session, const struct np_action *action,
                const struct np_record_view *view, struct np_link *link) {
  struct performance self = {.session = session,
                             .action = action,
                             .view = view,
                             .record = view->record,
                             .clock = np_monotonic_clock()};
  enum np_status status = prepare(&self);
  int last = 0;
  while (status == NP_OK && !last) {
    self.record->now_ns = self.clock.now_ns(self.clock.ctx);
    np_link_reach(link);
    np_link_await(link);
    rest(&self);
    status = handle_command(&self, &last);
  }
  conclude(&self, status);
  np_link_reach(link);
  release(&self); /* what goes wrong from here on changes nothing */
}
