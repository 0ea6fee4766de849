#include "action.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "np_nnapi.h"
#include "supervise.h"
#include "sysinfo.h"

#define MOST_ATTEMPTS 2u /* attempts that prove something: a third follows one that does not */

/* Possible causes of NNAPI's vaguest result code. Up to Android 10 there is no other. */
#define VAGUE                                                                                      \
  ": the driver failed, died, or may not map the memory it was handed (`adb logcat` has its "      \
  "words)"

/* Writes the stage as text: "compile of segment 1 (nnapi, sim-npu)". */
static void describe_stage(const struct np_action *action, const struct np_record *record,
                           struct np_message *place) {
  if (record->stage == NP_STAGE_SETUP) {
    np_message_set(place, "setup");
    return;
  }
  const struct np_bundle_segment *segment = &action->bundle.segments[record->segment];
  const char *what = record->stage == NP_STAGE_COMPILE ? "compile" : "run";
  if (segment->engine == NP_BUNDLE_CPU) {
    np_message_set(place, "%s of segment %u (cpu)", what, record->segment);
  } else {
    np_message_set(place, "%s of segment %u (nnapi, %.64s)", what, record->segment,
                   segment->accelerator ? segment->accelerator : "its own choice");
  }
}

/* Returns who probably killed a process that this agent did not kill. */
static const char *probable_killer(int64_t used_kb) {
  const int64_t available_kb = np_memory_available_kb();
  if (np_has_kernel_killer()) {
    return "probably the kernel's low memory killer, which Android 9 and before have";
  }
  if (available_kb >= 0 && used_kb > available_kb) {
    return "probably for want of memory, of which it had more than was left";
  }
  return "probably by lmkd, Android's low memory killer, or by hand";
}

/* Writes the message for a process that ended before its action. */
static void describe_end(const struct np_process_end *end, const char *place, const char *signal,
                         struct np_message *message) {
  const struct np_outcome *outcome = &end->outcome;
  if (end->event == NP_EVENT_LATE) {
    np_message_set(message, "not done after %u ms, in %s", end->timeout_ms, place);
  } else if (end->event == NP_EVENT_TOO_BIG) {
    np_message_set(message, "killed during %s: it used %lld kB of memory, %lld kB are allowed",
                   place, (long long)end->used_kb, (long long)end->memory_kb);
  } else if (outcome->signal == SIGKILL) {
    np_message_set(message, "SIGKILL during %s: %s", place, probable_killer(end->used_kb));
  } else if (outcome->signal != 0) {
    np_message_set(message, "%s during %s", signal, place);
  } else {
    np_message_set(message, "the process ended itself with code %d during %s", outcome->exit_code,
                   place);
  }
}

/* Sets verdict, message and signal from how the process ended. */
static void judge(const struct np_process_end *end, struct np_result *result,
                  struct np_message *message, char signal[32]) {
  const struct np_record *record = end->view->record;
  struct np_message place;
  describe_stage(end->action, record, &place);
  result->message = message->text;
  result->words = end->outcome.words[0] != '\0' ? end->outcome.words : NULL;
  if (record->done) {
    result->verdict = (enum np_verdict)record->verdict;
    result->has_code = record->fault.has_code;
    result->code = record->fault.code;
    /* With one segment the stage alone says where. */
    const char *where = end->action->bundle.n_segments > 1 ? place.text : "";
    const int is_vague = result->has_code && result->code == ANEURALNETWORKS_OP_FAILED;
    np_message_set(message, "%s%s%s%s", where, where[0] ? ": " : "", record->fault.why.text,
                   is_vague ? VAGUE : "");
    return;
  }
  result->verdict = end->event == NP_EVENT_LATE ? NP_TIMED_OUT : NP_CRASHED;
  if (result->verdict == NP_CRASHED && end->outcome.signal != 0) {
    result->signal = np_signal_name(end->outcome.signal, signal, 32);
  }
  describe_end(end, place.text, result->signal, message);
}

