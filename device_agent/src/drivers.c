#include "drivers.h"

#include <stdlib.h>
#include <string.h>

/* Alone, a late action gets a quarter of its time, and at least this much. */
#define LATE_SHARE 4u
#define LEAST_LATE_MS 5000u
/* A turn may take this many times as long as the slowest one on the same driver, to allow for a
 * longer compilation, plus this much, to allow for a busy phone. */
#define TIMES_SLOWER 20u
#define LEAST_MS 500u
/* The second attempt may take this many times as long as the first one, and at least this much. */
#define TIMES_LATE 4u
#define LEAST_AGAIN_MS 3000u

static uint32_t index_of_name(const struct np_drivers *drivers, const char *name) {
  uint32_t i = name ? 0 : drivers->n;
  while (i < drivers->n && strcmp(drivers->each[i].name, name) != 0) {
    i++;
  }
  return i;
}

/* Adds the driver with a name, with the room of a new one. */
static struct np_driver *add(struct np_drivers *drivers, const char *name) {
  const uint32_t i = index_of_name(drivers, name);
  if (name && i == drivers->n) {
    drivers->each[i + 1] = drivers->each[i];
    drivers->each[i] = (struct np_driver){.name = name, .room = NP_FIRST_ROOM};
    drivers->n++;
  }
  return &drivers->each[i];
}

enum np_status np_drivers_make(const struct np_request *request, struct np_drivers *drivers) {
  size_t most = (size_t)request->n_driver_facts + 1;
  for (uint32_t i = 0; i < request->n_actions; i++) {
    most += request->actions[i].bundle.n_segments;
  }
  *drivers = (struct np_drivers){.n = 0, .each = calloc(most, sizeof *drivers->each)};
  if (!drivers->each) {
    return NP_NO_MEMORY;
  }
  drivers->each[0].room = NP_FIRST_ROOM;
  for (uint32_t i = 0; i < request->n_driver_facts; i++) {
    const uint32_t *facts = &request->driver_facts[i * NP_DRIVER_WORDS];
    struct np_driver *driver =
        add(drivers, facts[0] == NP_NONE ? NULL : request->strings[facts[0]]);
    driver->room = facts[1];
    driver->memory = (enum np_shm_kind)facts[2];
  }
  for (uint32_t i = 0; i < request->n_actions; i++) {
    const struct np_bundle *bundle = &request->actions[i].bundle;
    for (uint32_t s = 0; s < bundle->n_segments; s++) {
      (void)add(drivers, bundle->segments[s].accelerator);
    }
  }
  return NP_OK;
}

void np_drivers_free(struct np_drivers *drivers) {
  free(drivers->each);
  drivers->each = NULL;
}

static uint32_t index_of(const struct np_drivers *drivers,
                         const struct np_bundle_segment *segment) {
  return index_of_name(drivers, segment->accelerator);
}

struct np_driver *np_driver_of(const struct np_drivers *drivers,
                               const struct np_bundle_segment *segment) {
  return &drivers->each[index_of(drivers, segment)];
}

/* Returns the kind that all accelerators that have run are known to map; addresses if they
 * differ. */
static enum np_shm_kind common_memory(const struct np_drivers *drivers) {
  enum np_shm_kind common = NP_SHM_UNKNOWN;
  for (uint32_t d = 0; d < drivers->n; d++) {
    const enum np_shm_kind kind = drivers->each[d].memory;
    if (kind != NP_SHM_UNKNOWN && common != NP_SHM_UNKNOWN && kind != common) {
      return NP_SHM_POINTERS;
    }
    common = kind != NP_SHM_UNKNOWN ? kind : common;
  }
  return common;
}

enum np_shm_kind np_segment_memory(const struct np_drivers *drivers,
                                   const struct np_bundle_segment *segment) {
  const uint32_t own = index_of(drivers, segment);
  const enum np_shm_kind kind = own == drivers->n ? common_memory(drivers) : NP_SHM_UNKNOWN;
  return kind != NP_SHM_UNKNOWN ? kind : drivers->each[own].memory;
}

enum np_shm_kind np_action_memory(const struct np_drivers *drivers,
                                  const struct np_action *action) {
  enum np_shm_kind first = NP_SHM_UNKNOWN;
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    const enum np_shm_kind kind = np_segment_memory(drivers, &action->bundle.segments[s]);
    if (action->bundle.segments[s].engine == NP_BUNDLE_NNAPI && kind != NP_SHM_POINTERS &&
        kind > first) {
      first = kind;
    }
  }
  return first;
}

