/* Reads one action of a request: for request.c only. */
#ifndef NP_ACTION_READ_H
#define NP_ACTION_READ_H

#include "container.h"
#include "cursor.h"
#include "request.h"

#define NP_LEAST_ACTION_WORDS 28u /* all scalars, no weights, inputs or kept tensors */

/* Reads an action without its bundle, whose bytes are in `data`. The request's blobs must have been
 * read. NP_BAD_REQUEST with the field in *why. */
enum np_status np_action_read(struct np_cursor *cursor, const struct np_request *request,
                              struct np_section data, struct np_action *action,
                              struct np_message *why);

/* Reads an action's bundle, with its weights in blobs, and checks the action against it.
 * NP_BAD_REQUEST, NP_NO_MEMORY; what was read belongs to the action even then. */
enum np_status np_action_bind(struct np_action *action, const struct np_bytes *blobs,
                              struct np_message *why);

#endif
