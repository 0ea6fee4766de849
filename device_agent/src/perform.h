/* The work of an action's process: it sets up, compiles, warms up, and then takes turns: rounds of
 * recorded runs, cooling down, the end. */
#ifndef NP_PERFORM_H
#define NP_PERFORM_H

#include "action.h"
#include "record.h"

/* Performs an action and reports everything through the record. Must be called in a separate
 * process: it opens the NNAPI library, and whatever drivers leave behind ends with the process.
 *
 * The first turn is reached when the action is warm. After that, each command of the parent in
 * record->command is a turn: NP_COMMAND_ROUND records one round, NP_COMMAND_COOL lets a simulated
 * phone cool down, NP_COMMAND_FINISH keeps the outputs and is the last. A turn that fails is also
 * the last: record->done is set before it is reached. */
void np_perform(const struct np_session *session, const struct np_action *action,
                const struct np_record_view *view, struct np_link *link);

#endif
