#include "cpus.h"

#include <string.h>

#include "sysinfo.h"

enum np_status np_keep_to_cpus(const struct np_session *session, const struct np_action *action,
                               struct np_record *record, uint64_t cpus) {
  if (!session->has_sysfs) {
    return NP_OK;
  }
  const uint64_t wanted = action->cpu_mask;
  uint64_t mask = wanted;
  if (wanted == 0) {
    mask = np_sysfs_big_cores(session->sysfs, cpus, action->threads);
    mask = mask == 0 || mask == cpus ? NP_ALL_CPUS : mask;
  }
  const int cause = mask == NP_ALL_CPUS ? 0 : np_set_affinity(mask);
  record->cpu_mask = np_affinity();
  if (cause == 0 || wanted == 0) {
    return NP_OK;
  }
  return np_error(NP_BAD_ARGUMENT, &record->fault.why, "cannot keep to the CPUs of mask 0x%llx: %s",
                  (unsigned long long)mask, strerror(cause));
}

int np_return_to_cpus(const struct np_session *session, const struct np_action *action,
                      struct np_record *record, uint64_t cpus) {
  const uint64_t mask = session->has_sysfs ? np_affinity() : 0;
  if (mask == record->cpu_mask || mask == 0) {
    return 0;
  }
  if (action->cpu_mask == 0) {
    (void)np_set_affinity(np_sysfs_big_cores(session->sysfs, cpus, action->threads));
  }
  record->cpu_mask = np_affinity();
  return 1;
}

/* The first CPUs of a mask, n at most. */
static uint64_t first_cpus(uint64_t mask, uint32_t n) {
  uint64_t first = 0;
  for (; n > 0 && mask != 0; n--, mask &= mask - 1) {
    first |= mask & -mask;
  }
  return first;
}

struct np_lane_cpus np_lane_cpus(const struct np_session *session, const struct np_action *action,
                                 const struct np_record *record, uint64_t cpus) {
  const uint64_t own = record->cpu_mask, others = cpus & ~own;
  if (session->simulated) {
    return (struct np_lane_cpus){own, 0};
  }
  if (others != 0) {
    return (struct np_lane_cpus){own, others};
  }
  const uint64_t first = first_cpus(own, action->threads);
  const uint32_t on_nnapi = action->n_named + action->n_chosen;
  if (action->cpu_mask == NP_ALL_CPUS || first == own || on_nnapi == 0 ||
      on_nnapi == action->bundle.n_segments) {
    return (struct np_lane_cpus){own, cpus};
  }
  return (struct np_lane_cpus){first, own & ~first};
}
