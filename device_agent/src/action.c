#include "action.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "perform.h"
#include "record.h"
#include "supervise.h"
#include "sysinfo.h"

struct job {
  const struct np_session *session;
  const struct np_action *action;
  const struct np_record_view *view;
};

static int perform(void *ctx) {
  const struct job *job = ctx;
  np_perform(job->session, job->action, job->view);
  return 0;
}

/* "compile of segment 1 (nnapi, sim-npu)". */
static void describe_place(const struct np_session *session, const struct np_action *action,
                           const struct np_record *record, struct np_message *place) {
  if (record->stage == NP_STAGE_SETUP) {
    np_message_set(place, "setup");
    return;
  }
  const struct np_segment *segment = &action->segments[record->segment];
  const char *what = record->stage == NP_STAGE_COMPILE ? "compile" : "run";
  if (segment->engine == NP_ENGINE_CPU) {
    np_message_set(place, "%s of segment %u (cpu)", what, record->segment);
  } else if (segment->accelerator == NP_NONE) {
    np_message_set(place, "%s of segment %u (nnapi, its own choice)", what, record->segment);
  } else {
    const struct np_text name = session->request->strings[segment->accelerator];
    const int length = name.length < 64 ? (int)name.length : 64;
    np_message_set(place, "%s of segment %u (nnapi, %.*s)", what, record->segment, length,
                   name.bytes);
  }
}

/* Sets verdict, message and signal from how the process ended. */
static void judge(const struct np_session *session, const struct np_action *action,
                  const struct np_record *record, const struct np_outcome *outcome,
                  struct np_result *result, struct np_message *message, char signal[32]) {
  struct np_message place;
  describe_place(session, action, record, &place);
  result->message = message->text;
  if (record->done) {
    result->verdict = (enum np_verdict)record->verdict;
    result->has_code = record->fault.has_code;
    result->code = record->fault.code;
    /* With one segment the stage says where already. */
    const char *where = action->n_segments > 1 ? place.text : "";
    np_message_set(message, "%s%s%s", where, where[0] ? ": " : "", record->fault.why.text);
  } else if (outcome->timed_out) {
    result->verdict = NP_TIMED_OUT;
    np_message_set(message, "not done after %u ms, in %s", action->timeout_ms, place.text);
  } else if (outcome->signal != 0) {
    result->verdict = NP_CRASHED;
    result->signal = np_signal_name(outcome->signal, signal, 32);
    np_message_set(message, "%s during %s", result->signal, place.text);
  } else {
    result->verdict = NP_CRASHED;
    np_message_set(message, "the process ended itself with code %d during %s", outcome->exit_code,
                   place.text);
  }
}

static void fill_segments(const struct np_action *action, const struct np_record_view *view,
                          struct np_segment_result *segments) {
  for (uint32_t s = 0; s < action->n_segments; s++) {
    const size_t column = (size_t)s * action->max_runs;
    const int compiled = view->compile_ns[s] != 0;
    segments[s] = (struct np_segment_result){.compiled = compiled,
                                             .compile_ns = compiled ? view->compile_ns[s] - 1 : 0,
                                             .samples_ns = view->samples_ns + column,
                                             .hardware_ns = view->hardware_ns + column,
                                             .driver_ns = view->driver_ns + column,
                                             .kernels = action->segments[s].engine == NP_ENGINE_CPU
                                                            ? np_cpu_engine(NULL).kernels
                                                            : NULL};
  }
}

/* What the simulated phone told, as the answer has it: -1 where nothing was read. */
static void take_readings(const struct np_record *record, struct np_result *result) {
  for (int i = 0; i < 2; i++) {
    result->cpu_khz[i] = record->cpu_khz[i] > 0 ? record->cpu_khz[i] : -1;
    result->thermal_mc[i] = record->thermal_mc[i] > 0 ? record->thermal_mc[i] : -1;
  }
}

static enum np_status run_recorded(const struct np_session *session, const struct np_action *action,
                                   const struct np_record_view *view,
                                   struct np_segment_result *segments, struct np_answers *answers,
                                   int *ok, struct np_message *why) {
  struct np_result result = {.action = action->id, .simulated = session->simulated};
  const int real = !session->simulated; /* this host's readings say nothing about the phone */
  struct job job = {.session = session, .action = action, .view = view};
  struct np_outcome outcome;
  result.cpu_khz[0] = real ? np_cpu_now_khz(action->cpu_mask) : -1;
  result.thermal_mc[0] = real ? np_thermal_mc() : -1;
  const enum np_status status =
      np_supervise(perform, &job, action->timeout_ms, answers->fd, &outcome, why);
  if (status != NP_OK)
    return status;
  if (outcome.abandoned) {
    np_message_set(why, "nobody reads the answers any more");
    return NP_IO;
  }
  result.cpu_khz[1] = real ? np_cpu_now_khz(action->cpu_mask) : -1;
  result.thermal_mc[1] = real ? np_thermal_mc() : -1;

  np_record_sanitize(view, action);
  if (session->simulated)
    take_readings(view->record, &result);
  struct np_message message;
  char signal[32];
  judge(session, action, view->record, &outcome, &result, &message, signal);
  fill_segments(action, view, segments);
  result.stage = (enum np_stage)view->record->stage;
  result.n_segments = action->n_segments;
  result.segments = segments;
  result.n_runs = view->record->n_runs;
  result.total_ns = view->total_ns;
  result.first_ns = view->record->first_ns;
  result.rss_peak_kb = outcome.rss_peak_kb;
  result.n_kept = result.verdict == NP_VERDICT_OK ? view->record->n_kept : 0;
  result.kept = view->kept;
  *ok = result.verdict == NP_VERDICT_OK;
  const enum np_status answered = np_answer_result(answers, &result);
  if (answered != NP_OK)
    np_message_set(why, "cannot write the result of action %u", action->id);
  return answered;
}

/* The line of an action that could not even begin. */
static enum np_status answer_no_memory(const struct np_action *action, struct np_answers *answers,
                                       struct np_message *why) {
  struct np_message message;
  np_message_set(&message, "setup: no memory for %u samples of each of %u segments",
                 action->max_runs, action->n_segments);
  const struct np_result result = {.action = action->id,
                                   .verdict = NP_FAILED,
                                   .stage = NP_STAGE_SETUP,
                                   .message = message.text,
                                   .rss_peak_kb = -1,
                                   .cpu_khz = {-1, -1},
                                   .thermal_mc = {-1, -1}};
  const enum np_status status = np_answer_result(answers, &result);
  if (status != NP_OK)
    np_message_set(why, "cannot write the result of action %u", action->id);
  return status;
}

enum np_status np_action_run(const struct np_session *session, const struct np_action *action,
                             struct np_answers *answers, int *ok, struct np_message *why) {
  *ok = 0;
  struct np_record_view view;
  if (np_record_make(action, &view) != NP_OK)
    return answer_no_memory(action, answers, why);
  enum np_status status;
  struct np_segment_result *segments = calloc(action->n_segments, sizeof *segments);
  if (segments) {
    status = run_recorded(session, action, &view, segments, answers, ok, why);
  } else {
    status = answer_no_memory(action, answers, why);
  }
  free(segments);
  np_record_free(&view);
  return status;
}
