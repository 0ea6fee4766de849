/* ANeuralNetworksExecution_get*: results of a completed execution. */
#include <string.h>

#include "emulator.h"

/* In real time both durations are the run's time, on a simulated phone those of its model. Waiting
 * for dependencies counts for the driver, but not for the fenced codes. UINT64_MAX with every
 * error. */
int ANeuralNetworksExecution_getDuration(const ANeuralNetworksExecution *execution,
                                         int32_t durationCode, uint64_t *duration) {
  if (!execution || !duration) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or duration is NULL");
  }
  *duration = ANEURALNETWORKS_DURATION_UNAVAILABLE;
  if (durationCode < ANEURALNETWORKS_DURATION_ON_HARDWARE ||
      durationCode > ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER) {
    return NP_REFUSE(BAD_DATA, "%d is no duration code", durationCode);
  }
  if (atomic_load(&execution->state) != NP_COMPLETED ||
      execution->result != ANEURALNETWORKS_NO_ERROR || !execution->measure) {
    return NP_REFUSE(BAD_STATE, "the execution has not completed well with timing on");
  }
  switch (durationCode) {
  case ANEURALNETWORKS_DURATION_IN_DRIVER:
    *duration = execution->driver_ns + execution->waited_ns;
    break;
  case ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER:
    *duration = execution->driver_ns;
    break;
  default:
    *duration = execution->hardware_ns;
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Finds an output of a completed execution: NO_ERROR, or OUTPUT_INSUFFICIENT_SIZE if its buffer was
 * too small (its shape is known even then). */
static int completed_output(const ANeuralNetworksExecution *execution, int32_t index,
                            const struct np_argument **output) {
  if (atomic_load(&execution->state) != NP_COMPLETED ||
      (execution->result != ANEURALNETWORKS_NO_ERROR &&
       execution->result != ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE)) {
    return NP_REFUSE(BAD_STATE, "the execution has not completed well");
  }
  const uint32_t n = execution->compilation->model->graph.n_outputs;
  if (index < 0 || (uint32_t)index >= n) {
    return NP_REFUSE(BAD_DATA, "output %d of %u", index, n);
  }
  *output = &execution->outputs[index];
  return (*output)->too_small ? ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE : ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksExecution_getOutputOperandRank(ANeuralNetworksExecution *execution,
                                                  int32_t index, uint32_t *rank) {
  if (!execution || !rank) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or rank is NULL");
  }
  const struct np_argument *output = NULL;
  const int code = completed_output(execution, index, &output);
  if (output) {
    *rank = output->rank;
  }
  return code;
}

/* BAD_DATA for a scalar, which has no dimensions. */
int ANeuralNetworksExecution_getOutputOperandDimensions(ANeuralNetworksExecution *execution,
                                                        int32_t index, uint32_t *dimensions) {
  if (!execution || !dimensions) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or result is NULL");
  }
  const struct np_argument *output = NULL;
  const int code = completed_output(execution, index, &output);
  if (!output) {
    return code;
  }
  if (output->rank == 0) {
    return NP_REFUSE(BAD_DATA, "output %d is a scalar", index);
  }
  memcpy(dimensions, output->dims, output->rank * sizeof *dimensions);
  return code;
}
