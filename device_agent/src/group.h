/* Actions that run interleaved, each to its end, in processes of their own with watchdogs. */
#ifndef NP_GROUP_H
#define NP_GROUP_H

#include "action.h"

/* Whether what became of an action is final: no failure is, before the action failed alone. */
enum np_fate {
  NP_FATE_DONE,
  NP_FATE_AGAIN, /* it may have failed for its company, and is to be tried alone */
  NP_FATE_LATE,  /* the same, as it was not done in time */
  NP_FATE_FULL,  /* the same, as its driver held no more compilations, or died */
  NP_FATE_SICK,  /* the same, as its driver failed what it ran before, too */
  NP_FATE_ASK    /* an accelerator refused it, and is to be asked once more */
};

/* The third is for what failed on a driver that was sick: neither failure said anything. */
#define NP_LAST_ATTEMPT 3u

/* Actions that take turns. */
struct np_wave {
  const struct np_action *const *actions; /* [n], at most NP_MAX_GROUP */
  uint32_t n;
  uint32_t attempt;                 /* from 1; after NP_LAST_ATTEMPT every line is written */
  int was_late;                     /* in the first, by all of its time: now it has less */
  int was_sick;                     /* its driver failed its gauge after the attempt before */
  uint32_t n_ok;                    /* set: how many were ok */
  enum np_fate fates[NP_MAX_GROUP]; /* set */
};

/* Runs the actions of a wave in rounds (PROTOCOL.md, "Groups") and writes their lines, each as
 * soon as its action has ended, but for those that are to be tried again; that an accelerator
 * failed or refused an action is only said once its gauge has run after it. What goes wrong with an
 * action costs its line only. NP_OK also where all failed; NP_IO where the reader of the answers is
 * gone (the processes are killed then), NP_STALLED where NNAPI answers nobody, NP_NO_MEMORY. */
enum np_status np_group_run(const struct np_session *session, struct np_wave *wave,
                            struct np_answers *answers, struct np_message *why);

#endif
