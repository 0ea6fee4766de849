/* What a request's groups may spend on more than their rounds: on waiting for a hot device, and on
 * rounds that are repeated because the clock moved. */
#ifndef NP_PATIENCE_H
#define NP_PATIENCE_H

#include "action.h"

#define NP_FOREVER UINT64_MAX

struct np_patience {
  uint64_t wait_ns; /* that they may still wait, NP_FOREVER without end */
  uint64_t waited_ns;
  int fruitless;         /* the device was waited for, and stayed hot: no further wait */
  uint64_t simulated_ns; /* that the actions took by a simulated phone's clock */
  uint32_t n_rounds;
  uint32_t n_repeats;
};

/* How long a group may wait now that has cool_ns left. */
uint64_t np_patience_limit(const struct np_patience *patience, uint64_t cool_ns);

/* A group with *cool_ns left has waited; cool is whether that helped. */
void np_patience_spend(struct np_patience *patience, uint64_t *cool_ns, uint64_t spent_ns,
                       int cool);

/* Waits for the real device to be cool, by the clocks of the CPUs of a mask; *cool tells whether it
 * is. NP_IO where the reader of the answers is gone. */
enum np_status np_patience_wait(const struct np_session *session, uint64_t cpu_mask, int reader_fd,
                                uint64_t *cool_ns, int *cool);

/* Whether there is time for another round because the clock moved in one: for 16 of a request, and
 * for half as many as it has rounds. */
int np_patience_repeat(struct np_patience *patience);

#endif
