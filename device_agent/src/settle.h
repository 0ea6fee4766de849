/* Checks a driver with its gauge, an action that ran well on it: whether it is as fast as before,
 * after a process was killed in the middle of a call that the driver may continue, and whether it
 * still works, after an action failed on it. */
#ifndef NP_SETTLE_H
#define NP_SETTLE_H

#include "action.h"

/* Waits, 2 s at most, until the drivers of a killed action are as fast as before: runs each
 * driver's gauge again until it is. Without a gauge, waits the whole time if the driver was `busy`,
 * that is if it did not end the process itself. */
void np_settle(const struct np_session *session, const struct np_action *killed, int busy);

/* Remembers an action that ended well as its driver's gauge. */
void np_settle_gauge(const struct np_session *session, const struct np_action *action,
                     const struct np_record_view *view);

/* Remembers as a gauge an action that an earlier request ran well, before this request runs any. */
void np_settle_known(const struct np_session *session, const struct np_action *action);

/* Runs the gauge of a driver on which an action failed or was refused, alone. If it fails, repeats
 * it with growing pauses for as long as a service takes to restart; does so once in a request. */
enum np_health np_settle_check(const struct np_session *session, struct np_driver *driver);

/* Checks again those sick drivers whose next check is due. */
void np_settle_review(const struct np_session *session);

/* Checks all drivers, as NNAPI may have chosen any of them; returns the worst health. */
enum np_health np_settle_check_all(const struct np_session *session);

#endif