void np_drivers_learn_memory(const struct np_drivers *drivers, const struct np_action *action,
                             const struct np_engine_facts *facts) {
  if (action->bundle.pointers || (action->flags & NP_ACTION_FRAMES) != 0) {
    return;
  }
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    if (action->bundle.segments[s].engine == NP_BUNDLE_NNAPI &&
        facts[s].memory <= NP_SHM_POINTERS) {
      np_driver_of(drivers, &action->bundle.segments[s])->memory = facts[s].memory;
    }
  }
}

/* Compilations of an action on a driver. */
static uint32_t compilations(const struct np_drivers *drivers, const struct np_action *action,
                             uint32_t driver) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    const struct np_bundle_segment *segment = &action->bundle.segments[s];
    const uint32_t index = index_of(drivers, segment);
    n += segment->engine == NP_BUNDLE_NNAPI && (index == driver || index == drivers->n);
  }
  return n;
}

static uint32_t all_compilations(const struct np_drivers *drivers,
                                 const struct np_action *const *actions, uint32_t n,
                                 uint32_t driver) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < n; i++) {
    total += compilations(drivers, actions[i], driver);
  }
  return total;
}

/* Returns whether one action leaves the choice to NNAPI and the other names an accelerator. */
static int is_choice_with_name(const struct np_action *one, const struct np_action *other) {
  return (one->n_chosen != 0 && other->n_named != 0) || (other->n_chosen != 0 && one->n_named != 0);
}

/* Returns whether, in a wave of n actions and one more, a driver that does not tolerate other
 * accelerators' compilations would have some beside its own. */
static int is_crowded(const struct np_drivers *drivers, const struct np_action *const *actions,
                      uint32_t n, uint32_t driver) {
  const uint32_t more = compilations(drivers, actions[n], driver);
  const uint32_t held = all_compilations(drivers, actions, n, driver);
  int others = 0;
  for (uint32_t i = 0; i < n; i++) {
    others |= np_uses_nnapi(actions[i]);
  }
  return drivers->each[driver].is_shy &&
         ((more != 0 && others) || (held != 0 && np_uses_nnapi(actions[n])));
}

uint32_t np_wave_size(const struct np_drivers *drivers, const struct np_action *const *actions,
                      uint32_t n) {
  uint32_t size = 1;
  for (; size < n; size++) {
    for (uint32_t i = 0; i < size; i++) {
      if (is_choice_with_name(actions[i], actions[size])) {
        return size;
      }
    }
    for (uint32_t d = 0; d <= drivers->n; d++) {
      const uint32_t more = compilations(drivers, actions[size], d);
      const uint32_t held = all_compilations(drivers, actions, size, d);
      if ((more != 0 && held + more > drivers->each[d].room) ||
          is_crowded(drivers, actions, size, d)) {
        return size;
      }
    }
  }
  return size;
}

int np_shares_driver(const struct np_drivers *drivers, const struct np_action *action,
                     const struct np_action *const *wave, uint32_t n) {
  for (uint32_t d = 0; d <= drivers->n; d++) {
    const uint32_t own = compilations(drivers, action, d);
    if (own != 0 && all_compilations(drivers, wave, n, d) > own) {
      return 1;
    }
  }
  return 0;
}

void np_drivers_halve(const struct np_drivers *drivers, const struct np_action *action) {
  for (uint32_t d = 0; d <= drivers->n; d++) {
    if (compilations(drivers, action, d) == 0) {
      continue;
    }
    drivers->each[d].is_shy |= drivers->each[d].room == 1;
    drivers->each[d].room = drivers->each[d].room > 1 ? drivers->each[d].room / 2 : 1;
  }
}

static uint64_t size_of(const struct np_request *request, const struct np_action *action) {
  uint64_t n_bytes = action->bytes.length;
  for (uint32_t i = 0; i < action->n_weights; i++) {
    n_bytes += request->blobs[action->weights[i * NP_WEIGHT_WORDS]].length;
  }
  for (uint32_t i = 0; i < action->bundle.n_tensors; i++) {
    n_bytes += action->bundle.tensors[i].n_bytes;
  }
  return n_bytes;
}

