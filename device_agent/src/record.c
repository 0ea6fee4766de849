#include "record.h"

#include <string.h>

#include "supervise.h"

/* Adds count * size bytes to *total, aligned to 8; returns where they begin. Sets *total to
 * SIZE_MAX for good where that overflows. */
static size_t reserve(size_t *total, size_t count, size_t size) {
  const size_t begin = *total;
  if (begin == SIZE_MAX || count > (SIZE_MAX / 2 - begin) / size) {
    *total = SIZE_MAX;
    return 0;
  }
  *total = (begin + count * size + 7) / 8 * 8;
  return begin;
}

int np_action_on_cpu(const struct np_action *action) {
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    if (action->bundle.segments[s].engine != NP_BUNDLE_CPU) {
      return 0;
    }
  }
  return 1;
}

enum np_status np_record_make(const struct np_action *action, struct np_record_view *view) {
  memset(view, 0, sizeof *view);
  /* NP_MAX_RUNS and NP_MAX_ROUNDS bound the runs to less than 2^18. */
  const size_t runs = (size_t)np_share(action, action->max_runs) * np_all_rounds(action);
  const uint64_t all_runs = (uint64_t)action->bundle.n_segments * runs;
  if (all_runs > SIZE_MAX / 64) {
    return NP_NO_MEMORY;
  }
  size_t total = 0;
  (void)reserve(&total, 1, sizeof *view->record);
  const size_t compile = reserve(&total, action->bundle.n_segments, sizeof(uint64_t));
  const size_t facts = reserve(&total, action->bundle.n_segments, sizeof *view->facts);
  const size_t totals = reserve(&total, runs, sizeof(uint64_t));
  const size_t samples = reserve(&total, (size_t)all_runs, sizeof(uint64_t));
  const size_t hardware = reserve(&total, (size_t)all_runs, sizeof(uint64_t));
  const size_t driver = reserve(&total, (size_t)all_runs, sizeof(uint64_t));
  const int beside = (action->flags & NP_ACTION_BESIDE) != 0;
  const size_t alone = reserve(&total, beside ? (size_t)all_runs : 0, sizeof(uint64_t));
  const size_t cpu = reserve(&total, beside ? (size_t)all_runs : 0, sizeof(uint64_t));
  const int frames = (action->flags & NP_ACTION_FRAMES) != 0;
  const size_t records = reserve(&total, frames ? runs : 0, sizeof *view->frames);
  const size_t spans = reserve(&total, frames ? (size_t)all_runs : 0, sizeof *view->spans);
  const size_t kept = reserve(&total, action->n_kept, sizeof *view->kept);
  if (total == SIZE_MAX) {
    return NP_NO_MEMORY;
  }
  char *memory = np_shared_memory(total);
  if (!memory) {
    return NP_NO_MEMORY;
  }
  view->n_bytes = total;
  view->room = (uint32_t)runs;
  view->record = (struct np_record *)(void *)memory;
  view->compile_ns = (uint64_t *)(void *)(memory + compile);
  view->facts = (struct np_engine_facts *)(void *)(memory + facts);
  view->total_ns = (uint64_t *)(void *)(memory + totals);
  view->samples_ns = (uint64_t *)(void *)(memory + samples);
  view->hardware_ns = (uint64_t *)(void *)(memory + hardware);
  view->driver_ns = (uint64_t *)(void *)(memory + driver);
  view->alone_ns = beside ? (uint64_t *)(void *)(memory + alone) : NULL;
  view->cpu_ns = beside ? (uint64_t *)(void *)(memory + cpu) : NULL;
  view->frames = frames ? (struct np_frame_record *)(void *)(memory + records) : NULL;
  view->spans = frames ? (struct np_frame_span *)(void *)(memory + spans) : NULL;
  view->kept = (struct np_kept_output *)(void *)(memory + kept);
  const struct np_readings unknown = {-1, -1, -1};
  view->record->first_reading = view->record->readings[0] = view->record->readings[1] = unknown;
  return NP_OK;
}

void np_record_free(struct np_record_view *view) {
  np_shared_free(view->record, view->n_bytes);
  view->record = NULL;
}

struct np_samples np_record_samples(const struct np_record_view *view) {
  return (struct np_samples){.room = view->room,
                             .n_runs = &view->record->n_runs,
                             .started_runs = &view->record->started_runs,
                             .step = &view->record->segment,
                             .first_ns = &view->record->first_ns,
                             .total_ns = view->total_ns,
                             .step_ns = view->samples_ns,
                             .hardware_ns = view->hardware_ns,
                             .driver_ns = view->driver_ns};
}

struct np_beside_samples np_record_beside(const struct np_record_view *view) {
  return (struct np_beside_samples){.room = view->room,
                                    .n_runs = &view->record->n_runs,
                                    .started_runs = &view->record->started_runs,
                                    .lane = &view->record->segment,
                                    .total_ns = view->total_ns,
                                    .alone_ns = view->alone_ns,
                                    .cpu_ns = view->cpu_ns,
                                    .beside_ns = view->samples_ns,
                                    .hardware_ns = view->hardware_ns,
                                    .driver_ns = view->driver_ns};
}

void np_record_sanitize(const struct np_record_view *view, const struct np_action *action) {
  struct np_record *record = view->record;
  if (record->verdict > NP_TIMED_OUT) {
    record->verdict = NP_FAILED;
  }
  if (record->stage > NP_STAGE_EXECUTE) {
    record->stage = NP_STAGE_EXECUTE;
  }
  if (record->segment >= action->bundle.n_segments) {
    record->segment = 0;
  }
  if (record->n_runs > view->room) {
    record->n_runs = view->room;
  }
  if (record->n_kept > action->n_kept) {
    record->n_kept = 0;
  }
  record->fault.why.text[sizeof record->fault.why.text - 1] = 0;
  record->frame_failure.text[sizeof record->frame_failure.text - 1] = 0;
  for (uint32_t i = 0; view->frames && i < record->n_runs; i++) {
    struct np_frame_record *frame = &view->frames[i];
    frame->plan = frame->plan < action->bundle.n_plans ? frame->plan : 0;
    frame->outcome = frame->outcome <= NP_FRAME_FAILED ? frame->outcome : NP_FRAME_FAILED;
  }
}
