/* Puts frames into a queue and takes them out. */
#include "queue.h"

#include <string.h>

#include "mixture.h"

/* Returns the end of a timeout, for the parkers. */
static uint64_t until(uint64_t timeout_ns) {
  const uint64_t now = np_now_ns();
  return timeout_ns > UINT64_MAX - now ? NP_PARKER_FOREVER : now + timeout_ns;
}

/* ---- Simulated phones ---- */

uint64_t np_queue_now(const struct nnp_queue *self) {
  return self->simulator ? self->simulator->now() : np_now_ns();
}

void np_queue_look(const struct nnp_queue *self) {
  if (self->simulator) {
    self->simulator->look();
  }
}

void np_queue_rest(const struct nnp_queue *self) {
  if (self->simulator) {
    self->simulator->rest();
  }
}

void np_queue_call(const struct nnp_queue *self, uint32_t lane) {
  if (self->simulator) {
    self->simulator->call(lane);
  }
}

/* ---- The submitter ---- */

static struct np_queue_plan *next_plan(const struct nnp_queue *self) {
  const uint32_t i = self->n_plans == 1
                         ? 0
                         : np_mixture_select(self->bundle->shares, self->n_plans, self->submitted);
  return &self->plans[i];
}

/* Returns the next frame's context, NULL if there is no room for a frame. */
static struct np_queue_context *next_context(const struct nnp_queue *self) {
  if (self->submitted - atomic_load(&self->handed) >= self->n_frames) {
    return NULL;
  }
  const struct np_queue_plan *plan = next_plan(self);
  struct np_queue_context *context = &plan->contexts[plan->n_submitted % plan->n_contexts];
  return atomic_load(&context->busy) ? NULL : context;
}

void *nnp_queue_input(nnp_queue *self, uint32_t index) {
  const struct np_queue_context *context = next_context(self);
  if (!context || index >= self->bundle->n_inputs) {
    return NULL;
  }
  return np_pipeline_data(context->context->pipeline, self->bundle->inputs[index].tensor);
}

/* Waits for room; NULL if the time is over. */
static struct np_queue_context *wait_for_room(struct nnp_queue *self, uint64_t timeout_ns) {
  struct np_queue_context *context = next_context(self);
  if (context || timeout_ns == 0) {
    return context;
  }
  const uint64_t until_ns = until(timeout_ns);
  for (int in_time = 1;;) {
    np_parker_begin(&self->submitter);
    context = next_context(self);
    if (context || !in_time) {
      np_parker_end(&self->submitter);
      return context;
    }
    in_time = np_parker_sleep(&self->submitter, until_ns);
  }
}

int nnp_queue_room(nnp_queue *self, uint64_t timeout_ns) {
  return wait_for_room(self, timeout_ns) != NULL;
}

nnp_status nnp_queue_submit(nnp_queue *self, const void *const *inputs, void *const *outputs,
                            uint64_t timeout_ns, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(self, error, NNP_BAD_ARGUMENT, "queue is NULL");
  NP_TRY(np_executable_check(self->bundle, inputs, outputs, error));
  const uint64_t submitted_ns = np_queue_now(self);
  struct np_queue_context *context = wait_for_room(self, timeout_ns);
  NNP_REQUIRE(context, error, NNP_BUSY, "%u frames are in flight", self->n_frames);
  struct np_queue_plan *plan = next_plan(self);
  struct np_queue_frame *frame = &self->frames[self->submitted % NP_QUEUE_PLACES];
  atomic_store_explicit(&context->busy, 1, memory_order_relaxed);
  const uint32_t n_segments = plan->executable.chosen->n_segments;
  for (uint32_t s = 0; s < n_segments; s++) {
    context->faults[s].has_code = 0;
    context->faults[s].why.text[0] = 0;
    atomic_store_explicit(&context->waits[s], plan->n_waits[s], memory_order_relaxed);
    context->spans[s] =
        (nnp_span){plan->lanes[s], NNP_UNKNOWN_NS, NNP_UNKNOWN_NS, NNP_UNKNOWN_NS, NNP_UNKNOWN_NS};
  }
  frame->number = self->submitted++;
  frame->plan = plan;
  frame->context = context;
  atomic_store_explicit(&frame->left, n_segments, memory_order_relaxed);
  atomic_store_explicit(&frame->failed, 0, memory_order_relaxed);
  frame->status = NP_OK;
  frame->submitted_ns = submitted_ns;
  for (uint32_t i = 0; i < self->bundle->n_outputs; i++) {
    frame->outputs[i] = outputs ? outputs[i] : NULL;
  }
  plan->n_submitted++;
  np_executable_take(self->bundle, context->context->pipeline, inputs);
  np_executable_place(self->bundle, context->context->pipeline, outputs);
  for (uint32_t s = 0; s < n_segments; s++) {
    if (plan->n_waits[s] == 0) {
      np_queue_hand(self, frame, s);
    }
  }
  return NNP_OK;
}

