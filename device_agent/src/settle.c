#define _POSIX_C_SOURCE 200809L

#include "settle.h"

#include <time.h>

#include "drivers.h"
#include "perform.h"
#include "timing.h"

#define SETTLE_NS UINT64_C(2000000000)
#define SETUP_MS 2000u
#define PAUSE_NS 20000000
#define ROUNDS 100u
#define RUNS 3u
#define NEAR_PERCENT 110u /* of the time before */
/* Between two questions whether a driver is back: init restarts a service within 5 s. */
#define FIRST_PAUSE_NS UINT64_C(50000000)
#define RETURN_NS UINT64_C(6000000000)

/* A gauge's process. */
struct gauge {
  const struct np_session *session;
  struct np_action action;
  struct np_record_view view;
};

static int perform(void *ctx, struct np_link *link) {
  const struct gauge *gauge = ctx;
  np_perform(gauge->session, &gauge->action, &gauge->view, link);
  return 0;
}

static uint64_t now_ns(void) {
  const struct np_clock clock = np_monotonic_clock();
  return clock.now_ns(clock.ctx);
}

static void pause_ns(uint64_t ns) {
  const struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
  (void)nanosleep(&pause, NULL);
}

static uint64_t shortest(const uint64_t *values, uint32_t from, uint32_t n) {
  uint64_t least = UINT64_MAX;
  for (uint32_t i = from; i < n; i++) {
    least = values[i] < least ? values[i] : least;
  }
  return least;
}

void np_settle_gauge(const struct np_session *session, const struct np_action *action,
                     const struct np_record_view *view) {
  if (action->bundle.n_segments != 1 || view->frames ||
      action->bundle.segments[0].engine != NP_BUNDLE_NNAPI || view->record->n_runs == 0) {
    return;
  }
  struct np_driver *driver = np_driver_of(session->drivers, &action->bundle.segments[0]);
  const uint64_t ns = shortest(view->total_ns, 0, view->record->n_runs);
  /* The shortest costs the least. */
  if (!driver->gauge || driver->gauge_ns == 0 || ns < driver->gauge_ns) {
    driver->gauge = action;
    driver->gauge_ns = ns;
  }
}

static struct gauge gauge_of(const struct np_session *session, const struct np_driver *driver) {
  struct gauge gauge = {.session = session, .action = *driver->gauge};
  gauge.action.flags = 0;
  gauge.action.rounds = ROUNDS;
  gauge.action.cooldown_ms = 0;
  gauge.action.warmup_min = gauge.action.warmup_max = 1;
  gauge.action.warm_ns = gauge.action.spin_ns = 0;
  gauge.action.min_runs = gauge.action.max_runs = ROUNDS * RUNS;
  return gauge;
}

/* Runs rounds of a gauge until one is as fast as before, or the time is over. */
static void run_until_near(struct gauge *gauge, struct np_child *child, uint64_t gauge_ns,
                           uint64_t end_ns) {
  struct np_record *record = gauge->view.record;
  const struct np_watch watch = {.timeout_ms = SETUP_MS, .reader_fd = -1, .memory_kb = -1};
  uint32_t turns = 1;
  if (np_child_wait(child, turns, &watch) != NP_EVENT_REACHED) {
    return;
  }
  while (turns <= ROUNDS && !__atomic_load_n(&record->done, __ATOMIC_ACQUIRE)) {
    const uint32_t before = __atomic_load_n(&record->n_runs, __ATOMIC_ACQUIRE);
    __atomic_store_n(&record->command, (uint32_t)NP_COMMAND_ROUND, __ATOMIC_RELEASE);
    np_child_send(child);
    if (np_child_wait(child, ++turns, &watch) != NP_EVENT_REACHED) {
      return;
    }
    const uint32_t n = __atomic_load_n(&record->n_runs, __ATOMIC_ACQUIRE);
    const uint64_t ns = shortest(gauge->view.total_ns, before, n < gauge->view.room ? n : 0);
    if (ns <= gauge_ns / 100u * NEAR_PERCENT || now_ns() >= end_ns) {
      return;
    }
    pause_ns(PAUSE_NS);
  }
}

