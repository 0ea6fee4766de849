#include "result.h"

#include <stdio.h>
#include <stdlib.h>

#include "answer.h"
#include "blobs.h"
#include "drivers.h"
#include "json.h"
#include "record.h"
#include "request.h"
#include "stall.h"

struct np_answers np_answers_to(int fd) {
  return (struct np_answers){.fd = fd, .line = NULL, .n_bytes = 0, .capacity = 0, .no_memory = 0};
}

void np_answers_free(struct np_answers *answers) {
  free(answers->line);
  answers->line = NULL;
  answers->capacity = 0;
}

void np_kept_name(uint32_t action, uint32_t tensor, char name[32]) {
  (void)snprintf(name, 32, "%u-%u.bin", action, tensor);
}

void np_answer_begin(struct np_answers *answers, const char *type) {
  answers->n_bytes = 0;
  answers->no_memory = 0;
  np_json_open(answers, NULL, '{');
  np_json_string(answers, "type", type);
}

enum np_status np_answer_finish(struct np_answers *answers) {
  np_json_close(answers, '}');
  np_json_close(answers, '\n');
  if (answers->no_memory) {
    return NP_NO_MEMORY;
  }
  return np_write_fully(answers->fd, answers->line, answers->n_bytes) == 0 ? NP_OK : NP_IO;
}

enum np_status np_answer_hello(struct np_answers *answers, uint32_t n_actions, const char *phone,
                               uint32_t n, const struct np_accelerator *accelerators) {
  np_answer_begin(answers, "hello");
  np_json_unsigned(answers, "protocol", NP_PROTOCOL_VERSION);
  np_json_string(answers, "agent", NP_AGENT_VERSION);
  np_json_unsigned(answers, "actions", n_actions);
  np_json_bool(answers, "simulated", phone != NULL);
  np_json_string(answers, "phone", phone);
  if (accelerators) {
    np_answer_accelerators(answers, n, accelerators);
  } else {
    np_json_null(answers, "accelerators");
  }
  return np_answer_finish(answers);
}

enum np_status np_answer_missing(struct np_answers *answers, const uint8_t *const *sha256,
                                 uint32_t n) {
  np_answer_begin(answers, "missing");
  np_json_open(answers, "blobs", '[');
  for (uint32_t i = 0; i < n; i++) {
    char hex[2 * NP_SHA256_BYTES + 1];
    np_sha256_hex(sha256[i], hex);
    np_json_string(answers, NULL, hex);
  }
  np_json_close(answers, ']');
  return np_answer_finish(answers);
}

enum np_status np_answer_start(struct np_answers *answers, uint32_t action) {
  np_answer_begin(answers, "start");
  np_json_unsigned(answers, "action", action);
  return np_answer_finish(answers);
}

enum np_status np_answer_wait(struct np_answers *answers, uint32_t action, uint64_t ms) {
  np_answer_begin(answers, "wait");
  np_json_unsigned(answers, "action", action);
  np_json_unsigned(answers, "ms", ms);
  return np_answer_finish(answers);
}

/* Adds the facts about each driver that differ from a first request's assumptions. */
static void add_drivers(struct np_answers *answers, const struct np_ending *ending) {
  const struct np_drivers *drivers = ending->drivers;
  np_json_open(answers, "drivers", '[');
  for (uint32_t d = 0; drivers && d <= drivers->n; d++) {
    const struct np_driver *driver = &drivers->each[d];
    if (driver->room == NP_FIRST_ROOM && driver->memory == NP_SHM_UNKNOWN && !driver->sick &&
        driver->lost_ns == 0) {
      continue;
    }
    np_json_open(answers, NULL, '{');
    np_json_string(answers, "accelerator", driver->name);
    np_json_unsigned(answers, "room", driver->room);
    np_json_string(answers, "memory",
                   driver->memory == NP_SHM_UNKNOWN ? NULL : np_shm_text(driver->memory));
    np_json_string(answers, "state",
                   driver->sick                ? "sick"
                   : np_driver_is_slow(driver) ? "slow"
                                               : NULL);
    np_json_unsigned(answers, "lost_ms", driver->lost_ns / 1000000u);
    np_json_close(answers, '}');
  }
  np_json_close(answers, ']');
}

enum np_status np_answer_end(struct np_answers *answers, const struct np_ending *ending) {
  np_answer_begin(answers, "end");
  np_json_unsigned(answers, "actions", ending->actions);
  np_json_unsigned(answers, "ok", ending->ok);
  np_json_unsigned(answers, "failed", ending->actions - ending->ok);
  np_json_unsigned(answers, "waited_ms", ending->waited_ns / 1000000u);
  np_json_bool(answers, "fruitless", ending->fruitless);
  np_json_unsigned(answers, "simulated_ms", ending->simulated_ns / 1000000u);
  np_json_open(answers, "allowed_khz", '[');
  for (uint32_t i = 0; i < ending->n_seen; i++) {
    np_json_known(answers, NULL, ending->allowed_khz[i]);
  }
  np_json_close(answers, ']');
  add_drivers(answers, ending);
  return np_answer_finish(answers);
}

