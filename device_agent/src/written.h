/* Checks that drivers really write their outputs: the outputs of segments on NNAPI are filled with
 * a pattern before unrecorded runs, and must not contain it afterwards, nor NaN where the CPU has
 * none. A driver that does no work would be the fastest of all. */
#ifndef NP_WRITTEN_H
#define NP_WRITTEN_H

#include "executable.h"
#include "request.h"

struct np_written {
  const struct np_action *action;
  struct np_pipeline *pipeline;
  void *const *inputs;  /* the caller's */
  void *const *outputs; /* the caller's, each may be NULL */
  uint8_t **suspects;   /* [n_tensors], a bit for each element that may be unwritten; NULL: none
                           is */
};

/* Returns whether to check an action's outputs: it keeps none for the host to compare, and it has
 * unrecorded runs. */
int np_written_matters(const struct np_action *action);

/* Begins the check, before any run. All arguments must outlive *written. NP_NO_MEMORY. */
enum np_status np_written_open(const struct np_action *action, struct np_pipeline *pipeline,
                               void *const *inputs, void *const *outputs,
                               struct np_written *written);
void np_written_close(struct np_written *written);

/* To be called after runs: NP_RUN_FAILED with *why if part of an output was not written, or is NaN
 * but not on the CPU. 8-bit elements may equal the pattern by chance: they get another pattern,
 * which np_written_again looks for after further runs. */
enum np_status np_written_check(struct np_written *written, const struct np_nnapi_library *library,
                                struct np_message *why);
enum np_status np_written_again(const struct np_written *written, struct np_message *why);

#endif
