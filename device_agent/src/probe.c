#include "probe.h"

#include <stdio.h>
#include <string.h>

#include "simulator.h"
#include "stall.h"
#include "supervise.h"
#include "sysinfo.h"

/* A driver that dies while the devices are listed may soon be back, so listing is retried up to
 * five times within a second. */
#define FIRST_PAUSE_NS 32000000u
#define LONGEST_PAUSE_NS 512000000u

const char *const np_property_names[NP_N_PROPERTIES] = {
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.build.fingerprint",
    "ro.board.platform",
    "ro.hardware",
    "ro.build.version.release",
    "ro.soc.model",
    "ro.build.version.sdk",
};

struct job {
  const char *library;
  struct np_probe *probe; /* shared with the parent */
};

static void copy_text(char *to, size_t size, const char *text) {
  (void)snprintf(to, size, "%s", text ? text : "");
}

static void describe_simulation(struct np_simulator *simulator, struct np_probe *probe) {
  const char *error = np_simulator_error(simulator);
  if (error) {
    np_message_set(&probe->error, "%s", error);
    probe->broken_phone = 1;
    return;
  }
  const char *phone = np_simulator_phone(simulator);
  if (!phone) {
    return;
  }
  probe->simulated = 1;
  copy_text(probe->phone, sizeof probe->phone, phone);
  if (simulator->identity) {
    copy_text(probe->identity, sizeof probe->identity, simulator->identity());
  }
  probe->readings = np_simulator_readings(simulator);
  probe->cores = simulator->cores ? simulator->cores() : -1;
  probe->half = simulator->half && simulator->half() ? NP_HALF_NATIVE : NP_HALF_NONE;
  for (uint32_t i = 0; simulator->property && i < NP_N_PROPERTIES; i++) {
    copy_text(probe->properties[i], sizeof probe->properties[i],
              simulator->property(np_property_names[i]));
  }
}

/* Runs in the child. */
static int describe(void *ctx) {
  const struct job *job = ctx;
  struct np_probe *probe = job->probe;
  struct np_nnapi *nnapi;
  probe->half = np_half_arithmetic();
  if (np_nnapi_open(job->library, &nnapi, &probe->error) != NP_OK) {
    return 0;
  }
  copy_text(probe->library, sizeof probe->library, np_nnapi_path(nnapi));
  probe->door = np_nnapi_door(nnapi);
  for (uint32_t i = 0; i < np_nnapi_n_functions() && i < NP_PROBE_MAX_FUNCTIONS; i++) {
    probe->absent[i] = !np_nnapi_has_function(nnapi, i);
  }
  probe->opened = 1;
  struct np_simulator simulator = np_simulator_of(nnapi);
  describe_simulation(&simulator, probe);
  if (!probe->broken_phone) {
    uint32_t n = 0;
    (void)np_nnapi_accelerators(nnapi, probe->accelerators, NP_PROBE_MAX_ACCELERATORS, &n,
                                &probe->error); /* probe->error reports a failure */
    probe->n_accelerators = n < NP_PROBE_MAX_ACCELERATORS ? n : NP_PROBE_MAX_ACCELERATORS;
  }
  np_nnapi_close(nnapi);
  return 0;
}

/* Terminates every text, since a crashed child may have left anything. */
static void terminate_texts(struct np_probe *probe) {
  probe->error.text[sizeof probe->error.text - 1] = 0;
  probe->library[sizeof probe->library - 1] = 0;
  probe->phone[sizeof probe->phone - 1] = 0;
  probe->identity[sizeof probe->identity - 1] = 0;
  for (uint32_t i = 0; i < NP_N_PROPERTIES; i++) {
    probe->properties[i][sizeof probe->properties[i] - 1] = 0;
  }
  if (probe->half > NP_HALF_NATIVE) {
    probe->half = NP_HALF_NONE;
  }
  if (probe->n_accelerators > NP_PROBE_MAX_ACCELERATORS) {
    probe->n_accelerators = 0;
  }
  for (uint32_t i = 0; i < probe->n_accelerators; i++) {
    struct np_accelerator *accelerator = &probe->accelerators[i];
    accelerator->name[sizeof accelerator->name - 1] = 0;
    accelerator->version[sizeof accelerator->version - 1] = 0;
  }
}