enum np_status np_answer_error(struct np_answers *answers, const char *message) {
  np_answer_begin(answers, "error");
  np_json_string(answers, "message", message);
  return np_answer_finish(answers);
}

static const char *verdict_text(enum np_verdict verdict) {
  switch (verdict) {
  case NP_VERDICT_OK:
    return "ok";
  case NP_REFUSED:
    return "refused";
  case NP_FAILED:
    return "failed";
  case NP_CRASHED:
    return "crashed";
  case NP_TIMED_OUT:
    break;
  }
  return "timeout";
}

static const char *stage_text(enum np_stage stage) {
  switch (stage) {
  case NP_STAGE_SETUP:
    return "setup";
  case NP_STAGE_COMPILE:
    return "compile";
  case NP_STAGE_EXECUTE:
    break;
  }
  return "execute";
}

static void add_samples(struct np_answers *answers, const char *key, const uint64_t *values,
                        uint32_t n) {
  np_json_open(answers, key, '[');
  for (uint32_t i = 0; i < n; i++) {
    np_json_unsigned(answers, NULL, values[i]);
  }
  np_json_close(answers, ']');
}

/* Adds durations, or an empty list if the driver did not report all of them, or reports 0 for
 * all. */
static void add_durations(struct np_answers *answers, const char *key, const uint64_t *values,
                          uint32_t n) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    n = values[i] == NP_NO_DURATION ? 0 : n;
    most = values[i] > most ? values[i] : most;
  }
  add_samples(answers, key, values, most == 0 ? 0 : n);
}

static void add_segment(struct np_answers *answers, const struct np_segment_result *segment,
                        uint32_t n_runs, uint32_t n_durations) {
  np_json_open(answers, NULL, '{');
  np_json_known(answers, "compile_ns", segment->compiled ? (int64_t)segment->compile_ns : -1);
  add_samples(answers, "samples_ns", segment->samples_ns, n_runs);
  add_durations(answers, "hardware_ns", segment->hardware_ns, n_durations);
  add_durations(answers, "driver_ns", segment->driver_ns, n_durations);
  if (segment->alone_ns) {
    add_samples(answers, "alone_ns", segment->alone_ns, n_runs);
    add_samples(answers, "cpu_ns", segment->cpu_ns, n_runs);
  }
  if (segment->compiled && segment->facts->has_kernels) {
    np_json_open(answers, "kernels", '{');
    np_json_unsigned(answers, "xnnpack", segment->facts->n_xnnpack);
    np_json_unsigned(answers, "portable", segment->facts->n_portable);
    np_json_close(answers, '}');
  } else {
    np_json_null(answers, "kernels");
  }
  np_json_string(answers, "memory",
                 np_shm_text(segment->compiled ? segment->facts->memory : NP_SHM_POINTERS));
  np_json_close(answers, '}');
}

static void add_pair(struct np_answers *answers, const char *key, int64_t before, int64_t after) {
  np_json_open(answers, key, '[');
  np_json_known(answers, NULL, before);
  np_json_known(answers, NULL, after);
  np_json_close(answers, ']');
}

static void add_readings(struct np_answers *answers, const struct np_readings *before,
                         const struct np_readings *after) {
  add_pair(answers, "cpu_khz", before->cpu_khz, after->cpu_khz);
  add_pair(answers, "thermal_mc", before->thermal_mc, after->thermal_mc);
}

void np_answer_flag(struct np_answers *answers, const char *key, int yes) {
  if (yes < 0) {
    np_json_null(answers, key);
  } else {
    np_json_bool(answers, key, yes);
  }
}

/* A mask of CPUs as text, null for none. */
void np_answer_mask(struct np_answers *answers, const char *key, uint64_t mask) {
  char text[32];
  (void)snprintf(text, sizeof text, "0x%llx", (unsigned long long)mask);
  np_json_string(answers, key, mask == 0 ? NULL : text);
}

static void add_round(struct np_answers *answers, const struct np_round *round) {
  np_json_open(answers, NULL, '{');
  np_json_unsigned(answers, "runs", round->runs);
  add_readings(answers, &round->before, &round->after);
  np_answer_flag(answers, "throttled", round->throttled);
  np_answer_flag(answers, "moved", round->moved);
  np_answer_mask(answers, "cpus", round->pace.cpus);
  if (round->repeats == NP_NONE) {
    np_json_null(answers, "repeats");
  } else {
    np_json_unsigned(answers, "repeats", round->repeats);
  }
  np_json_close(answers, '}');
}

