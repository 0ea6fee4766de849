/* A running action of a group: its process, its rounds, and readings of the device. */
#ifndef NP_MEMBER_H
#define NP_MEMBER_H

#include "action.h"

/* One action and its process. */
struct np_member {
  const struct np_session *session;
  const struct np_action *action;
  struct np_record_view view;
  struct np_child child;
  int runs;                  /* its process exists, its line is not written */
  int is_held;               /* its line is held back because a driver may be sick */
  struct np_driver *doubted; /* the driver that failed it; NULL: any that NNAPI may have chosen */
  struct np_process_end end; /* contents of the line */
  uint32_t turns;
  uint32_t limit_ms; /* limit of the current turn */
  uint64_t cpu_mask; /* CPUs whose clocks are read */
  int64_t memory_kb; /* -1: no limit */
  struct np_readings before;
  struct np_readings after;
  uint32_t n_rounds;
  struct np_round *rounds; /* [np_all_rounds] */
  struct np_round *round;  /* the current one, NULL: none */
  uint32_t runs_before;    /* number of runs before it */
  uint64_t seen_ns;        /* its clock at the end of its last turn */
};

/* Performs the action in its process, for np_child_start; ctx is the member. */
int np_member_perform(void *ctx, struct np_link *link);

/* Reads the device now, if /sys describes it. */
void np_member_read(const struct np_member *member, struct np_readings *readings);

/* Sets `after` once the process has ended, and for a simulated phone also `before`. */
void np_member_read_last(struct np_member *member);

/* Begin a round, which repeats another one (NP_NONE: none); end the current round, if any. */
void np_member_open_round(struct np_member *member, uint32_t repeats);
void np_member_close_round(struct np_member *member);

/* Makes the numbers of samples and rounds consistent, whatever a driver wrote over the record. */
void np_member_reconcile(struct np_member *member);

/* Releases the rest of a member once its line is written, or never will be. */
void np_member_drop(struct np_member *member);

/* Returns the memory limit of an action's process, in kB; -1: none. */
int64_t np_member_memory(const struct np_action *action);

#endif