static void settle_driver(const struct np_session *session, const struct np_driver *driver,
                          int busy) {
  const uint64_t end_ns = now_ns() + SETTLE_NS;
  if (!driver->gauge || driver->gauge_ns == 0) {
    if (busy) {
      pause_ns(SETTLE_NS);
    }
    return;
  }
  struct gauge gauge = gauge_of(session, driver);
  struct np_child child;
  struct np_message ignored;
  struct np_outcome outcome;
  if (np_record_make(&gauge.action, &gauge.view) != NP_OK) {
    return;
  }
  if (np_child_start(perform, &gauge, &gauge.view.record->turns, &child, &ignored) == NP_OK) {
    run_until_near(&gauge, &child, driver->gauge_ns, end_ns);
    (void)np_child_end(&child, &outcome, &ignored);
  }
  np_record_free(&gauge.view);
}

void np_settle(const struct np_session *session, const struct np_action *killed, int busy) {
  for (uint32_t s = 0; s < killed->bundle.n_segments; s++) {
    if (killed->bundle.segments[s].engine == NP_BUNDLE_NNAPI) {
      settle_driver(session, np_driver_of(session->drivers, &killed->bundle.segments[s]), busy);
      return; /* it ran one segment when it was killed, and the drivers wait at once */
    }
  }
}

void np_settle_known(const struct np_session *session, const struct np_action *action) {
  struct np_driver *driver = np_driver_of(session->drivers, &action->bundle.segments[0]);
  driver->gauge = driver->gauge ? driver->gauge : action;
}

/* Whether the driver compiles its gauge and runs it once. */
static int works(const struct np_session *session, struct np_driver *driver) {
  struct gauge gauge = gauge_of(session, driver);
  const struct np_watch watch = {.timeout_ms = SETUP_MS, .reader_fd = -1, .memory_kb = -1};
  struct np_child child;
  struct np_message ignored;
  struct np_outcome outcome;
  int does = 0;
  if (np_record_make(&gauge.action, &gauge.view) != NP_OK) {
    return 1; /* which says nothing about the driver */
  }
  if (np_child_start(perform, &gauge, &gauge.view.record->turns, &child, &ignored) == NP_OK) {
    does = np_child_wait(&child, 1, &watch) == NP_EVENT_REACHED &&
           !__atomic_load_n(&gauge.view.record->done, __ATOMIC_ACQUIRE);
    (void)np_child_end(&child, &outcome, &ignored);
  }
  np_record_free(&gauge.view);
  return does;
}

enum np_health np_settle_check(const struct np_session *session, struct np_driver *driver) {
  if (!driver->gauge) {
    return NP_HEALTH_UNKNOWN;
  }
  if (works(session, driver)) {
    driver->sick = 0;
    return NP_HEALTH_WELL;
  }
  const uint64_t end_ns = now_ns() + RETURN_NS;
  const int waits = driver->pause_ns == 0;
  for (uint64_t ns = FIRST_PAUSE_NS; waits && now_ns() + ns < end_ns; ns *= 2) {
    pause_ns(ns);
    if (works(session, driver)) {
      return NP_HEALTH_BACK;
    }
  }
  driver->sick = 1;
  driver->pause_ns = RETURN_NS;
  driver->ask_ns = now_ns() + driver->pause_ns;
  return NP_HEALTH_SICK;
}

void np_settle_review(const struct np_session *session) {
  for (uint32_t d = 0; d < session->drivers->n; d++) {
    struct np_driver *driver = &session->drivers->each[d];
    if (driver->sick && now_ns() >= driver->ask_ns) {
      driver->sick = (uint32_t)!works(session, driver);
      driver->pause_ns *= 2;
      driver->ask_ns = now_ns() + driver->pause_ns;
    }
  }
}

enum np_health np_settle_check_all(const struct np_session *session) {
  enum np_health worst = NP_HEALTH_UNKNOWN;
  for (uint32_t d = 0; d < session->drivers->n; d++) {
    const enum np_health health = np_settle_check(session, &session->drivers->each[d]);
    worst = health > worst ? health : worst;
  }
  return worst;
}
