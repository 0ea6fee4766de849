/* What an action's process does: sets up, compiles, warms up, and then takes turns: rounds of
 * recorded runs, cooling down, the end. */
#ifndef NP_PERFORM_H
#define NP_PERFORM_H

#include "action.h"
#include "record.h"

/* Performs an action and tells everything through the record. To be called in a process of its own:
 * the NNAPI library is opened here, and what drivers leave behind is the process's.
 *
 * The first turn is reached when the action is warm. Then each command of the parent, told by
 * record->command, is a turn: NP_COMMAND_ROUND records one round, NP_COMMAND_COOL lets a simulated
 * phone cool down, NP_COMMAND_FINISH keeps the outputs and is the last. A turn that fails is the
 * last, too: record->done is set before it is reached. */
void np_perform(const struct np_session *session, const struct np_action *action,
                const struct np_record_view *view, struct np_link *link);

#endif
