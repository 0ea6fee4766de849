/* Actions that run interleaved, each to its end, in processes of their own with watchdogs. */
#ifndef NP_GROUP_H
#define NP_GROUP_H

#include "action.h"

/* Runs the actions [n] of a group in rounds (PROTOCOL.md, "Groups") and writes their lines, each as
 * soon as its action has ended; *n_ok is how many were ok. What goes wrong with an action costs its
 * line only. NP_OK also where all failed; NP_IO where the reader of the answers is gone (the
 * processes are killed then), NP_NO_MEMORY. */
enum np_status np_group_run(const struct np_session *session, const struct np_action *actions,
                            uint32_t n, struct np_answers *answers, uint32_t *n_ok,
                            struct np_message *why);

#endif
