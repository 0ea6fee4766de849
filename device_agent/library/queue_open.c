/* Makes a queue: plans, lanes, contexts, frames. */
#include <stdlib.h>
#include <string.h>

#include "mixture.h"
#include "queue.h"

#define FRAMES_A_LANE 4u

nnp_queue_options nnp_queue_options_default(void) {
  nnp_queue_options options = {.model = nnp_options_default()};
  options.model.plan = NNP_MIXTURE;
  return options;
}

static nnp_status no_memory(nnp_error *error) {
  return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the queue");
}

/* Finds the lane of a plan's segment before anything is compiled; NULL: a new one is needed. */
static struct np_lane *find_lane(struct nnp_queue *self, int on_nnapi, const char *accelerator) {
  for (uint32_t i = 0; i < self->n_lanes; i++) {
    struct np_lane *lane = &self->lanes[i];
    const int same_name = !lane->accelerator || !accelerator
                              ? lane->accelerator == accelerator
                              : strcmp(lane->accelerator, accelerator) == 0;
    if (lane->on_nnapi == on_nnapi && same_name) {
      return lane;
    }
  }
  return NULL;
}

/* Assigns a lane to each segment of a compiled plan. */
static nnp_status assign_lanes(struct nnp_queue *self, struct np_queue_plan *plan,
                               const nnp_queue_options *options, nnp_error *error) {
  const struct np_executable *executable = &plan->executable;
  const uint32_t n = executable->chosen->n_segments;
  plan->lanes = calloc(n, sizeof *plan->lanes);
  NP_TRY(plan->lanes ? NNP_OK : no_memory(error));
  for (uint32_t s = 0; s < n; s++) {
    const int on_nnapi = np_executable_on_nnapi(executable, s);
    const char *accelerator = on_nnapi ? executable->chosen->segments[s].accelerator : NULL;
    struct np_lane *lane = find_lane(self, on_nnapi, accelerator);
    if (!lane) {
      lane = &self->lanes[self->n_lanes++];
      lane->queue = self;
      lane->on_nnapi = on_nnapi;
      lane->accelerator = accelerator;
      lane->cpu_mask = on_nnapi ? options->nnapi_mask : self->options.cpu_mask;
    }
    plan->lanes[s] = (uint32_t)(lane - self->lanes);
  }
  return NNP_OK;
}

/* Returns the maximum number of a plan's frames in flight or handed out. */
static uint32_t context_count(const struct nnp_queue *self, uint32_t index) {
  const uint32_t window = self->n_frames + 1;
  return self->n_plans == 1 ? window : np_mixture_most(self->bundle->shares[index].share, window);
}

static nnp_status make_plan(struct nnp_queue *self, uint32_t index,
                            const nnp_queue_options *options, nnp_error *error) {
  struct np_queue_plan *plan = &self->plans[index];
  /* Earlier plans lend their segments in common. */
  struct np_executable *others = calloc(index + (size_t)1, sizeof *others);
  NP_TRY(others ? NNP_OK : no_memory(error));
  for (uint32_t i = 0; i < index; i++) {
    others[i] = self->plans[i].executable;
  }
  plan->n_contexts = context_count(self, index);
  nnp_status status = np_executable_make(self->bundle, plan->plan, plan->n_contexts, &self->options,
                                         &self->library, others, index, &plan->executable, error);
  free(others);
  NP_THEN(status, assign_lanes(self, plan, options, error));
  NP_TRY(status);
  plan->contexts = calloc(plan->n_contexts, sizeof *plan->contexts);
  for (uint32_t i = 0; plan->contexts && i < plan->n_contexts; i++) {
    struct np_queue_context *context = &plan->contexts[i];
    context->context = &plan->executable.contexts[i];
    const uint32_t n = plan->executable.chosen->n_segments;
    context->spans = calloc(n, sizeof *context->spans);
    context->faults = calloc(n, sizeof *context->faults);
    context->waits = calloc(n, sizeof *context->waits);
    NP_TRY(context->spans && context->faults && context->waits ? NNP_OK : no_memory(error));
    for (uint32_t s = 0; s < n; s++) {
      np_pipeline_tell(context->context->pipeline, s, &context->faults[s]);
    }
  }
  return plan->contexts && np_queue_order(plan) ? NNP_OK : no_memory(error);
}

/* Lists the plans, without compiling them, and makes room for as many lanes as they can have. */
static nnp_status list_plans(struct nnp_queue *self, uint32_t chosen, nnp_error *error) {
  const int by_shares = chosen == NNP_MIXTURE && self->bundle->n_shares > 0;
  const uint32_t only = chosen == NNP_MIXTURE ? 0 : chosen;
  NNP_REQUIRE(only < self->bundle->n_plans, error, NNP_BAD_ARGUMENT, "plan %u of %u", only,
              self->bundle->n_plans);
  self->n_plans = by_shares ? self->bundle->n_shares : 1;
  self->plans = calloc(self->n_plans, sizeof *self->plans);
  NP_TRY(self->plans ? NNP_OK : no_memory(error));
  size_t n_segments = 0;
  for (uint32_t i = 0; i < self->n_plans; i++) {
    self->plans[i].plan = by_shares ? self->bundle->shares[i].plan : only;
    n_segments += self->bundle->plans[self->plans[i].plan].n_segments;
  }
  self->lanes = calloc(n_segments + 1, sizeof *self->lanes); /* the CPU may stand in for all */
  return self->lanes ? NNP_OK : no_memory(error);
}

