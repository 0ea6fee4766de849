/* Whether a driver is as it was: as fast, after a process was killed in the middle of a call that
 * the driver may go on with; and whether it still runs what it ran before, after one that failed.
 * Either is asked by its gauge, an action that ran well on it. */
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

/* Remembers an action that an earlier request ran well, before this one runs any. */
void np_settle_known(const struct np_session *session, const struct np_action *action);

/* Runs the gauge of a driver on which an action failed or was refused, alone; where that fails,
 * again and again with pauses that grow, for as long as a service takes to be restarted, once in a
 * request. */
enum np_health np_settle_check(const struct np_session *session, struct np_driver *driver);

/* Asks drivers that are sick whether they still are, where it is time to. */
void np_settle_review(const struct np_session *session);

/* The same of all drivers, which NNAPI may have chosen: the worst. */
enum np_health np_settle_check_all(const struct np_session *session);

#endif