static void add_kept(struct np_answers *answers, uint32_t action,
                     const struct np_kept_output *kept) {
  char name[32];
  char hex[2 * NP_SHA256_BYTES + 1];
  np_kept_name(action, kept->tensor, name);
  np_sha256_hex(kept->sha256, hex);
  np_json_open(answers, NULL, '{');
  np_json_unsigned(answers, "tensor", kept->tensor);
  np_json_string(answers, "file", name);
  np_json_unsigned(answers, "n_bytes", kept->n_bytes);
  np_json_string(answers, "sha256", hex);
  np_json_close(answers, '}');
}

static void add_frames(struct np_answers *answers, const struct np_result *result) {
  static const char *const outcomes[] = {"same", "differs", "failed"};
  const struct np_frames_result *all = &result->frames;
  np_json_open(answers, "frames", '{');
#define LIST(key, add, value)                                                                      \
  np_json_open(answers, key, '[');                                                                 \
  for (uint32_t i = 0; i < all->n_frames; i++) {                                                   \
    add(answers, NULL, value);                                                                     \
  }                                                                                                \
  np_json_close(answers, ']')
  LIST("plan", np_json_unsigned, all->frames[i].plan);
  LIST("outcome", np_json_string, outcomes[all->frames[i].outcome]);
  LIST("begin_ns", np_json_unsigned, all->frames[i].begin_ns);
  LIST("end_ns", np_json_unsigned, all->frames[i].end_ns);
#undef LIST
  np_json_open(answers, "spans", '[');
  for (uint32_t s = 0; s < result->n_segments; s++) {
    np_json_open(answers, NULL, '[');
    for (uint32_t i = 0; i < all->n_frames; i++) {
      const struct np_frame_span *span = &all->spans[(size_t)s * all->room + i];
      if (span->end_ns != 0) {
        np_json_unsigned(answers, NULL, i);
        np_json_unsigned(answers, NULL, span->begin_ns);
        np_json_unsigned(answers, NULL, span->end_ns);
      }
    }
    np_json_close(answers, ']');
  }
  np_json_close(answers, ']');
  np_json_string(answers, "failure", all->failure);
  np_json_close(answers, '}');
}

enum np_status np_answer_result(struct np_answers *answers, const struct np_result *result) {
  np_answer_begin(answers, "result");
  np_json_unsigned(answers, "action", result->action);
  np_json_string(answers, "status", verdict_text(result->verdict));
  np_json_unsigned(answers, "attempts", result->attempts);
  np_json_string(answers, "driver", result->driver);
  if (result->verdict != NP_VERDICT_OK) {
    np_json_string(answers, "stage", stage_text(result->stage));
    np_json_string(answers, "message", result->message);
    np_json_string(answers, "words", result->words);
  }
  if (result->has_code) {
    np_json_signed(answers, "code", result->code);
  } else {
    np_json_null(answers, "code");
  }
  np_json_string(answers, "signal", result->signal);
  np_json_string(answers, "clock", result->simulated ? "simulated" : "monotonic");
  np_json_open(answers, "segments", '[');
  for (uint32_t i = 0; i < result->n_segments; i++) {
    add_segment(answers, &result->segments[i], result->n_runs, result->n_durations);
  }
  np_json_close(answers, ']');
  if (result->frames.frames) {
    add_frames(answers, result);
  }
  add_samples(answers, "total_ns", result->total_ns, result->n_runs);
  add_samples(answers, "copies_ns", result->copies_ns, result->copies_ns ? result->n_runs : 0);
  np_json_known(answers, "first_ns", result->first_ns ? (int64_t)result->first_ns : -1);
  np_json_unsigned(answers, "warmup_runs", result->warmth.runs);
  np_json_bool(answers, "warm", result->warmth.stable != 0);
  np_json_open(answers, "rounds", '[');
  for (uint32_t i = 0; i < result->n_rounds; i++) {
    add_round(answers, &result->rounds[i]);
  }
  np_json_close(answers, ']');
  np_answer_mask(answers, "cpu_mask", result->cpu_mask);
  np_json_known(answers, "rss_peak_kb", result->rss_peak_kb);
  add_readings(answers, &result->before, &result->after);
  np_json_open(answers, "outputs", '[');
  for (uint32_t i = 0; i < result->n_kept; i++) {
    add_kept(answers, result->action, &result->kept[i]);
  }
  np_json_close(answers, ']');
  return np_answer_finish(answers);
}

enum np_status np_answer_cleaned(struct np_answers *answers, uint64_t files, uint64_t bytes,
                                 uint64_t kept_bytes) {
  np_answer_begin(answers, "cleaned");
  np_json_unsigned(answers, "files", files);
  np_json_unsigned(answers, "bytes", bytes);
  np_json_unsigned(answers, "kept_bytes", kept_bytes);
  return np_answer_finish(answers);
}
