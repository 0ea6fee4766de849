#define _POSIX_C_SOURCE 200809L

#include "frames.h"

#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "tensors.h"

/* The bundle is the action's, said in the library's words: nothing of it is copied but names. */
struct np_frames {
  const struct np_action *action;
  struct np_bundle bundle; /* strings are the names of accelerators, NULL where none is meant */
  uint8_t **inputs;        /* [variants][n_inputs], one after the other */
  const void **submission; /* [n_inputs] */
  uint8_t **references;    /* [n_plans][variants][n_outputs] */
  nnp_queue_options options;
  struct np_simulator *simulator;
  nnp_queue *queue;
  uint64_t n_submitted;
};

static enum np_status no_memory(struct np_record *record) {
  np_message_set(&record->fault.why, "no memory for the frames");
  return NP_NO_MEMORY;
}

/* ---- The action as a bundle ---- */

static const char *name_accelerator(struct np_frames *self, const struct np_session *session,
                                    uint32_t index) {
  char **name = &self->bundle.strings[index];
  if (!*name) {
    const struct np_text text = session->request->strings[index];
    *name = calloc((size_t)text.length + 1, 1);
    if (*name) {
      memcpy(*name, text.bytes, text.length);
    }
  }
  return *name;
}

static int describe_segments(struct np_frames *self, const struct np_session *session) {
  const struct np_action *action = self->action;
  struct np_bundle *bundle = &self->bundle;
  struct np_bundle_segment *segments = calloc(action->n_segments, sizeof *segments);
  bundle->plans = calloc(action->n_plans, sizeof *bundle->plans);
  bundle->shares = calloc(action->n_plans, sizeof *bundle->shares);
  if (!segments || !bundle->plans || !bundle->shares) {
    free(segments);
    return 0;
  }
  bundle->plans[0].segments = segments; /* all of them */
  bundle->n_plans = bundle->n_shares = action->n_plans;
  for (uint32_t s = 0; s < action->n_segments; s++) {
    const struct np_segment *from = &action->segments[s];
    const int is_named = from->accelerator != NP_NONE;
    segments[s] = (struct np_bundle_segment){
        .engine = from->engine == NP_ENGINE_NNAPI ? NP_BUNDLE_NNAPI : NP_BUNDLE_CPU,
        .accelerator = is_named ? name_accelerator(self, session, from->accelerator) : NULL,
        .preference = from->preference,
        .flags = (from->flags & NP_SEGMENT_RELAXED) != 0 ? NP_BUNDLE_RELAXED : 0,
        .model = from->model,
        .n_inputs = from->n_inputs,
        .inputs = from->inputs,
        .n_outputs = from->n_outputs,
        .outputs = from->outputs};
    if (is_named && !segments[s].accelerator) {
      return 0;
    }
  }
  for (uint32_t p = 0; p < action->n_plans; p++) {
    bundle->plans[p] = (struct np_bundle_plan){.name = "",
                                               .n_segments = action->plans[p].n_segments,
                                               .segments = segments,
                                               .overlaps = action->plans[p].overlaps};
    bundle->shares[p] = (struct np_bundle_share){p, action->plans[p].share};
    segments += action->plans[p].n_segments;
  }
  return 1;
}

static int describe_tensors(struct np_frames *self) {
  const struct np_action *action = self->action;
  struct np_bundle *bundle = &self->bundle;
  const size_t n = action->n_tensors + (size_t)1;
  bundle->tensors = calloc(n, sizeof *bundle->tensors);
  bundle->inputs = calloc(n, sizeof *bundle->inputs);
  bundle->outputs = calloc(n, sizeof *bundle->outputs);
  if (!bundle->tensors || !bundle->inputs || !bundle->outputs) {
    return 0;
  }
  bundle->n_tensors = action->n_tensors;
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    const struct np_tensor *from = &action->tensors[t];
    bundle->tensors[t] = (struct np_bundle_tensor){
        .type = from->type, .rank = from->rank, .dims = from->dims, .n_bytes = from->n_bytes};
    const struct np_bundle_end end = {
        .known = {.name = "", .type = from->type, .n_bytes = from->n_bytes}, .tensor = t};
    if (from->source != NP_FROM_SEGMENT) {
      bundle->inputs[bundle->n_inputs++] = end;
    } else if (from->keep) {
      bundle->outputs[bundle->n_outputs++] = end;
    }
  }
  return 1;
}

