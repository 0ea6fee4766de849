/* Waits for an action's process and watches NNAPI meanwhile: a hanging driver blocks every process
 * that lists the devices, whichever device it wants. */
#ifndef NP_WATCH_H
#define NP_WATCH_H

#include "action.h"

/* Waits for a turn of an action's process like np_child_wait, and reports every few seconds to the
 * host that it is waiting. If there is no progress for that long, another process asks NNAPI for
 * its devices: NP_STALLED with *why if it does not answer. NP_IO if the reader of the answers is
 * gone. */
enum np_status np_watch_turn(const struct np_session *session, const struct np_action *action,
                             const struct np_record_view *view, struct np_child *child,
                             uint32_t turn, const struct np_watch *watch,
                             struct np_answers *answers, enum np_event *event,
                             struct np_message *why);

/* Says in *why that NNAPI does not answer, and because of which driver if that is known; `asked` is
 * the accelerator that was busy last, NULL: none. */
void np_tell_stall(const struct np_session *session, const char *asked, struct np_message *why);

/* Waits until a driver that failed an action may be back: a moment, then until NNAPI lists every
 * accelerator that the action names, for some seconds at most and no longer than the action's time
 * limit. Waits for an accelerator that does not return only once in a request. NP_STALLED as
 * above. */
enum np_status np_await_drivers(const struct np_session *session, const struct np_action *action,
                                struct np_message *why);

#endif
