/* After a process was killed in the middle of a call, its driver may go on with it. */
#ifndef NP_SETTLE_H
#define NP_SETTLE_H

#include "action.h"

/* Waits until the drivers of an action that was killed are as fast as before, 2 s at most: an
 * action that ran on the same driver before is run again, as often as that takes. Where there is
 * none, it waits as long as it may if the driver was `busy`: it did not end the process itself. */
void np_settle(const struct np_session *session, const struct np_action *killed, int busy);

/* Remembers an action that ended well as the measure of its driver's speed. */
void np_settle_gauge(const struct np_session *session, const struct np_action *action,
                     const struct np_record_view *view);

#endif