/* ---- The receiver ---- */

/* Releases the frame that was returned last. */
static void release(struct nnp_queue *self) {
  if (self->last) {
    atomic_store(&self->last->context->busy, 0);
    self->last = NULL;
    np_parker_wake(&self->submitter);
  }
}

/* Waits for the oldest frame; NULL if the time is over. */
static struct np_queue_frame *wait_for_frame(struct nnp_queue *self, uint64_t timeout_ns) {
  struct np_queue_frame *frame =
      &self->frames[atomic_load_explicit(&self->handed, memory_order_relaxed) % NP_QUEUE_PLACES];
  if (atomic_load(&frame->ended)) {
    return frame;
  }
  if (timeout_ns == 0) {
    return NULL;
  }
  const uint64_t until_ns = until(timeout_ns);
  for (int in_time = 1;;) {
    np_queue_look(self);
    np_parker_begin(&self->receiver);
    const uint32_t ended = atomic_load(&frame->ended);
    if (ended || !in_time) {
      np_parker_end(&self->receiver);
      return ended ? frame : NULL;
    }
    np_queue_rest(self);
    in_time = np_parker_sleep(&self->receiver, until_ns);
  }
}

nnp_status nnp_queue_wait(nnp_queue *self, uint64_t timeout_ns, nnp_frame *frame,
                          nnp_error *error) {
  np_runtime_clear(error);
  if (frame) {
    *frame = (nnp_frame){.number = NNP_NO_FRAME};
  }
  NNP_REQUIRE(self, error, NNP_BAD_ARGUMENT, "queue is NULL");
  release(self);
  struct np_queue_frame *oldest = wait_for_frame(self, timeout_ns);
  NNP_REQUIRE(oldest, error, NNP_BUSY, "no frame is done");
  struct np_context *context = oldest->context->context;
  if (oldest->status == NP_OK) {
    np_executable_give(self->bundle, context->pipeline, oldest->outputs);
  }
  if (frame) {
    *frame = (nnp_frame){.number = oldest->number,
                         .plan = oldest->plan->plan,
                         .latency_ns = oldest->ended_ns - oldest->submitted_ns};
  }
  self->last = oldest;
  atomic_store_explicit(&oldest->ended, 0, memory_order_relaxed);
  atomic_fetch_add(&self->handed, 1);
  np_parker_wake(&self->submitter);
  if (oldest->status == NP_OK) {
    return NNP_OK;
  }
  const uint32_t segment = atomic_load_explicit(&oldest->failed, memory_order_relaxed) - 1;
  return np_executable_failed(&oldest->context->faults[segment], oldest->status, (int32_t)segment,
                              error);
}

const void *nnp_queue_output(const nnp_queue *self, uint32_t index) {
  if (!self->last || index >= self->bundle->n_outputs) {
    return NULL;
  }
  return np_pipeline_data(self->last->context->context->pipeline,
                          self->bundle->outputs[index].tensor);
}

nnp_status nnp_queue_span(const nnp_queue *self, uint32_t segment, nnp_span *span) {
  if (!self || !span || !self->last || segment >= self->last->plan->executable.chosen->n_segments) {
    return NNP_BAD_ARGUMENT;
  }
  *span = self->last->context->spans[segment];
  return NNP_OK;
}

/* ---- Queries ---- */

uint32_t nnp_queue_n_lanes(const nnp_queue *self) { return self->n_lanes; }

nnp_status nnp_queue_lane(const nnp_queue *self, uint32_t index, nnp_lane *lane) {
  if (!self || !lane || index >= self->n_lanes) {
    return NNP_BAD_ARGUMENT;
  }
  const struct np_lane *of = &self->lanes[index];
  const char *engine = of->on_nnapi ? "nnapi" : "cpu";
  *lane = (nnp_lane){.name = of->accelerator ? of->accelerator : engine,
                     .engine = engine,
                     .n_segments = atomic_load_explicit(&of->n_segments, memory_order_relaxed),
                     .busy_ns = atomic_load_explicit(&of->busy_ns, memory_order_relaxed)};
  return NNP_OK;
}

uint32_t nnp_queue_n_frames(const nnp_queue *self) { return self->n_frames; }

nnp_status nnp_queue_segment(const nnp_queue *self, uint32_t plan, uint32_t index,
                             nnp_segment *segment) {
  for (uint32_t i = 0; self && segment && i < self->n_plans; i++) {
    const struct np_executable *executable = &self->plans[i].executable;
    if (self->plans[i].plan == plan && index < executable->chosen->n_segments) {
      *segment = np_executable_segment(executable, index);
      return NNP_OK;
    }
  }
  return NNP_BAD_ARGUMENT;
}
