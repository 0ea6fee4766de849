/* An action of a group that runs: its process, its rounds, and what the device tells meanwhile. */
#ifndef NP_MEMBER_H
#define NP_MEMBER_H

#include "action.h"

/* One action and its process. */
struct np_member {
  const struct np_session *session;
  const struct np_action *action;
  struct np_record_view view;
  struct np_child child;
  int runs;                  /* its process is there, its line is not written */
  int is_held;               /* a driver may be sick: its line is not written yet */
  struct np_driver *doubted; /* which: that failed it; NULL: any that NNAPI may have chosen */
  struct np_process_end end; /* what the line will say */
  uint32_t turns;
  uint32_t limit_ms; /* of the turn */
  uint64_t cpu_mask; /* whose clocks are read */
  int64_t memory_kb; /* -1: any */
  struct np_readings before;
  struct np_readings after;
  uint32_t n_rounds;
  struct np_round *rounds; /* [np_all_rounds] */
  struct np_round *round;  /* that is being run, NULL: none */
  uint32_t runs_before;    /* it */
  uint64_t seen_ns;        /* its clock when its last turn ended */
};

/* For np_child_start; ctx is the member. */
int np_member_perform(void *ctx, struct np_link *link);

/* Reads the device now, where /sys is the device's. */
void np_member_read(const struct np_member *member, struct np_readings *readings);

/* Sets `after` when its process is over, and of a simulated phone `before`, too. */
void np_member_read_last(struct np_member *member);

/* A round begins, which repeats another one (NP_NONE: none), or ends, if one is being run. */
void np_member_open_round(struct np_member *member, uint32_t repeats);
void np_member_close_round(struct np_member *member);

/* Samples belong to rounds, whatever a driver has scribbled over the record. */
void np_member_reconcile(struct np_member *member);

/* Ends what is left of a member when its line is written, or never will be. */
void np_member_drop(struct np_member *member);

/* Memory that an action's process may have, in kB; -1: any. */
int64_t np_member_memory(const struct np_action *action);

#endif
