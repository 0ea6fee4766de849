#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers.h"
#include "probe.h"
#include "stall.h"
#include "timing.h"

/* Together with NP_PROBE_TIMEOUT_MS this is within the 30 s for which a request may hang. */
#define SILENCE_MS 5000u
#define RETURN_MS 10000u /* init restarts a service within 5 s */
/* Pause between two checks, doubled each time: most services are back at once. */
#define FIRST_PAUSE_MS 20u
#define LONGEST_PAUSE_MS 320u

static uint64_t now_ms(void) { return np_now_ns() / 1000000u; }

/* Returns a number that changes while an action makes progress. */
static uint64_t progress_of(const struct np_record_view *view) {
  const struct np_record *record = view->record;
  return ((uint64_t)__atomic_load_n(&record->started_runs, __ATOMIC_ACQUIRE) << 32) +
         ((uint64_t)__atomic_load_n(&record->segment, __ATOMIC_ACQUIRE) << 8) +
         __atomic_load_n(&record->stage, __ATOMIC_ACQUIRE) +
         ((uint64_t)__atomic_load_n(&record->warmth.runs, __ATOMIC_ACQUIRE) << 32);
}

void np_tell_stall(const struct np_session *session, const char *asked, struct np_message *why) {
  char name[NP_STALL_BYTES];
  const char *const what = "NNAPI lists no accelerator while it does; restart the phone";
  if (np_stalled_driver(session->library, name)) {
    np_message_set(why, "the driver %s hangs: %s", name, what);
  } else if (asked) {
    np_message_set(why, "a driver hangs, perhaps not %s, which was busy: %s", asked, what);
  } else {
    np_message_set(why, "a driver hangs: %s", what);
  }
}

/* ---- Waiting ---- */

/* Returns the accelerator that an action is using, NULL if it names none. */
static const char *busy_with(const struct np_action *action, const struct np_record_view *view) {
  const uint32_t s = __atomic_load_n(&view->record->segment, __ATOMIC_ACQUIRE);
  return s < action->bundle.n_segments ? action->bundle.segments[s].accelerator : NULL;
}

enum np_status np_watch_turn(const struct np_session *session, const struct np_action *action,
                             const struct np_record_view *view, struct np_child *child,
                             uint32_t turn, const struct np_watch *watch,
                             struct np_answers *answers, enum np_event *event,
                             struct np_message *why) {
  const uint64_t start = now_ms();
  for (;;) {
    const uint64_t spent_ms = now_ms() - start;
    const uint64_t before = progress_of(view);
    struct np_watch slice = *watch;
    const uint64_t left_ms = spent_ms < watch->timeout_ms ? watch->timeout_ms - spent_ms : 0;
    slice.timeout_ms = left_ms < SILENCE_MS ? (uint32_t)left_ms : SILENCE_MS;
    *event = np_child_wait(child, turn, &slice);
    if (*event != NP_EVENT_LATE || now_ms() - start >= watch->timeout_ms) {
      return NP_OK;
    }
    np_message_set(why, "cannot write an answer");
    enum np_status status = np_answer_wait(answers, action->id, now_ms() - start);
    if (status == NP_OK && np_uses_nnapi(action) && progress_of(view) == before) {
      struct np_probe *probe = calloc(1, sizeof *probe);
      status = probe ? np_probe_library(session->library, probe, why) : NP_NO_MEMORY;
      if (status == NP_OK && probe->stalled) {
        np_tell_stall(session, busy_with(action, view), why);
        status = NP_STALLED;
      }
      free(probe);
    }
    NP_TRY(status);
  }
}

static int lists(const struct np_probe *probe, const char *name) {
  return np_probe_find(probe->accelerators, probe->n_accelerators, name) != NULL;
}

static int lists_all(const struct np_probe *probe, const struct np_probe *before) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < before->n_accelerators; i++) {
    n += (uint32_t)lists(probe, before->accelerators[i].name);
  }
  return n == before->n_accelerators;
}

/* Returns whether an accelerator that the action needs (NNAPI's choice needs all) is not listed but
 * may return; with `give_up`, marks it so that no one waits for it again. */
static int is_awaited(const struct np_session *session, const struct np_action *action,
                      const struct np_probe *probe, int give_up) {
  int awaited = 0;
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    const struct np_bundle_segment *segment = &action->bundle.segments[s];
    const int is_there = segment->engine != NP_BUNDLE_NNAPI ||
                         (segment->accelerator ? lists(probe, segment->accelerator)
                                               : lists_all(probe, session->probe));
    if (!is_there) {
      struct np_driver *driver = np_driver_of(session->drivers, segment);
      driver->gone |= (uint32_t)give_up;
      awaited |= !driver->gone;
    }
  }
  return awaited;
}

enum np_status np_await_drivers(const struct np_session *session, const struct np_action *action,
                                struct np_message *why) {
  uint32_t next_ms = FIRST_PAUSE_MS;
  np_sleep_ns(UINT64_C(1000000) * next_ms);
  if (!np_uses_nnapi(action)) {
    return NP_OK;
  }
  struct np_probe *probe = calloc(1, sizeof *probe);
  NP_REQUIRE(probe, NP_NO_MEMORY, why, "no memory to ask the NNAPI library");
  const uint64_t start = now_ms();
  const uint64_t most = action->timeout_ms < RETURN_MS ? action->timeout_ms : RETURN_MS;
  enum np_status status;
  for (;;) {
    status = np_probe_library(session->library, probe, why);
    if (status == NP_OK && probe->stalled) {
      np_tell_stall(session, NULL, why);
      status = NP_STALLED;
    }
    if (status != NP_OK || !is_awaited(session, action, probe, now_ms() - start >= most)) {
      break;
    }
    next_ms = next_ms < LONGEST_PAUSE_MS ? 2 * next_ms : next_ms;
    np_sleep_ns(UINT64_C(1000000) * next_ms);
  }
  np_drivers_lose(session->drivers, action,
                  UINT64_C(1000000) * (FIRST_PAUSE_MS + now_ms() - start));
  free(probe);
  return status;
}
