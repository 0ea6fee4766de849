/* The lanes of a queue, each a thread that runs segments of frames. */
#include <string.h>

#include "queue.h"
#include "sysinfo.h"

/* Takes the oldest of the frames that wait for the lane; NULL: none. The caller then owns it. */
static struct np_queue_frame *take(struct np_lane *lane) {
  const uint64_t ready = atomic_load_explicit(&lane->ready, memory_order_acquire);
  if (ready == 0) {
    return NULL;
  }
  const uint64_t handed = atomic_load_explicit(&lane->queue->handed, memory_order_relaxed);
  const unsigned turn = (unsigned)(handed % NP_QUEUE_PLACES);
  const uint64_t by_age = turn == 0 ? ready : ready >> turn | ready << (NP_QUEUE_PLACES - turn);
  const unsigned place = ((unsigned)__builtin_ctzll(by_age) + turn) % NP_QUEUE_PLACES;
  atomic_fetch_and_explicit(&lane->ready, ~(UINT64_C(1) << place), memory_order_acquire);
  return &lane->queue->frames[place];
}

void np_queue_hand(struct nnp_queue *queue, struct np_queue_frame *frame, uint32_t segment) {
  const uint32_t index = frame->plan->lanes[segment];
  struct np_lane *lane = &queue->lanes[index];
  frame->next[index] = segment;
  atomic_fetch_or(&lane->ready, UINT64_C(1) << frame->number % NP_QUEUE_PLACES);
  np_queue_call(queue, index);
  np_parker_wake(&lane->parker);
}

/* Runs a segment of a frame. */
static enum np_status run_segment(struct np_lane *lane, struct np_queue_frame *frame, uint32_t s) {
  struct nnp_queue *queue = lane->queue;
  struct np_queue_context *context = frame->context;
  const struct np_step *step = &np_pipeline_steps(context->context->pipeline)[s];
  nnp_span *span = &context->spans[s];
  span->begin_ns = np_queue_now(queue);
  const enum np_status status = step->run(step->ctx);
  span->end_ns = np_queue_now(queue);
  const struct np_durations durations = np_step_settle(step);
  span->hardware_ns = durations.hardware_ns;
  span->driver_ns = durations.driver_ns;
  atomic_fetch_add_explicit(&lane->n_segments, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&lane->busy_ns, span->end_ns - span->begin_ns, memory_order_relaxed);
  return status;
}

/* Runs the frame's next segment on the lane, then hands on segments that waited only for this one,
 * or ends the frame. Once a segment has failed, the others do not run. */
static void advance(struct np_lane *lane, struct np_queue_frame *frame) {
  struct nnp_queue *queue = lane->queue;
  const struct np_queue_plan *plan = frame->plan;
  const uint32_t s = frame->next[lane - queue->lanes];
  enum np_status status = NP_RUN_FAILED;
  if (!atomic_load_explicit(&queue->is_stopping, memory_order_relaxed) &&
      atomic_load_explicit(&frame->failed, memory_order_relaxed) == 0) {
    status = run_segment(lane, frame, s);
  }
  uint32_t none = 0;
  if (status != NP_OK && atomic_compare_exchange_strong(&frame->failed, &none, s + 1)) {
    frame->status = status;
  }
  const int ends_now = status != NP_OK && !plan->executable.chosen->overlaps;
  for (uint32_t i = plan->firsts[s]; i < plan->firsts[s + 1] && !ends_now; i++) {
    const uint32_t follower = plan->followers[i];
    if (atomic_fetch_sub(&frame->context->waits[follower], 1) == 1) {
      np_queue_hand(queue, frame, follower);
    }
  }
  if (!ends_now && atomic_fetch_sub(&frame->left, 1) != 1) {
    return; /* the frame is no longer ours */
  }
  frame->ended_ns = np_queue_now(queue);
  atomic_store(&frame->ended, 1);
  np_queue_call(queue, np_queue_owner(queue));
  np_parker_wake(&queue->receiver);
}

static void *run_lane(void *argument) {
  struct np_lane *lane = argument;
  const struct nnp_queue *queue = lane->queue;
  struct np_affinity affinity;
  (void)np_affinity_enter(lane->cpu_mask, &affinity); /* checked before */
  if (queue->simulator) {
    queue->simulator->enter((uint32_t)(lane - queue->lanes));
  }
  for (;;) {
    np_queue_look(queue);
    struct np_queue_frame *frame = take(lane);
    if (frame) {
      advance(lane, frame);
      continue;
    }
    np_parker_begin(&lane->parker);
    if (atomic_load(&lane->ready) != 0) {
      np_parker_end(&lane->parker);
      continue;
    }
    if (atomic_load(&queue->is_over)) {
      if (queue->simulator) {
        queue->simulator->leave();
      }
      return NULL;
    }
    np_queue_rest(queue);
    (void)np_parker_sleep(&lane->parker, NP_PARKER_FOREVER);
  }
}

nnp_status np_lanes_start(struct nnp_queue *queue, nnp_error *error) {
  if (queue->simulator) {
    NNP_REQUIRE(queue->simulator->lanes(queue->n_lanes + 1) == 0, error, NNP_FAILED,
                "the simulated phone has no clock for %u lanes at once", queue->n_lanes);
    queue->simulator->enter(np_queue_owner(queue));
    queue->has_entered = 1;
  }
  for (uint32_t i = 0; i < queue->n_lanes; i++) {
    struct np_lane *lane = &queue->lanes[i];
    struct np_affinity affinity;
    const int cause = np_affinity_enter(lane->cpu_mask, &affinity);
    np_affinity_leave(&affinity);
    NNP_REQUIRE(cause == 0, error, NNP_BAD_ARGUMENT, "no CPU of mask 0x%llx may be used: %s",
                (unsigned long long)lane->cpu_mask, strerror(cause));
    NNP_REQUIRE(pthread_create(&lane->thread, NULL, run_lane, lane) == 0, error, NNP_NO_MEMORY,
                "no thread for lane %u of %u", i, queue->n_lanes);
    lane->is_running = 1;
  }
  return NNP_OK;
}

void np_lanes_stop(struct nnp_queue *queue) {
  atomic_store(&queue->is_over, 1);
  for (uint32_t i = 0; i < queue->n_lanes; i++) {
    if (queue->lanes[i].is_running) {
      np_parker_wake(&queue->lanes[i].parker);
      (void)pthread_join(queue->lanes[i].thread, NULL);
    }
  }
}
