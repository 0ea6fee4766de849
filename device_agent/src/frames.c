#define _POSIX_C_SOURCE 200809L

#include "frames.h"

#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "tensors.h"

struct np_frames {
  const struct np_action *action;
  void **inputs;        /* [variants][n_inputs], one after the other */
  uint8_t **references; /* [n_plans][variants][n_outputs] */
  nnp_queue_options options;
  struct np_simulator *simulator;
  nnp_queue *queue;
  uint64_t n_submitted;
};

static const struct np_bundle *bundle_of(const struct np_frames *self) {
  return &self->action->bundle;
}

/* ---- Inputs and references ---- */

static int make_buffers(struct np_frames *self, const struct np_session *session) {
  const struct np_bundle *bundle = bundle_of(self);
  const uint32_t variants = self->action->variants;
  const size_t n_inputs = (size_t)variants * bundle->n_inputs;
  const size_t n_references = (size_t)bundle->n_plans * variants * bundle->n_outputs;
  self->inputs = calloc(n_inputs + 1, sizeof *self->inputs);
  self->references = calloc(n_references + 1, sizeof *self->references);
  int is_whole = self->inputs && self->references;
  for (size_t i = 0; i < n_inputs && is_whole; i++) {
    self->inputs[i] = np_input_make(self->action, (uint32_t)(i % bundle->n_inputs), session->blobs,
                                    (uint32_t)(i / bundle->n_inputs));
    is_whole = self->inputs[i] != NULL;
  }
  for (size_t i = 0; i < n_references && is_whole; i++) {
    self->references[i] = malloc(bundle->outputs[i % bundle->n_outputs].known.n_bytes);
    is_whole = self->references[i] != NULL;
  }
  return is_whole;
}

static uint8_t **references_of(const struct np_frames *self, uint32_t plan, uint64_t number) {
  const size_t variants = self->action->variants;
  return self->references + (plan * variants + number % variants) * bundle_of(self)->n_outputs;
}

/* ---- Frames ---- */

static nnp_status submit(const struct np_frames *self, nnp_queue *queue, uint64_t number,
                         nnp_error *error) {
  const size_t first = (size_t)(number % self->action->variants) * bundle_of(self)->n_inputs;
  return nnp_queue_submit(queue, (const void *const *)self->inputs + first, NULL, 0, error);
}

/* Returns the index of a plan's first segment among all segments. */
static uint32_t first_of(const struct np_frames *self, uint32_t plan) {
  const struct np_bundle *bundle = bundle_of(self);
  return (uint32_t)(bundle->plans[plan].segments - bundle->segments);
}

/* Writes the library's error, which numbers segments within a plan, to the record. */
static enum np_status failed(const struct np_frames *self, uint32_t plan, const nnp_error *error,
                             struct np_record *record) {
  record->fault.has_code = error->nnapi_code != 0;
  record->fault.code = error->nnapi_code;
  np_message_set(&record->fault.why, "%s", error->message);
  if (error->segment >= 0) {
    record->segment = first_of(self, plan) + (uint32_t)error->segment;
  }
  return error->status == NNP_UNSUPPORTED ? NP_UNSUPPORTED
         : error->status == NNP_NO_MEMORY ? NP_NO_MEMORY
                                          : NP_RUN_FAILED;
}

/* Runs a plan for each variant of the inputs, one frame after the other. */
static enum np_status refer(struct np_frames *self, nnp_queue *queue, uint32_t plan,
                            struct np_record *record) {
  const struct np_bundle *bundle = bundle_of(self);
  __atomic_store_n(&record->stage, (uint32_t)NP_STAGE_EXECUTE, __ATOMIC_RELEASE);
  for (uint32_t v = 0; v < self->action->variants; v++) {
    nnp_error error;
    nnp_status status = submit(self, queue, v, &error);
    NP_THEN(status, nnp_queue_wait(queue, NNP_FOREVER, NULL, &error));
    if (status != NNP_OK) {
      return failed(self, plan, &error, record);
    }
    for (uint32_t i = 0; i < bundle->n_outputs; i++) {
      memcpy(references_of(self, plan, v)[i], nnp_queue_output(queue, i),
             bundle->outputs[i].known.n_bytes);
    }
  }
  return NP_OK;
}

/* Opens a queue of one plan, or of all plans. */
static enum np_status open_queue(struct np_frames *self, uint32_t plan, uint32_t in_flight,
                                 struct np_record *record, nnp_queue **queue) {
  nnp_queue_options options = self->options;
  nnp_error error;
  options.model.plan = plan;
  options.frames = in_flight;
  __atomic_store_n(&record->stage, (uint32_t)NP_STAGE_COMPILE, __ATOMIC_RELEASE);
  const nnp_status status =
      np_queue_make(bundle_of(self), &options, self->simulator, queue, &error);
  return status == NNP_OK ? NP_OK : failed(self, plan == NNP_MIXTURE ? 0 : plan, &error, record);
}

