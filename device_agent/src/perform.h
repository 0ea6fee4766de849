/* What an action's process does: sets up, compiles, runs, keeps. */
#ifndef NP_PERFORM_H
#define NP_PERFORM_H

#include "action.h"
#include "record.h"

/* Performs an action and tells everything through the record. To be called in a process of its own:
 * the NNAPI library is opened here, and what drivers leave behind is the process's. */
void np_perform(const struct np_session *session, const struct np_action *action,
                const struct np_record_view *view);

#endif
