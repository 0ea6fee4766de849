/* Waiting for an action's process, with an eye on NNAPI: a driver that hangs keeps every process
 * waiting that lists the devices, whichever of them it is for. */
#ifndef NP_WATCH_H
#define NP_WATCH_H

#include "action.h"

/* Waits for a turn of an action's process as np_child_wait does, and tells the host every few
 * seconds that it waits. Where nothing moves for that long, NNAPI is asked in another process for
 * its devices: NP_STALLED with *why where it does not answer. NP_IO where nobody reads the answers.
 */
enum np_status np_watch_turn(const struct np_session *session, const struct np_action *action,
                             const struct np_record_view *view, struct np_child *child,
                             uint32_t turn, const struct np_watch *watch,
                             struct np_answers *answers, enum np_event *event,
                             struct np_message *why);

/* Says in *why that NNAPI does not answer, and which driver that is as far as that can be known;
 * `asked` is the accelerator that was busy last, NULL: none. */
void np_tell_stall(const struct np_session *session, const char *asked, struct np_message *why);

/* Waits until a driver that failed an action may be back: a moment, and until NNAPI lists every
 * accelerator that the action names, some seconds at most and no longer than the action may take;
 * for one that did not return it waits once in a request. NP_STALLED as above. */
enum np_status np_await_drivers(const struct np_session *session, const struct np_action *action,
                                struct np_message *why);

#endif
