/* How an action ended: from what its process recorded to its line. */
#ifndef NP_ACTION_H
#define NP_ACTION_H

#include "child.h"
#include "drivers.h"
#include "model.h"
#include "np_status.h"
#include "record.h"
#include "request.h"
#include "result.h"
#include "sysfs.h"

struct np_patience;
struct np_probe;

/* What is known of a driver by its gauge, an action that ran well on it: see settle.h. */
enum np_health {
  NP_HEALTH_UNKNOWN, /* nobody asked, or nothing is known to run on it */
  NP_HEALTH_WELL,
  NP_HEALTH_BACK, /* it failed its gauge, and after a while it did not */
  NP_HEALTH_SICK  /* it fails its gauge */
};

/* What all actions of a request share. Nothing is owned. */
struct np_session {
  const struct np_request *request;
  const struct np_bytes *blobs; /* [n_blobs], mapped; models are bound to them */
  const char *library;          /* NNAPI's, NULL for its own name */
  const struct np_probe *probe; /* of it, when the request began */
  int simulated;                /* that library simulates a phone */
  int has_sysfs;                /* sysfs is of the device measured, or was made for it */
  int work_fd;                  /* folder of kept tensors */
  struct np_drivers *drivers;   /* what was learnt of them so far */
  struct np_sysfs *sysfs;       /* without has_sysfs it says nothing about a simulated phone */
  struct np_patience *patience;
};

/* An action's process that is over. */
struct np_process_end {
  const struct np_action *action;
  uint32_t attempt;                  /* from 1 */
  enum np_health health;             /* of its driver after the attempt, or before the last one */
  uint32_t timeout_ms;               /* that it had, of each turn */
  const struct np_record_view *view; /* sane: np_record_sanitize */
  enum np_event event;               /* what its parent saw last */
  struct np_outcome outcome;
  int64_t used_kb;   /* of memory when it was seen last */
  int64_t memory_kb; /* that it might have */
  uint32_t n_rounds;
  const struct np_round *rounds;
  struct np_readings before; /* of the whole action */
  struct np_readings after;
};

/* Writes the result line of an action; *ok tells whether its status was ok. NP_IO where nobody
 * reads it, NP_NO_MEMORY, with *why. */
enum np_status np_action_answer(const struct np_session *session, const struct np_process_end *end,
                                struct np_answers *answers, int *ok, struct np_message *why);

/* The line of an action that is not run, for an accelerator of its is sick. */
enum np_status np_action_answer_sick(const struct np_action *action, const char *accelerator,
                                     struct np_answers *answers, struct np_message *why);

/* The line of an action that could not even begin, with the cause. */
enum np_status np_action_answer_unbegun(const struct np_action *action, const char *cause,
                                        struct np_answers *answers, struct np_message *why);

#endif