static int describe_models(struct np_frames *self, const struct np_session *session) {
  const struct np_request *request = session->request;
  self->bundle.models = calloc(request->n_models + (size_t)1, sizeof *self->bundle.models);
  for (uint32_t m = 0; self->bundle.models && m < request->n_models; m++) {
    self->bundle.models[m] = request->models[m].model;
  }
  self->bundle.n_models = request->n_models;
  return self->bundle.models != NULL;
}

/* ---- Inputs and references ---- */

/* The bytes that variant `variant` of an input has: those of its source, turned by so many
 * elements. */
static uint8_t *make_input(const struct np_session *session, const struct np_tensor *tensor,
                           uint32_t variant) {
  uint8_t *plain = calloc(tensor->n_bytes, 1);
  void *memory = NULL; /* Android's C library has no aligned_alloc at API level 27 */
  uint8_t *turned = posix_memalign(&memory, 64, tensor->n_bytes) == 0 ? memory : NULL;
  if (plain && turned) {
    if (tensor->source == NP_FROM_BLOB) {
      memcpy(plain, session->blobs[tensor->value].data, tensor->n_bytes);
    } else if (tensor->source == NP_PSEUDO_RANDOM) {
      np_tensor_randomize(tensor, plain);
    }
    const size_t by = variant % tensor->n_elements * (tensor->n_bytes / tensor->n_elements);
    memcpy(turned, plain + by, tensor->n_bytes - by);
    memcpy(turned + tensor->n_bytes - by, plain, by);
  } else {
    free(turned);
    turned = NULL;
  }
  free(plain);
  return turned;
}

static int make_buffers(struct np_frames *self, const struct np_session *session) {
  const struct np_bundle *bundle = &self->bundle;
  const uint32_t variants = self->action->variants;
  const size_t n_inputs = (size_t)variants * bundle->n_inputs;
  const size_t n_references = (size_t)bundle->n_plans * variants * bundle->n_outputs;
  self->inputs = calloc(n_inputs + 1, sizeof *self->inputs);
  self->submission = calloc(bundle->n_inputs + (size_t)1, sizeof *self->submission);
  self->references = calloc(n_references + 1, sizeof *self->references);
  if (!self->inputs || !self->submission || !self->references) {
    return 0;
  }
  for (size_t i = 0; i < n_inputs; i++) {
    const uint32_t tensor = bundle->inputs[i % bundle->n_inputs].tensor;
    self->inputs[i] =
        make_input(session, &self->action->tensors[tensor], (uint32_t)(i / bundle->n_inputs));
    if (!self->inputs[i]) {
      return 0;
    }
  }
  for (size_t i = 0; i < n_references; i++) {
    self->references[i] = malloc(bundle->outputs[i % bundle->n_outputs].known.n_bytes);
    if (!self->references[i]) {
      return 0;
    }
  }
  return 1;
}

static uint8_t **references_of(const struct np_frames *self, uint32_t plan, uint64_t number) {
  const size_t variants = self->action->variants;
  return self->references + (plan * variants + number % variants) * self->bundle.n_outputs;
}

/* ---- Frames ---- */

static nnp_status submit(struct np_frames *self, nnp_queue *queue, uint64_t number,
                         nnp_error *error) {
  const size_t first = (size_t)(number % self->action->variants) * self->bundle.n_inputs;
  for (uint32_t i = 0; i < self->bundle.n_inputs; i++) {
    self->submission[i] = self->inputs[first + i];
  }
  return nnp_queue_submit(queue, self->submission, NULL, 0, error);
}

/* What the library said as the record says it; its segments are those of a plan. */
static enum np_status failed(const struct np_frames *self, uint32_t plan, const nnp_error *error,
                             struct np_record *record) {
  record->fault.has_code = error->nnapi_code != 0;
  record->fault.code = error->nnapi_code;
  np_message_set(&record->fault.why, "%s", error->message);
  if (error->segment >= 0) {
    const struct np_bundle_segment *of = self->bundle.plans[plan].segments;
    record->segment = (uint32_t)(of - self->bundle.plans[0].segments) + (uint32_t)error->segment;
  }
  return error->status == NNP_UNSUPPORTED ? NP_UNSUPPORTED
         : error->status == NNP_NO_MEMORY ? NP_NO_MEMORY
                                          : NP_RUN_FAILED;
}

