#define _POSIX_C_SOURCE 200809L

#include "perform.h"

#include <stdlib.h>
#include <string.h>

#include "blobs.h"
#include "cpus.h"
#include "executable.h"
#include "frames.h"
#include "probe.h"
#include "rounds.h"
#include "simulator.h"
#include "sysinfo.h"
#include "tensors.h"
#include "written.h"

struct performance {
  const struct np_session *session;
  const struct np_action *action;
  const struct np_record_view *view;
  struct np_record *record;
  struct np_nnapi_library library; /* closed if no segment and no simulation needs it */
  struct np_simulator simulator;
  struct np_clock clock;
  uint64_t cpus; /* CPUs that the process may use, 0: unknown */
  struct np_executable executable;
  struct np_run run;
  void **inputs;  /* [n_inputs], the caller's buffers */
  void **outputs; /* [n_outputs], likewise */
  struct np_rounds rounds;
  struct np_written written;   /* without suspects if not checked */
  struct np_corun_lane *lanes; /* [n_segments] for segments side by side, else NULL */
  struct np_frames *frames;    /* for frames at once, which need no executable here, else NULL */
};

static const struct np_bundle *bundle_of(const struct performance *self) {
  return &self->action->bundle;
}

static struct np_pipeline *pipeline_of(const struct performance *self) {
  return self->executable.contexts ? self->executable.contexts->pipeline : NULL;
}

static int has_flag(const struct performance *self, enum np_action_flags flag) {
  return (self->action->flags & (uint32_t)flag) != 0;
}

static void enter(const struct performance *self, enum np_stage stage, uint32_t segment) {
  __atomic_store_n(&self->record->segment, segment, __ATOMIC_RELEASE);
  __atomic_store_n(&self->record->stage, (uint32_t)stage, __ATOMIC_RELEASE);
}

static enum np_status open_library(struct performance *self) {
  /* The library contains the simulated clock. */
  if (!np_uses_nnapi(self->action) && !self->session->simulated) {
    return NP_OK;
  }
  NP_TRY(np_nnapi_open(self->session->library, &self->library.nnapi, &self->record->fault.why));
  self->simulator = np_simulator_of(self->library.nnapi);
  self->clock = np_simulator_clock(&self->simulator);
  self->library.simulator = self->session->simulated ? &self->simulator : NULL;
  struct np_fault *fault = &self->record->fault;
  fault->is_changed =
      np_uses_nnapi(self->action) &&
      !np_probe_is_same(self->session->probe, self->library.nnapi, bundle_of(self), &fault->why);
  return fault->is_changed ? NP_RUN_FAILED : NP_OK;
}

/* Describes the action's plan as for an app with the bundle's own settings, but without fallback
 * and with the kind of memory that its drivers are known to accept. */
static enum np_status describe(struct performance *self) {
  const struct np_drivers *drivers = self->session->drivers;
  const nnp_options options = np_action_options(self->action);
  NP_TRY(np_executable_describe(bundle_of(self), 0, &options, &self->library, &self->executable));
  self->executable.plan.folder_fd = self->session->work_fd;
  self->executable.plan.memory = np_action_memory(drivers, self->action);
  for (uint32_t s = 0; s < bundle_of(self)->n_segments; s++) {
    const struct np_bundle_segment *segment = &bundle_of(self)->segments[s];
    if (segment->engine == NP_BUNDLE_NNAPI &&
        np_segment_memory(drivers, segment) == NP_SHM_POINTERS) {
      self->executable.plan.segments[s].options.pointers = 1;
    }
  }
  return NP_OK;
}

/* Makes the caller's buffers of inputs and outputs. */
static enum np_status make_buffers(struct performance *self) {
  const struct np_bundle *bundle = bundle_of(self);
  self->inputs = calloc(bundle->n_inputs + (size_t)1, sizeof *self->inputs);
  self->outputs = calloc(bundle->n_outputs + (size_t)1, sizeof *self->outputs);
  int is_whole = self->inputs && self->outputs;
  for (uint32_t i = 0; i < bundle->n_inputs && is_whole; i++) {
    self->inputs[i] = np_input_make(self->action, i, self->session->blobs, 0);
    is_whole = self->inputs[i] != NULL;
  }
  for (uint32_t i = 0; i < bundle->n_outputs && is_whole && has_flag(self, NP_ACTION_COPIES); i++) {
    self->outputs[i] = np_tensor_allocate(bundle->outputs[i].known.n_bytes);
    is_whole = self->outputs[i] != NULL;
  }
  return is_whole ? NP_OK : NP_NO_MEMORY;
}

static void take(void *ctx) {
  const struct performance *self = ctx;
  np_executable_take(bundle_of(self), pipeline_of(self), (const void *const *)self->inputs);
  np_executable_place(bundle_of(self), pipeline_of(self), self->outputs);
}

static void give(void *ctx) {
  const struct performance *self = ctx;
  np_executable_give(bundle_of(self), pipeline_of(self), self->outputs);
}

