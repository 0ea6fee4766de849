/* Runs the actions of a group interleaved, each in its own process with a watchdog. */
#ifndef NP_GROUP_H
#define NP_GROUP_H

#include "action.h"

/* Whether the result of an action is final: a failure is not, until the action has failed alone. */
enum np_fate {
  NP_FATE_DONE,
  NP_FATE_AGAIN, /* it may have failed because of its company; to be tried alone */
  NP_FATE_LATE,  /* likewise, because it exceeded its time */
  NP_FATE_FULL,  /* likewise, because its driver was full or died */
  NP_FATE_SICK,  /* likewise, because its driver also failed its gauge */
  NP_FATE_ASK    /* an accelerator refused it; to be tried once more */
};

/* The third attempt is for an action that failed on a sick driver, where its failures prove
 * nothing. */
#define NP_LAST_ATTEMPT 3u

/* Actions that take turns. */
struct np_wave {
  const struct np_action *const *actions; /* [n], at most NP_MAX_GROUP */
  uint32_t n;
  uint32_t attempt;                 /* from 1; in NP_LAST_ATTEMPT every line is written */
  int was_late;                     /* the first attempt used up all its time: now it has less */
  int was_sick;                     /* its driver failed its gauge after the previous attempt */
  uint32_t n_ok;                    /* output: how many were ok */
  enum np_fate fates[NP_MAX_GROUP]; /* output */
};

/* Runs the actions of a wave in rounds (PROTOCOL.md, "Groups"). Writes each action's line as soon
 * as it has ended, except for actions that are to be tried again; a failure or refusal by an
 * accelerator is only reported after its gauge has run. An error of an action affects only its own
 * line. NP_OK even if all failed; NP_IO if the reader of the answers is gone (the processes are
 * killed then), NP_STALLED if NNAPI does not answer, NP_NO_MEMORY. */
enum np_status np_group_run(const struct np_session *session, struct np_wave *wave,
                            struct np_answers *answers, struct np_message *why);

#endif