/* Returns the number of lanes that the plans name, which determines the default number of
 * frames. */
static uint32_t count_lanes(const struct nnp_queue *self) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < self->n_plans; i++) {
    const struct np_bundle_plan *plan = &self->bundle->plans[self->plans[i].plan];
    for (uint32_t s = 0; s < plan->n_segments; s++) {
      int is_new = 1;
      for (uint32_t j = 0; j <= i && is_new; j++) {
        const struct np_bundle_plan *other = &self->bundle->plans[self->plans[j].plan];
        for (uint32_t o = 0; o < (j == i ? s : other->n_segments); o++) {
          is_new &= other->segments[o].engine != plan->segments[s].engine ||
                    other->segments[o].accelerator != plan->segments[s].accelerator;
        }
      }
      n += (uint32_t)is_new;
    }
  }
  return n;
}

static nnp_status make(struct nnp_queue *self, const nnp_queue_options *options, nnp_error *error) {
  NP_TRY(list_plans(self, self->options.plan, error));
  const uint32_t usual = FRAMES_A_LANE * count_lanes(self);
  self->n_frames = options->frames ? options->frames : usual;
  if (options->frames == 0 && self->n_frames > NNP_MAX_FRAMES) {
    self->n_frames = NNP_MAX_FRAMES;
  }
  NNP_REQUIRE(self->n_frames <= NNP_MAX_FRAMES, error, NNP_BAD_ARGUMENT,
              "%u frames in flight, at most %u", self->n_frames, NNP_MAX_FRAMES);
  for (uint32_t i = 0; i < self->n_plans; i++) {
    NP_TRY(np_executable_open(self->bundle, self->plans[i].plan, &self->options, &self->library,
                              error));
    NP_TRY(make_plan(self, i, options, error));
  }
  for (uint32_t i = 0; i < NP_QUEUE_PLACES; i++) {
    self->frames[i].outputs =
        calloc(self->bundle->n_outputs + (size_t)1, sizeof *self->frames[i].outputs);
    self->frames[i].next = calloc(self->n_lanes + (size_t)1, sizeof *self->frames[i].next);
    NP_TRY(self->frames[i].outputs && self->frames[i].next ? NNP_OK : no_memory(error));
  }
  return np_lanes_start(self, error);
}

nnp_status np_queue_make(const struct np_bundle *bundle, const nnp_queue_options *options,
                         struct np_simulator *simulator, nnp_queue **queue, nnp_error *error) {
  *queue = NULL;
  struct nnp_queue *self = calloc(1, sizeof *self);
  NP_TRY(self ? NNP_OK : no_memory(error));
  self->bundle = bundle;
  self->simulator = self->library.simulator = simulator;
  nnp_status status = np_executable_options(bundle, &options->model, &self->options, error);
  NP_THEN(status, make(self, options, error));
  if (status != NNP_OK) {
    nnp_queue_close(self);
    return status;
  }
  *queue = self;
  return NNP_OK;
}

nnp_status nnp_queue_open(const nnp_bundle *bundle, const nnp_queue_options *options,
                          nnp_queue **queue, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle && queue, error, NNP_BAD_ARGUMENT, "bundle or queue is NULL");
  const nnp_queue_options chosen = options ? *options : nnp_queue_options_default();
  return np_queue_make(&bundle->bundle, &chosen, NULL, queue, error);
}

/* Waits until every submitted frame has ended. */
static void drain(struct nnp_queue *self) {
  atomic_store(&self->is_stopping, 1);
  for (uint64_t n = atomic_load(&self->handed); n < self->submitted; n++) {
    const struct np_queue_frame *frame = &self->frames[n % NP_QUEUE_PLACES];
    for (;;) {
      np_queue_look(self);
      np_parker_begin(&self->receiver);
      if (atomic_load(&frame->ended)) {
        break;
      }
      np_queue_rest(self);
      (void)np_parker_sleep(&self->receiver, NP_PARKER_FOREVER);
    }
    np_parker_end(&self->receiver);
  }
}

static void free_plan(struct np_queue_plan *plan) {
  for (uint32_t i = 0; plan->contexts && i < plan->n_contexts; i++) {
    free(plan->contexts[i].spans);
    free(plan->contexts[i].faults);
    free(plan->contexts[i].waits);
  }
  free(plan->contexts);
  free(plan->lanes);
  free(plan->n_waits);
  free(plan->firsts);
  free(plan->followers);
  np_executable_free(&plan->executable);
}

void nnp_queue_close(nnp_queue *self) {
  if (!self) {
    return;
  }
  drain(self);
  np_lanes_stop(self);
  if (self->has_entered) {
    self->simulator->leave();
  }
  for (uint32_t i = 0; self->plans && i < self->n_plans; i++) { /* lenders first */
    free_plan(&self->plans[i]);
  }
  for (uint32_t i = 0; i < NP_QUEUE_PLACES; i++) {
    free(self->frames[i].outputs);
    free(self->frames[i].next);
  }
  np_executable_close(&self->library);
  free(self->plans);
  free(self->lanes);
  free(self);
}