/* Returns the driver of an action's only segment, NULL if the time of a turn says nothing about
 * it. */
static struct np_driver *timed_driver(const struct np_drivers *drivers,
                                      const struct np_action *action) {
  const int is_plain = (action->flags & (NP_ACTION_CORUN | NP_ACTION_FRAMES)) == 0;
  return is_plain && action->bundle.n_segments == 1 && np_uses_nnapi(action)
             ? np_driver_of(drivers, &action->bundle.segments[0])
             : NULL;
}

void np_drivers_learn_turn(const struct np_request *request, const struct np_drivers *drivers,
                           const struct np_action *action, uint64_t ns) {
  struct np_driver *driver = timed_driver(drivers, action);
  if (driver) {
    const uint64_t n_bytes = size_of(request, action);
    driver->slowest_ns = ns > driver->slowest_ns ? ns : driver->slowest_ns;
    driver->most_bytes = n_bytes > driver->most_bytes ? n_bytes : driver->most_bytes;
  }
}

static uint32_t least(uint64_t ms, uint32_t most_ms) {
  return ms < most_ms ? (uint32_t)ms : most_ms;
}

/* Returns the limit of a first attempt. While no action has completed on the driver, each late
 * action halves the limit for later ones. */
static uint32_t first_limit(const struct np_request *request, const struct np_driver *driver,
                            const struct np_action *action) {
  if (driver->slowest_ns == 0) {
    const uint32_t shift = driver->n_late < 31 ? driver->n_late : 31;
    const uint32_t share_ms = action->timeout_ms >> shift;
    return least(share_ms > LEAST_LATE_MS ? share_ms : LEAST_LATE_MS, action->timeout_ms);
  }
  const uint64_t asked_ns = action->warmup_ns / 1000000u + action->budget_ns / 1000000u;
  const uint64_t most_bytes = driver->most_bytes;
  const uint64_t times = (size_of(request, action) + most_bytes - 1) / most_bytes;
  const uint64_t slower = TIMES_SLOWER + action->min_runs / action->rounds;
  const uint64_t slowest_ms = driver->slowest_ns / 1000000u + 1;
  if (slowest_ms > UINT32_MAX || times > UINT32_MAX / slower) {
    return action->timeout_ms;
  }
  return least(LEAST_MS + asked_ns + slowest_ms * times * slower, action->timeout_ms);
}

uint32_t np_drivers_limit(const struct np_request *request, const struct np_drivers *drivers,
                          const struct np_action *action, int was_late) {
  const struct np_driver *driver = timed_driver(drivers, action);
  const uint32_t share_ms = action->timeout_ms / LATE_SHARE;
  const uint32_t late_ms =
      least(share_ms > LEAST_LATE_MS ? share_ms : LEAST_LATE_MS, action->timeout_ms);
  const uint32_t first_ms = driver ? first_limit(request, driver, action) : action->timeout_ms;
  if (!was_late) {
    return first_ms;
  }
  if (!driver || driver->slowest_ns == 0 || driver->n_late < 2) {
    return late_ms;
  }
  const uint64_t again_ms = (uint64_t)TIMES_LATE * first_ms;
  return least(again_ms > LEAST_AGAIN_MS ? again_ms : LEAST_AGAIN_MS, late_ms);
}

void np_drivers_note_late(const struct np_drivers *drivers, const struct np_action *action) {
  struct np_driver *driver = timed_driver(drivers, action);
  if (driver) {
    driver->n_late++;
  }
}

void np_drivers_lose(const struct np_drivers *drivers, const struct np_action *action,
                     uint64_t ns) {
  for (uint32_t s = 0; s < action->bundle.n_segments; s++) {
    if (action->bundle.segments[s].engine == NP_BUNDLE_NNAPI) {
      np_driver_of(drivers, &action->bundle.segments[s])->lost_ns += ns;
      return;
    }
  }
}

int np_driver_is_slow(const struct np_driver *driver) { return driver->lost_ns > NP_MOST_LOST_NS; }

const char *np_drivers_sick(const struct np_drivers *drivers, const struct np_action *action) {
  for (uint32_t d = 0; d <= drivers->n; d++) {
    const struct np_driver *driver = &drivers->each[d];
    if ((driver->sick || np_driver_is_slow(driver)) && compilations(drivers, action, d) != 0) {
      return driver->name ? driver->name : "auto";
    }
  }
  return NULL;
}
