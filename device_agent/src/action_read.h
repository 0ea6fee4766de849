/* One action of a request, for request.c only. */
#ifndef NP_ACTION_READ_H
#define NP_ACTION_READ_H

#include "container.h"
#include "cursor.h"
#include "request.h"

#define NP_LEAST_ACTION_WORDS 28u /* all scalars, no weights, inputs or kept tensors */

/* Reads an action but for its bundle, whose bytes lie in `data`. The request's blobs have been
 * read. NP_BAD_REQUEST with the field in *why. */
enum np_status np_action_read(struct np_cursor *cursor, const struct np_request *request,
                              struct np_section data, struct np_action *action,
                              struct np_message *why);

/* Reads its bundle, with weights in blobs, and checks what the action says of it. NP_BAD_REQUEST,
 * NP_NO_MEMORY; what was read is the action's also then. */
enum np_status np_action_bind(struct np_action *action, const struct np_bytes *blobs,
                              struct np_message *why);

#endif