static enum np_status open_all(struct np_frames *self, struct np_record *record) {
  enum np_status status = NP_OK;
  /* For a single plan the frames' own queue makes the references, too. */
  for (uint32_t p = 0; p < bundle_of(self)->n_plans && bundle_of(self)->n_plans > 1; p++) {
    nnp_queue *serial = NULL;
    status = open_queue(self, p, 1, record, &serial);
    NP_THEN(status, refer(self, serial, p, record));
    nnp_queue_close(serial);
    NP_TRY(status);
  }
  status = open_queue(self, NNP_MIXTURE, self->action->in_flight, record, &self->queue);
  if (status == NP_OK && bundle_of(self)->n_plans == 1) {
    status = refer(self, self->queue, 0, record);
  }
  record->stage = NP_STAGE_EXECUTE;
  return status;
}

enum np_status np_frames_open(const struct np_session *session, const struct np_action *action,
                              struct np_simulator *simulator, struct np_lane_cpus cpus,
                              const struct np_record_view *view, struct np_frames **frames) {
  struct np_frames *self = calloc(1, sizeof *self);
  *frames = self;
  NP_REQUIRE(self, NP_NO_MEMORY, &view->record->fault.why, "no memory for the frames");
  self->action = action;
  self->simulator = simulator;
  self->options =
      (nnp_queue_options){.model = np_action_options(action), .nnapi_mask = cpus.nnapi_mask};
  self->options.model.cpu_mask = cpus.cpu_mask;
  self->options.model.nnapi_library = session->library;
  NP_REQUIRE(make_buffers(self, session), NP_NO_MEMORY, &view->record->fault.why,
             "no memory for the frames");
  return open_all(self, view->record);
}

/* ---- Rounds ---- */

static int is_same(const struct np_frames *self, uint32_t plan, uint64_t number) {
  uint8_t **references = references_of(self, plan, number);
  for (uint32_t i = 0; i < bundle_of(self)->n_outputs; i++) {
    if (memcmp(references[i], nnp_queue_output(self->queue, i),
               bundle_of(self)->outputs[i].known.n_bytes) != 0) {
      return 0;
    }
  }
  return 1;
}

/* Waits for the oldest frame and records it. */
static void receive(struct np_frames *self, uint64_t number, const struct np_record_view *view) {
  struct np_record *record = view->record;
  const uint32_t at = record->n_runs;
  nnp_frame handed;
  nnp_error error;
  const nnp_status status = nnp_queue_wait(self->queue, NNP_FOREVER, &handed, &error);
  const struct np_queue_frame *frame = self->queue->last;
  const struct np_bundle_plan *plan = &bundle_of(self)->plans[handed.plan];
  const size_t first = first_of(self, handed.plan);
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const nnp_span *span = &frame->context->spans[s];
    if (span->begin_ns != NNP_UNKNOWN_NS) {
      view->spans[(first + s) * view->room + at] =
          (struct np_frame_span){span->begin_ns, span->end_ns};
    }
  }
  enum np_frame_outcome outcome = NP_FRAME_FAILED;
  if (status == NNP_OK) {
    outcome = is_same(self, handed.plan, number) ? NP_FRAME_SAME : NP_FRAME_DIFFERS;
  } else if (record->frame_failure.text[0] == 0) {
    np_message_set(&record->frame_failure, "%s", error.message);
  }
  view->frames[at] = (struct np_frame_record){.plan = handed.plan,
                                              .outcome = (uint32_t)outcome,
                                              .begin_ns = frame->submitted_ns,
                                              .end_ns = frame->ended_ns};
  __atomic_store_n(&record->n_runs, at + 1, __ATOMIC_RELEASE);
}

enum np_status np_frames_round(struct np_frames *self, struct np_clock clock,
                               const struct np_record_view *view) {
  const struct np_action *action = self->action;
  const uint64_t least = np_share(action, action->min_runs);
  const uint64_t most = np_share(action, action->max_runs);
  const uint64_t budget_ns = np_share(action, action->budget_ns);
  const uint64_t before = self->n_submitted, began_ns = clock.now_ns(clock.ctx);
  uint64_t received = before;
  if (view->room - view->record->n_runs < most) {
    return NP_BAD_ARGUMENT;
  }
  for (;;) {
    const uint64_t n = self->n_submitted - before;
    const int goes_on = n < least || (n < most && clock.now_ns(clock.ctx) - began_ns < budget_ns);
    nnp_error error;
    const nnp_status status =
        goes_on ? submit(self, self->queue, self->n_submitted, &error) : NNP_BUSY;
    if (status == NNP_OK) {
      self->n_submitted++;
    } else if (status != NNP_BUSY) {
      return failed(self, 0, &error, view->record);
    } else if (received == self->n_submitted) {
      return NP_OK;
    } else {
      receive(self, received++, view);
    }
  }
}

void np_frames_close(struct np_frames *self) {
  if (!self) {
    return;
  }
  nnp_queue_close(self->queue);
  const struct np_bundle *bundle = bundle_of(self);
  const size_t variants = self->action->variants;
  for (size_t i = 0; self->inputs && i < variants * bundle->n_inputs; i++) {
    free(self->inputs[i]);
  }
  for (size_t i = 0; self->references && i < bundle->n_plans * variants * bundle->n_outputs; i++) {
    free(self->references[i]);
  }
  free(self->inputs);
  free(self->references);
  free(self);
}
