/* Runs the actions of a group in waves of as many compilations as their drivers hold, and those
 * that failed in company once more alone. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "action.h"

/* Runs actions[n] of a group and writes their lines; *n_ok is how many were ok. Returns what
 * np_group_run returns; NP_STALLED, with *why, if NNAPI does not answer. */
enum np_status np_schedule_run(const struct np_session *session, const struct np_action *actions,
                               uint32_t n, struct np_answers *answers, uint32_t *n_ok,
                               struct np_message *why);

#endif
