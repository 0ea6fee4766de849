#include "settle.h"

#include "drivers.h"
#include "member.h"
#include "timing.h"

#define SETTLE_NS UINT64_C(2000000000)
#define SETUP_MS 2000u
#define PAUSE_NS 20000000
#define ROUNDS 100u
#define RUNS 3u
#define NEAR_PERCENT 110u /* relative to the time before */
/* Pause before a driver is checked again: init restarts a service within 5 s. */
#define FIRST_PAUSE_NS UINT64_C(50000000)
#define RETURN_NS UINT64_C(6000000000)

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
  /* The shortest gauge is the cheapest. */
  if (!driver->gauge || driver->gauge_ns == 0 || ns < driver->gauge_ns) {
    driver->gauge = action;
    driver->gauge_ns = ns;
  }
}

/* Starts a driver's gauge, copied to *action, in a separate process; returns 0 if that is not
 * possible. The caller ends it with np_member_drop. */
static int start_gauge(const struct np_session *session, const struct np_driver *driver,
                       struct np_action *action, struct np_member *gauge) {
  *action = *driver->gauge;
  action->flags = 0;
  action->rounds = ROUNDS;
  action->cooldown_ms = 0;
  action->warmup_min = action->warmup_max = 1;
  action->warm_ns = action->spin_ns = 0;
  action->min_runs = action->max_runs = ROUNDS * RUNS;
  *gauge = (struct np_member){.session = session, .action = action, .child = NP_NO_CHILD};
  struct np_message ignored;
  return np_record_make(action, &gauge->view) == NP_OK &&
         np_child_start(np_member_perform, gauge, &gauge->view.record->turns, &gauge->child,
                        &ignored) == NP_OK;
}

/* Runs rounds of a gauge until one is as fast as before, or the time is over. */
static void run_until_near(struct np_member *gauge, uint64_t gauge_ns, uint64_t end_ns) {
  struct np_record *record = gauge->view.record;
  struct np_child *child = &gauge->child;
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
    if (ns <= gauge_ns / 100u * NEAR_PERCENT || np_now_ns() >= end_ns) {
      return;
    }
    np_sleep_ns(PAUSE_NS);
  }
}

static void settle_driver(const struct np_session *session, struct np_driver *driver, int busy) {
  const uint64_t begin_ns = np_now_ns();
  if (!driver->gauge || driver->gauge_ns == 0) {
    if (busy) {
      np_sleep_ns(SETTLE_NS);
    }
  } else {
    struct np_action action;
    struct np_member gauge;
    if (start_gauge(session, driver, &action, &gauge)) {
      run_until_near(&gauge, driver->gauge_ns, begin_ns + SETTLE_NS);
    }
    np_member_drop(&gauge);
  }
  driver->lost_ns += np_now_ns() - begin_ns;
}

void np_settle(const struct np_session *session, const struct np_action *killed, int busy) {
  for (uint32_t s = 0; s < killed->bundle.n_segments; s++) {
    if (killed->bundle.segments[s].engine == NP_BUNDLE_NNAPI) {
      settle_driver(session, np_driver_of(session->drivers, &killed->bundle.segments[s]), busy);
      return; /* only one segment ran when it was killed, and all drivers may settle at once */
    }
  }
}

void np_settle_known(const struct np_session *session, const struct np_action *action) {
  struct np_driver *driver = np_driver_of(session->drivers, &action->bundle.segments[0]);
  driver->gauge = driver->gauge ? driver->gauge : action;
}

/* Returns whether the driver compiles its gauge and runs it once; true as well if no process could
 * be made, which says nothing about the driver. */
static int works(const struct np_session *session, const struct np_driver *driver) {
  const struct np_watch watch = {.timeout_ms = SETUP_MS, .reader_fd = -1, .memory_kb = -1};
  struct np_action action;
  struct np_member gauge;
  int does = 1;
  if (start_gauge(session, driver, &action, &gauge)) {
    does = np_child_wait(&gauge.child, 1, &watch) == NP_EVENT_REACHED &&
           !__atomic_load_n(&gauge.view.record->done, __ATOMIC_ACQUIRE);
  }
  np_member_drop(&gauge);
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
  const uint64_t begin_ns = np_now_ns();
  const int waits = driver->pause_ns == 0;
  int is_back = 0;
  for (uint64_t ns = FIRST_PAUSE_NS; waits && !is_back && np_now_ns() + ns < begin_ns + RETURN_NS;
       ns *= 2) {
    np_sleep_ns(ns);
    is_back = works(session, driver);
  }
  driver->lost_ns += np_now_ns() - begin_ns;
  if (is_back) {
    return NP_HEALTH_BACK;
  }
  driver->sick = 1;
  driver->pause_ns = RETURN_NS;
  driver->ask_ns = np_now_ns() + driver->pause_ns;
  return NP_HEALTH_SICK;
}

void np_settle_review(const struct np_session *session) {
  for (uint32_t d = 0; d < session->drivers->n; d++) {
    struct np_driver *driver = &session->drivers->each[d];
    if (driver->sick && np_now_ns() >= driver->ask_ns) {
      driver->sick = (uint32_t)!works(session, driver);
      driver->pause_ns *= 2;
      driver->ask_ns = np_now_ns() + driver->pause_ns;
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
