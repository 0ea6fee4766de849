/* One action to its end: in a process of its own, with a watchdog. */
#ifndef NP_ACTION_H
#define NP_ACTION_H

#include "model.h"
#include "np_status.h"
#include "request.h"
#include "result.h"

/* What all actions of a request share. Nothing is owned. */
struct np_session {
  const struct np_request *request;
  const struct np_bytes *blobs; /* [n_blobs], mapped; models are bound to them */
  const char *library;          /* NNAPI's, NULL for its own name */
  int simulated;                /* that library simulates a phone */
  int work_fd;                  /* folder of kept tensors */
};

/* Runs an action and writes its result line; *ok tells whether its status was ok. NP_OK also where
 * the action failed; NP_IO where the reader of the answers is gone (the action's process is killed
 * then), NP_NO_MEMORY. */
enum np_status np_action_run(const struct np_session *session, const struct np_action *action,
                             struct np_answers *answers, int *ok, struct np_message *why);

#endif
