/* The section ACTN of a request: for request.c only. */
#ifndef NP_ACTION_READ_H
#define NP_ACTION_READ_H

#include "cursor.h"
#include "request.h"

/* Reads the next action of section ACTN; the request's blobs, strings and models stand already.
 * *action is zero before; request.c frees it. NP_BAD_REQUEST with item and field in *why,
 * NP_NO_MEMORY. */
enum np_status np_action_read(struct np_cursor *cursor, const struct np_request *request,
                              struct np_action *action, struct np_message *why);

#endif
