/* What the segments of an action owe each other: for action_read.c only. */
#ifndef NP_ACTION_CHECK_H
#define NP_ACTION_CHECK_H

#include "request.h"

/* Whether tensors fit the models' operands, each is written once and before it is read, and
 * segments that run side by side may. NP_BAD_REQUEST with segment and tensor in *why; NP_NO_MEMORY.
 */
enum np_status np_action_check(const struct np_request *request, const struct np_action *action,
                               struct np_message *why);

#endif
