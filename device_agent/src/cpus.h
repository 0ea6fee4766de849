/* Sets the CPUs that an action's process and the threads of its lanes run on. Does nothing for a
 * simulated phone, whose CPUs are not the host's. */
#ifndef NP_CPUS_H
#define NP_CPUS_H

#include <stdint.h>

#include "action.h"
#include "record.h"

/* CPUs of the lanes; 0: any. */
struct np_lane_cpus {
  uint64_t cpu_mask;
  uint64_t nnapi_mask;
};

/* Restricts this process to an action's CPUs, or to the big ones among those that it may use
 * (`cpus`), and records the CPUs that the kernel granted. NP_BAD_ARGUMENT with the cause in
 * record->fault if the kernel refuses CPUs that the action asks for. */
enum np_status np_keep_to_cpus(const struct np_session *session, const struct np_action *action,
                               struct np_record *record, uint64_t cpus);

/* Chooses CPUs again if a core went offline and so left the affinity. Returns whether it did. */
int np_return_to_cpus(const struct np_session *session, const struct np_action *action,
                      struct np_record *record, uint64_t cpus);

/* Returns the CPUs for the CPU engine's threads and for those that call NNAPI while both run:
 * NNAPI's get the CPUs that are not the action's. If the action has all CPUs, the CPU engine's
 * threads get one each and NNAPI's the rest, since otherwise the system may put both on one CPU and
 * leave them there. Does not split them if the action asks for all CPUs, or if none would be
 * left. */
struct np_lane_cpus np_lane_cpus(const struct np_session *session, const struct np_action *action,
                                 const struct np_record *record, uint64_t cpus);

#endif
