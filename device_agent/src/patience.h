/* The budget that a request's groups share beyond their rounds: for waiting while the device is
 * hot, and for rounds that are repeated because the clock moved. */
#ifndef NP_PATIENCE_H
#define NP_PATIENCE_H

#include "action.h"

#define NP_FOREVER UINT64_MAX

struct np_patience {
  uint64_t wait_ns; /* remaining time to wait, NP_FOREVER: no limit */
  uint64_t waited_ns;
  int fruitless;         /* a wait did not cool the device: no further wait */
  uint64_t simulated_ns; /* time of the actions by a simulated phone's clock */
  uint32_t n_rounds;
  uint32_t n_repeats;
};

/* Returns how long a group that has cool_ns left may wait now. */
uint64_t np_patience_limit(const struct np_patience *patience, uint64_t cool_ns);

/* Records that a group with *cool_ns left waited for spent_ns; `cool` is whether that helped. */
void np_patience_spend(struct np_patience *patience, uint64_t *cool_ns, uint64_t spent_ns,
                       int cool);

/* Waits for a real device to cool, judged by the clocks of the CPUs of a mask; *cool is whether it
 * did. NP_IO if the reader of the answers is gone. */
enum np_status np_patience_wait(const struct np_session *session, uint64_t cpu_mask, int reader_fd,
                                uint64_t *cool_ns, int *cool);

/* Returns whether a round in which the clock moved may be repeated: a request may repeat 16 rounds
 * plus half as many as it has. */
int np_patience_repeat(struct np_patience *patience);

#endif
