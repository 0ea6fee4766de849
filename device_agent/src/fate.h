/* Whether what became of an action is final: no failure is, before the action failed alone. */
#ifndef NP_FATE_H
#define NP_FATE_H

#include "action.h"

enum np_fate {
  NP_FATE_DONE,
  NP_FATE_AGAIN, /* it may have failed for its company, and is to be tried alone */
  NP_FATE_LATE,  /* the same, as it was not done in time */
  NP_FATE_FULL,  /* the same, as its driver held no more compilations, or died */
  NP_FATE_SICK,  /* the same, as its driver failed what it ran before, too */
  NP_FATE_ASK    /* an accelerator refused it, and is to be asked once more */
};

/* Whether an action came to an end that its engine did not mean. */
int np_has_failed(const struct np_process_end *end);

/* What becomes of an action that is over. Final are: the second attempt; what its own memory limit
 * ended; what the CPU's engine says; and a success, but of NNAPI's choice in company that failed,
 * since it falls back to the CPU where a driver fails, and tells nobody. */
enum np_fate np_fate_of(const struct np_process_end *end, int company_failed);

#endif