/* Runs a plan for each variant of the inputs, one frame after the other. */
static enum np_status refer(struct np_frames *self, nnp_queue *queue, uint32_t plan,
                            struct np_record *record) {
  const struct np_bundle *bundle = &self->bundle;
  __atomic_store_n(&record->stage, (uint32_t)NP_STAGE_EXECUTE, __ATOMIC_RELEASE);
  for (uint32_t v = 0; v < self->action->variants; v++) {
    nnp_error error;
    nnp_status status = submit(self, queue, v, &error);
    if (status == NNP_OK) {
      status = nnp_queue_wait(queue, NNP_FOREVER, NULL, &error);
    }
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

/* A queue of one plan, or of all of them. */
static enum np_status open_queue(struct np_frames *self, uint32_t plan, uint32_t in_flight,
                                 struct np_record *record, nnp_queue **queue) {
  nnp_queue_options options = self->options;
  nnp_error error;
  options.model.plan = plan;
  options.frames = in_flight;
  __atomic_store_n(&record->stage, (uint32_t)NP_STAGE_COMPILE, __ATOMIC_RELEASE);
  const nnp_status status = np_queue_make(&self->bundle, &options, self->simulator, queue, &error);
  return status == NNP_OK ? NP_OK : failed(self, plan == NNP_MIXTURE ? 0 : plan, &error, record);
}

static enum np_status open_all(struct np_frames *self, struct np_record *record) {
  enum np_status status = NP_OK;
  /* Of a single plan the frames' own queue makes the references, too. */
  for (uint32_t p = 0; p < self->bundle.n_plans && self->bundle.n_plans > 1; p++) {
    nnp_queue *serial = NULL;
    status = open_queue(self, p, 1, record, &serial);
    if (status == NP_OK) {
      status = refer(self, serial, p, record);
    }
    nnp_queue_close(serial);
    if (status != NP_OK) {
      return status;
    }
  }
  status = open_queue(self, NNP_MIXTURE, self->action->in_flight, record, &self->queue);
  if (status == NP_OK && self->bundle.n_plans == 1) {
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
  if (!self) {
    return no_memory(view->record);
  }
  self->action = action;
  self->simulator = simulator;
  const uint32_t flags = action->flags;
  self->options = (nnp_queue_options){
      .model = {.flags = ((flags & NP_ACTION_BURST) != 0 ? NNP_BURST : 0u) |
                         ((flags & NP_ACTION_ASYNC) != 0 ? NNP_ASYNC : 0u) |
                         ((flags & NP_ACTION_POINTERS) != 0 ? NNP_POINTERS : 0u),
                .threads = action->threads,
                .cpu_mask = cpus.cpu_mask,
                .nnapi_library = session->library},
      .nnapi_mask = cpus.nnapi_mask};
  self->bundle.n_strings = session->request->n_strings;
  self->bundle.strings =
      calloc(session->request->n_strings + (size_t)1, sizeof *self->bundle.strings);
  if (!self->bundle.strings || !describe_segments(self, session) || !describe_tensors(self) ||
      !describe_models(self, session) || !make_buffers(self, session)) {
    return no_memory(view->record);
  }
  return open_all(self, view->record);
}

/* ---- Rounds ---- */

static int is_same(const struct np_frames *self, uint32_t plan, uint64_t number) {
  uint8_t **references = references_of(self, plan, number);
  for (uint32_t i = 0; i < self->bundle.n_outputs; i++) {
    if (memcmp(references[i], nnp_queue_output(self->queue, i),
               self->bundle.outputs[i].known.n_bytes) != 0) {
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
  const struct np_bundle_plan *plan = &self->bundle.plans[handed.plan];
  const size_t first = (size_t)(plan->segments - self->bundle.plans[0].segments);
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
  const struct np_bundle *bundle = &self->bundle;
  const size_t variants = self->action->variants;
  for (size_t i = 0; self->inputs && i < variants * bundle->n_inputs; i++) {
    free(self->inputs[i]);
  }
  for (size_t i = 0; self->references && i < bundle->n_plans * variants * bundle->n_outputs; i++) {
    free(self->references[i]);
  }
  free(self->inputs);
  free(self->submission);
  free(self->references);
  if (bundle->plans) {
    free(bundle->plans[0].segments);
  }
  for (uint32_t i = 0; bundle->strings && i < bundle->n_strings; i++) {
    free(bundle->strings[i]);
  }
  free(bundle->strings);
  free(bundle->plans);
  free(bundle->shares);
  free(bundle->tensors);
  free(bundle->inputs);
  free(bundle->outputs);
  free(bundle->models);
  free(self);
}
