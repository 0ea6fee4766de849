/* Turns what an action's process recorded into the action's result line. */
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

/* Health of a driver, judged by its gauge, an action that ran well on it: see settle.h. */
enum np_health {
  NP_HEALTH_UNKNOWN, /* not checked, or no action is known to run on it */
  NP_HEALTH_WELL,
  NP_HEALTH_BACK, /* it failed its gauge, and passed it again after a while */
  NP_HEALTH_SICK  /* it fails its gauge */
};

/* State that all actions of a request share. Nothing is owned. */
struct np_session {
  const struct np_request *request;
  const struct np_bytes *blobs; /* [n_blobs], mapped; models are bound to them */
  const char *library;          /* path of NNAPI's library, NULL: its usual name */
  const struct np_probe *probe; /* the library's, when the request began */
  int simulated;                /* the library simulates a phone */
  int has_sysfs;                /* sysfs describes the measured device, or was made for it */
  int work_fd;                  /* folder of kept tensors */
  struct np_drivers *drivers;   /* present knowledge about the drivers */
  struct np_sysfs *sysfs;       /* without has_sysfs it does not describe a simulated phone */
  struct np_patience *patience;
};

/* An action's process that has ended. */
struct np_process_end {
  const struct np_action *action;
  uint32_t attempt;                  /* from 1 */
  enum np_health health;             /* its driver's, after this attempt or before the last one */
  uint32_t timeout_ms;               /* limit of each turn */
  const struct np_record_view *view; /* sane: np_record_sanitize */
  enum np_event event;               /* the last one its parent saw */
  struct np_outcome outcome;
  int64_t used_kb;   /* memory, as last read */
  int64_t memory_kb; /* memory limit */
  uint32_t n_rounds;
  const struct np_round *rounds;
  struct np_readings before; /* both of the whole action */
  struct np_readings after;
};

/* Writes the result line of an action; *ok is whether its status was ok. NP_IO if the reader is
 * gone, NP_NO_MEMORY, with *why. */
enum np_status np_action_answer(const struct np_session *session, const struct np_process_end *end,
                                struct np_answers *answers, int *ok, struct np_message *why);

/* Writes the line of an action that is not run because one of its accelerators is sick. */
enum np_status np_action_answer_sick(const struct np_action *action, const char *accelerator,
                                     struct np_answers *answers, struct np_message *why);

/* Writes the line of an action that could not be started, with the cause. */
enum np_status np_action_answer_unbegun(const struct np_action *action, const char *cause,
                                        struct np_answers *answers, struct np_message *why);

#endif