static void fill_segments(const struct np_action *action, const struct np_record_view *view,
                          struct np_segment_result *segments) {
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    const size_t column = (size_t)s * view->room;
    const int compiled = view->compile_ns[s] != 0;
    segments[s] =
        (struct np_segment_result){.compiled = compiled,
                                   .compile_ns = compiled ? view->compile_ns[s] - 1 : 0,
                                   .samples_ns = view->samples_ns + column,
                                   .hardware_ns = view->hardware_ns + (size_t)s * NP_DURATION_RUNS,
                                   .driver_ns = view->driver_ns + (size_t)s * NP_DURATION_RUNS,
                                   .alone_ns = view->alone_ns ? view->alone_ns + column : NULL,
                                   .cpu_ns = view->cpu_ns ? view->cpu_ns + column : NULL,
                                   .facts = &view->facts[s]};
  }
}

static const char *health_text(enum np_health health) {
  switch (health) {
  case NP_HEALTH_BACK:
    return "back";
  case NP_HEALTH_SICK:
    return "sick";
  case NP_HEALTH_UNKNOWN:
  case NP_HEALTH_WELL:
    break;
  }
  return NULL;
}

static enum np_status no_line(enum np_status status, const struct np_action *action,
                              struct np_message *why) {
  if (status != NP_OK) {
    np_message_set(why, "cannot write the result of action %u", action->id);
  }
  return status;
}

enum np_status np_action_answer(const struct np_session *session, const struct np_process_end *end,
                                struct np_answers *answers, int *ok, struct np_message *why) {
  const struct np_action *action = end->action;
  const struct np_record *record = end->view->record;
  *ok = 0;
  struct np_segment_result *segments = calloc(action->bundle.n_segments, sizeof *segments);
  if (!segments) {
    return np_action_answer_unbegun(action, "no memory for its result", answers, why);
  }
  fill_segments(action, end->view, segments);
  struct np_result result = {
      .action = action->id,
      .attempts = end->attempt < MOST_ATTEMPTS ? end->attempt : MOST_ATTEMPTS,
      .driver = health_text(end->health),
      .stage = (enum np_stage)record->stage,
      .simulated = session->simulated,
      .n_segments = action->bundle.n_segments,
      .segments = segments,
      .frames = {.n_frames = record->n_runs,
                 .frames = end->view->frames,
                 .room = end->view->room,
                 .spans = end->view->spans,
                 .failure = record->frame_failure.text[0] != 0 ? record->frame_failure.text : NULL},
      .n_runs = end->view->frames ? 0 : record->n_runs,
      .n_durations = record->n_durations,
      .total_ns = end->view->total_ns,
      .copies_ns = (action->flags & NP_ACTION_COPIES) != 0 ? end->view->copies_ns : NULL,
      .first_ns = record->first_ns,
      .warmth = record->warmth,
      .n_rounds = end->n_rounds,
      .rounds = end->rounds,
      .cpu_mask = record->cpu_mask,
      .rss_peak_kb = end->outcome.rss_peak_kb,
      .before = end->before,
      .after = end->after,
      .kept = end->view->kept};
  struct np_message message;
  char signal[32];
  judge(end, &result, &message, signal);
  *ok = result.verdict == NP_VERDICT_OK;
  result.n_kept = *ok ? record->n_kept : 0;
  const enum np_status status = np_answer_result(answers, &result);
  free(segments);
  return no_line(status, action, why);
}

static enum np_status answer_unbegun(const struct np_action *action, const char *cause,
                                     const char *driver, struct np_answers *answers,
                                     struct np_message *why) {
  struct np_message message;
  np_message_set(&message, "setup: %s", cause);
  const struct np_readings unknown = {-1, -1, -1};
  const struct np_result result = {.action = action->id,
                                   .attempts = 1,
                                   .driver = driver,
                                   .verdict = NP_FAILED,
                                   .stage = NP_STAGE_SETUP,
                                   .message = message.text,
                                   .rss_peak_kb = -1,
                                   .before = unknown,
                                   .after = unknown};
  return no_line(np_answer_result(answers, &result), action, why);
}

enum np_status np_action_answer_unbegun(const struct np_action *action, const char *cause,
                                        struct np_answers *answers, struct np_message *why) {
  return answer_unbegun(action, cause, NULL, answers, why);
}

enum np_status np_action_answer_sick(const struct np_action *action, const char *accelerator,
                                     struct np_answers *answers, struct np_message *why) {
  struct np_message cause;
  np_message_set(&cause,
                 "not run: the driver %.64s fails what it ran before, or was waited for too long",
                 accelerator);
  return answer_unbegun(action, cause.text, "sick", answers, why);
}