/* Returns the bytes of a tensor after a run. */
static const void *bytes_of(const struct performance *self, uint32_t tensor) {
  const struct np_bundle *bundle = bundle_of(self);
  const uint32_t input = np_end_of(bundle->inputs, bundle->n_inputs, tensor);
  const uint32_t output = np_end_of(bundle->outputs, bundle->n_outputs, tensor);
  if (input < bundle->n_inputs) {
    return self->inputs[input];
  }
  return output < bundle->n_outputs && self->outputs[output]
             ? self->outputs[output]
             : np_pipeline_data(pipeline_of(self), tensor);
}

/* Makes lanes for segments side by side; the CPU's threads run on the action's CPUs. */
static enum np_status make_lanes(struct performance *self) {
  const struct np_action *action = self->action;
  if (!has_flag(self, NP_ACTION_CORUN)) {
    return NP_OK;
  }
  self->lanes = calloc(bundle_of(self)->n_segments, sizeof *self->lanes);
  NP_REQUIRE(self->lanes, NP_NO_MEMORY, &self->record->fault.why, "no memory for the lanes");
  const struct np_lane_cpus cpus = np_lane_cpus(self->session, action, self->record, self->cpus);
  for (uint32_t s = 0; s < bundle_of(self)->n_segments; s++) {
    struct np_corun_lane *lane = &self->lanes[s];
    lane->step = &self->run.steps[s];
    lane->on_cpu = bundle_of(self)->segments[s].engine == NP_BUNDLE_CPU;
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
  NP_TRY(open_library(self));
  if (has_flag(self, NP_ACTION_FRAMES)) {
    return NP_OK;
  }
  NP_REQUIRE(describe(self) == NP_OK && make_buffers(self) == NP_OK, NP_NO_MEMORY,
             &self->record->fault.why, "no memory for the action");
  NP_TRY(np_executable_contexts(&self->executable, 1));
  self->run = (struct np_run){.n_steps = bundle_of(self)->n_segments,
                              .steps = np_pipeline_steps(pipeline_of(self)),
                              .take = has_flag(self, NP_ACTION_COPIES) ? take : NULL,
                              .give = has_flag(self, NP_ACTION_COPIES) ? give : NULL,
                              .ctx = self};
  take(self);
  return make_lanes(self);
}

/* Reads the simulated phone, whose state is in this process. */
static void read_phone(const struct performance *self, struct np_readings *readings) {
  if (self->session->simulated && np_simulator_phone(&self->simulator)) {
    *readings = np_simulator_readings(&self->simulator);
  }
}

static enum np_status compile_segment(struct performance *self, uint32_t s) {
  enter(self, NP_STAGE_COMPILE, s);
  if (self->lanes && self->lanes[s].cpu_mask != 0) {
    (void)np_set_affinity(self->lanes[s].cpu_mask); /* inherited by the engine's threads */
  }
  const uint64_t before = self->clock.now_ns(self->clock.ctx);
  const enum np_status status = np_pipeline_compile(pipeline_of(self), s);
  const uint64_t after = self->clock.now_ns(self->clock.ctx);
  NP_TRY(status);
  np_pipeline_describe(pipeline_of(self), s, &self->view->facts[s]);
  self->view->compile_ns[s] = 1 + (after - before);
  return NP_OK;
}

/* Called after runs: a driver may refuse shared memory only when it uses it. */
static void describe_segments(struct performance *self) {
  for (uint32_t s = 0; s < bundle_of(self)->n_segments; s++) {
    np_pipeline_describe(pipeline_of(self), s, &self->view->facts[s]);
  }
}

static enum np_status warm_up(struct performance *self) {
  enter(self, NP_STAGE_EXECUTE, 0);
  np_rounds_open(self->action, self->view, self->session->sysfs,
                 self->session->simulated ? &self->simulator : NULL, self->clock, &self->rounds);
  struct np_message *why = &self->record->fault.why;
  if (!np_written_matters(self->action)) {
    return np_rounds_warm_up(&self->rounds, &self->run);
  }
  NP_TRY(np_written_open(self->action, pipeline_of(self), self->inputs, self->outputs,
                         &self->written));
  NP_TRY(np_rounds_warm_up(&self->rounds, &self->run));
  return self->record->warmth.runs == 0 ? NP_OK
                                        : np_written_check(&self->written, &self->library, why);
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
  if (has_flag(self, NP_ACTION_FRAMES)) {
    status = status == NP_OK ? open_frames(self) : status;
    read_phone(self, &self->record->readings[1]);
    return status;
  }
  for (uint32_t s = 0; s < bundle_of(self)->n_segments && status == NP_OK; s++) {
    status = compile_segment(self, s);
  }
  NP_THEN(status, warm_up(self));
  if (status == NP_OK) {
    describe_segments(self);
  }
  read_phone(self, &self->record->readings[1]);
  return status;
}

/* Runs a round of segments side by side. */
static enum np_status run_corun(struct performance *self) {
  const struct np_action *action = self->action;
  const struct np_corun_samples samples = np_record_corun(self->view);
  struct np_record *record = self->record;
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    np_pipeline_tell(pipeline_of(self), s, &self->lanes[s].fault);
  }
  const enum np_status status =
      np_corun_round(self->lanes, action->bundle.n_segments, self->clock, &self->simulator,
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
        self->lanes ? run_corun(self) : np_frames_round(self->frames, self->clock, self->view);
    read_phone(self, &self->record->readings[1]);
    return status;
  }
  if (np_return_to_cpus(self->session, self->action, self->record, self->cpus)) {
    np_rounds_forget(&self->rounds);
  }
  read_phone(self, &self->record->readings[0]);
  const enum np_status status = np_rounds_run(&self->rounds, &self->run);
  read_phone(self, &self->record->readings[1]);
  return status;
}

