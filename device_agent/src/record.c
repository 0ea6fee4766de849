#include "record.h"

#include <string.h>

#include "supervise.h"

/* Returns the next count * size bytes of the memory, aligned to 8, or NULL if `memory` is NULL;
 * *total is the sum so far, and stays SIZE_MAX once it overflows. */
static void *carve(char *memory, size_t *total, size_t count, size_t size) {
  const size_t begin = *total;
  if (begin == SIZE_MAX || count > (SIZE_MAX / 2 - begin) / size) {
    *total = SIZE_MAX;
    return NULL;
  }
  *total = (begin + count * size + 7) / 8 * 8;
  return memory ? memory + begin : NULL;
}

/* Lays out the parts of a record; returns their size. */
static size_t lay_out(const struct np_action *action, char *memory, struct np_record_view *view) {
  /* NP_MAX_RUNS and NP_MAX_ROUNDS bound the runs to less than 2^18. */
  const size_t runs = (size_t)np_share(action, action->max_runs) * np_all_rounds(action);
  const size_t n = action->bundle.n_segments;
  const size_t all_runs = runs <= SIZE_MAX / 64 / (n + 1) ? n * runs : SIZE_MAX;
  const int is_corun = (action->flags & NP_ACTION_CORUN) != 0;
  const int has_frames = (action->flags & NP_ACTION_FRAMES) != 0;
  size_t total = 0;
  view->room = (uint32_t)runs;
  view->record = carve(memory, &total, 1, sizeof *view->record);
  view->compile_ns = carve(memory, &total, n, sizeof *view->compile_ns);
  view->facts = carve(memory, &total, n, sizeof *view->facts);
  view->total_ns = carve(memory, &total, runs, sizeof *view->total_ns);
  view->copies_ns = carve(memory, &total, runs, sizeof *view->copies_ns);
  view->samples_ns = carve(memory, &total, all_runs, sizeof *view->samples_ns);
  view->hardware_ns = carve(memory, &total, n * NP_DURATION_RUNS, sizeof *view->hardware_ns);
  view->driver_ns = carve(memory, &total, n * NP_DURATION_RUNS, sizeof *view->driver_ns);
  view->kept = carve(memory, &total, action->n_kept, sizeof *view->kept);
  if (is_corun) {
    view->alone_ns = carve(memory, &total, all_runs, sizeof *view->alone_ns);
    view->cpu_ns = carve(memory, &total, all_runs, sizeof *view->cpu_ns);
  }
  if (has_frames) {
    view->frames = carve(memory, &total, runs, sizeof *view->frames);
    view->spans = carve(memory, &total, all_runs, sizeof *view->spans);
  }
  return total;
}

enum np_status np_record_make(const struct np_action *action, struct np_record_view *view) {
  memset(view, 0, sizeof *view);
  const size_t total = lay_out(action, NULL, view);
  char *memory = total == SIZE_MAX ? NULL : np_shared_memory(total);
  if (!memory) {
    return NP_NO_MEMORY;
  }
  view->n_bytes = lay_out(action, memory, view);
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
                             .copies_ns = view->copies_ns,
                             .step_ns = view->samples_ns};
}

struct np_corun_samples np_record_corun(const struct np_record_view *view) {
  return (struct np_corun_samples){.room = view->room,
                                   .n_runs = &view->record->n_runs,
                                   .started_runs = &view->record->started_runs,
                                   .lane = &view->record->segment,
                                   .total_ns = view->total_ns,
                                   .alone_ns = view->alone_ns,
                                   .cpu_ns = view->cpu_ns,
                                   .corun_ns = view->samples_ns};
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
  if (record->n_durations > NP_DURATION_RUNS) {
    record->n_durations = 0;
  }
  record->fault.why.text[sizeof record->fault.why.text - 1] = 0;
  record->frame_failure.text[sizeof record->frame_failure.text - 1] = 0;
  for (uint32_t i = 0; view->frames && i < record->n_runs; i++) {
    struct np_frame_record *frame = &view->frames[i];
    frame->plan = frame->plan < action->bundle.n_plans ? frame->plan : 0;
    frame->outcome = frame->outcome <= NP_FRAME_FAILED ? frame->outcome : NP_FRAME_FAILED;
  }
}
