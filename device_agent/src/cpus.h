/* Which CPUs an action's process, and the threads of its lanes, keep to. A simulated phone's are
 * none of this host's: there nothing is done. */
#ifndef NP_CPUS_H
#define NP_CPUS_H

#include <stdint.h>

#include "action.h"
#include "record.h"

/* Where the lanes run; 0: anywhere. */
struct np_lane_cpus {
  uint64_t cpu_mask;
  uint64_t nnapi_mask;
};

/* Keeps this process to an action's CPUs, or to the big ones among those that it may use (`cpus`),
 * and records what the kernel made of that. NP_BAD_ARGUMENT with the cause in record->fault where
 * the kernel refuses CPUs that were asked for. */
enum np_status np_keep_to_cpus(const struct np_session *session, const struct np_action *action,
                               struct np_record *record, uint64_t cpus);

/* Chooses again where a core that went offline took its place in the affinity with it. Whether that
 * was so. */
int np_return_to_cpus(const struct np_session *session, const struct np_action *action,
                      struct np_record *record, uint64_t cpus);

/* What the CPU's threads and those that call NNAPI keep to, side by side: NNAPI's to the CPUs that
 * are not the action's. Where it has all of them, the CPU's threads get one each and NNAPI's the
 * rest, for else the system may put both on one and leave them there; but not where the action
 * asks for all CPUs, or nothing would be left. */
struct np_lane_cpus np_lane_cpus(const struct np_session *session, const struct np_action *action,
                                 const struct np_record *record, uint64_t cpus);

#endif