static void free_all(void **buffers, uint32_t n) {
  for (uint32_t i = 0; buffers && i < n; i++) {
    free(buffers[i]);
  }
  free(buffers);
}

static void release(struct performance *self) {
  np_frames_close(self->frames);
  np_written_close(&self->written);
  np_executable_free(&self->executable);
  free_all(self->inputs, bundle_of(self)->n_inputs);
  free_all(self->outputs, bundle_of(self)->n_outputs);
  free(self->lanes);
  np_executable_close(&self->library);
}

/* Accounts for the time in which others used the simulated phone while this process waited. */
static void rest(const struct performance *self) {
  if (self->session->simulated && self->simulator.away) {
    self->simulator.away(self->record->away_ns);
  }
  self->record->away_ns = 0;
}

/* Returns a duration, or unknown if it exceeds the time of the run by more than a driver's clock
 * may be fast. */
static uint64_t plausible(uint64_t ns, uint64_t took_ns) {
  return ns / 9 > took_ns / 8 + 1 ? NP_NO_DURATION : ns;
}

/* Asks drivers for durations in runs that are not timed, since measuring may slow them down. A
 * failure here leaves no durations. */
static void ask_durations(const struct performance *self) {
  struct np_record *record = self->record;
  const uint32_t most = self->session->simulated ? 1 : NP_DURATION_RUNS;
  if (has_flag(self, NP_ACTION_UNTIMED) || self->lanes || !np_pipeline_ask(pipeline_of(self))) {
    return;
  }
  const uint64_t begin = self->clock.now_ns(self->clock.ctx);
  const uint64_t budget_ns = np_share(self->action, self->action->budget_ns);
  for (uint32_t run = 0; run < most; run++) {
    take((void *)(uintptr_t)self);
    for (uint32_t s = 0; s < self->run.n_steps; s++) {
      __atomic_store_n(&record->segment, s, __ATOMIC_RELEASE);
      const uint64_t before = self->clock.now_ns(self->clock.ctx);
      const enum np_status status = self->run.steps[s].run(self->run.steps[s].ctx);
      const uint64_t took = self->clock.now_ns(self->clock.ctx) - before;
      if (status != NP_OK) {
        record->n_durations = 0;
        self->executable.contexts->fault = (struct np_fault){.has_code = 0};
        return;
      }
      const struct np_durations durations = np_step_settle(&self->run.steps[s]);
      const size_t at = (size_t)s * NP_DURATION_RUNS + run;
      self->view->hardware_ns[at] = plausible(durations.hardware_ns, took);
      self->view->driver_ns[at] = plausible(durations.driver_ns, took);
    }
    record->n_durations = run + 1;
    if (self->clock.now_ns(self->clock.ctx) - begin >= budget_ns) {
      return;
    }
  }
}

/* Writes the kept tensors. */
static enum np_status keep(const struct performance *self) {
  const struct np_action *action = self->action;
  const void **bytes = calloc(action->n_kept + (size_t)1, sizeof *bytes);
  NP_REQUIRE(bytes, NP_NO_MEMORY, &self->record->fault.why, "no memory for the outputs");
  for (uint32_t i = 0; i < action->n_kept; i++) {
    bytes[i] = bytes_of(self, action->kept[i]);
  }
  const enum np_status status = np_kept_write(self->session->work_fd, action, bytes, self->view);
  free(bytes);
  return status;
}

/* Checks the outputs if there were no warm-up runs in which they were checked. */
static enum np_status look_at_outputs(struct performance *self) {
  struct np_message *why = &self->record->fault.why;
  if (!self->written.suspects || self->record->n_runs == 0) {
    return NP_OK;
  }
  return self->record->warmth.runs == 0 ? np_written_check(&self->written, &self->library, why)
                                        : np_written_again(&self->written, why);
}

/* Carries out one command; *last is whether it is the last one. */
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
  NP_TRY(look_at_outputs(self));
  ask_durations(self);
  return keep(self);
}

static void conclude(const struct performance *self, enum np_status status) {
  const struct np_context *context = self->executable.contexts;
  if (status != NP_OK && context && context->fault.why.text[0] != 0) {
    self->record->fault = context->fault;
  }
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
  if (np_simulator_phone(&self.simulator)) {
    self.record->now_ns = self.clock.now_ns(self.clock.ctx);
  }
  conclude(&self, status);
  np_link_reach(link);
  release(&self); /* later failures do not matter */
}
