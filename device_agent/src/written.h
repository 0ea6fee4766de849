/* Whether drivers write what they say: the outputs of segments on NNAPI hold a pattern before runs
 * that are not recorded, and must not hold it afterwards, nor NaN where the CPU has none. A driver
 * that leaves its work undone is the fastest of all. */
#ifndef NP_WRITTEN_H
#define NP_WRITTEN_H

#include "executable.h"
#include "request.h"

struct np_written {
  const struct np_action *action;
  struct np_pipeline *pipeline;
  void *const *inputs;  /* the caller's */
  void *const *outputs; /* likewise, each may be NULL */
  uint8_t **suspects;   /* [n_tensors], a bit for each element that may be unwritten; NULL: none */
};

/* Whether an action's outputs are looked at: nobody else does, and it has runs before those that
 * count. */
int np_written_matters(const struct np_action *action);

/* Begins, before any run. What is named must outlive it. NP_NO_MEMORY. */
enum np_status np_written_open(const struct np_action *action, struct np_pipeline *pipeline,
                               void *const *inputs, void *const *outputs,
                               struct np_written *written);
void np_written_close(struct np_written *written);

/* After runs: NP_RUN_FAILED, and why, where some of an output is not written, or is NaN and is not
 * so on the CPU. Elements of 8 bits may be the pattern by chance: they get another one, which
 * np_written_again looks for after further runs. */
enum np_status np_written_check(struct np_written *written, const struct np_nnapi_library *library,
                                struct np_message *why);
enum np_status np_written_again(const struct np_written *written, struct np_message *why);

#endif
