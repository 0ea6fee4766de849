/* The actions of a group in waves of as many compilations as their drivers hold, and once more
 * alone where an action failed in company. */
#ifndef NP_SCHEDULE_H
#define NP_SCHEDULE_H

#include "action.h"

/* Runs the actions [n] of a group and writes their lines; *n_ok is how many were ok. What np_group_
 * run returns; NP_STALLED where NNAPI answers nobody, with *why. */
enum np_status np_schedule_run(const struct np_session *session, const struct np_action *actions,
                               uint32_t n, struct np_answers *answers, uint32_t *n_ok,
                               struct np_message *why);

#endif