static enum np_status ask(const char *library, struct np_probe *probe, struct np_message *why) {
  memset(probe, 0, sizeof *probe);
  struct np_probe *shared = np_shared_memory(sizeof *shared);
  NP_REQUIRE(shared, NP_NO_MEMORY, why, "no memory to ask the NNAPI library");
  struct job job = {.library = library, .probe = shared};
  const struct np_watch watch = {
      .timeout_ms = NP_PROBE_TIMEOUT_MS, .reader_fd = -1, .memory_kb = np_memory_share_kb()};
  enum np_event event;
  struct np_outcome outcome;
  const enum np_status status = np_supervise(describe, &job, &watch, &event, &outcome, why);
  if (status == NP_OK) {
    *probe = *shared;
  }
  np_shared_free(shared, sizeof *shared);
  NP_TRY(status);

  terminate_texts(probe);
  const char *name = library ? library : NP_NNAPI_LIBRARY;
  char text[32];
  if (event == NP_EVENT_TOO_BIG) {
    np_message_set(&probe->error,
                   "%s wanted more memory than there is when asked for its accelerators", name);
  } else if (event == NP_EVENT_LATE) {
    char driver[NP_STALL_BYTES];
    const int is_known = np_stalled_driver(library, driver);
    probe->stalled = 1;
    np_message_set(&probe->error, "%s did not answer within %u s: %s%s hangs", name,
                   NP_PROBE_TIMEOUT_MS / 1000, is_known ? "the driver " : "a driver",
                   is_known ? driver : "");
  } else if (outcome.signal != 0) {
    np_message_set(&probe->error, "%s crashed when asked for its accelerators: %s", name,
                   np_signal_name(outcome.signal, text, sizeof text));
  } else if (outcome.exit_code != 0) {
    np_message_set(&probe->error, "%s ended the process that opened it, with code %d", name,
                   outcome.exit_code);
  }
  return NP_OK;
}

enum np_status np_probe_library(const char *library, struct np_probe *probe,
                                struct np_message *why) {
  enum np_status status = ask(library, probe, why);
  for (uint64_t ns = FIRST_PAUSE_NS; ns <= LONGEST_PAUSE_NS && status == NP_OK; ns *= 2) {
    if (!probe->opened || probe->error.text[0] == 0 || probe->stalled || probe->broken_phone) {
      break;
    }
    np_sleep_ns(ns);
    status = ask(library, probe, why);
  }
  return status;
}

const struct np_accelerator *np_probe_find(const struct np_accelerator *list, uint32_t n,
                                           const char *name) {
  for (uint32_t i = 0; i < n; i++) {
    if (strcmp(list[i].name, name) == 0) {
      return &list[i];
    }
  }
  return NULL;
}

/* Whether segments of a bundle need an accelerator. */
static int is_needed(const struct np_bundle *bundle, const char *name) {
  for (uint32_t s = 0; s < bundle->n_segments; s++) {
    const struct np_bundle_segment *segment = &bundle->segments[s];
    if (segment->engine == NP_BUNDLE_NNAPI &&
        (!segment->accelerator || strcmp(segment->accelerator, name) == 0)) {
      return 1;
    }
  }
  return 0;
}

static int has_choice(const struct np_bundle *bundle) { return is_needed(bundle, ""); }

int np_probe_is_same(const struct np_probe *before, const struct np_nnapi *nnapi,
                     const struct np_bundle *bundle, struct np_message *why) {
  struct np_accelerator now[NP_PROBE_MAX_ACCELERATORS];
  uint32_t n = 0;
  if (before->error.text[0] != 0 ||
      np_nnapi_accelerators(nnapi, now, NP_PROBE_MAX_ACCELERATORS, &n, why) != NP_OK) {
    why->text[0] = 0; /* compilation will report the consequence */
    return 1;
  }
  n = n < NP_PROBE_MAX_ACCELERATORS ? n : NP_PROBE_MAX_ACCELERATORS;
  for (uint32_t i = 0; i < before->n_accelerators; i++) {
    const struct np_accelerator *old = &before->accelerators[i];
    const struct np_accelerator *same = np_probe_find(now, n, old->name);
    if (is_needed(bundle, old->name) && (!same || strcmp(same->version, old->version) != 0)) {
      np_message_set(why, "the accelerator %s of version %s is %s%s now", old->name, old->version,
                     same ? "version " : "gone", same ? same->version : "");
      return 0;
    }
  }
  for (uint32_t i = 0; i < n && has_choice(bundle); i++) {
    if (!np_probe_find(before->accelerators, before->n_accelerators, now[i].name)) {
      np_message_set(why, "there is an accelerator %s now", now[i].name);
      return 0;
    }
  }
  return 1;
}
