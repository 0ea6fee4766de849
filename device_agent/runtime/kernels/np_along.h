/* Operations along one axis: a tensor viewed as [outer][n][inner], where n is the axis. */
#ifndef NP_ALONG_H
#define NP_ALONG_H

#include "kernels/np_kernel.h"

struct np_along {
  size_t outer, n, inner;
};

/* Reads the axis of input 0 from input `input`; the default is the last axis. NP_MISSING if axis or
 * shape is not known, NP_BAD_MODEL if there is no such axis. */
static inline enum np_status np_read_axis(const struct np_call *call, uint32_t input,
                                          uint32_t *axis) {
  int32_t value = -1;
  if (!np_in(call, 0)->known) {
    return NP_MISSING;
  }
  if (np_has(call, input)) {
    NP_TRY(np_read_i32(call, input, &value));
  }
  return np_axis(call, value, np_in(call, 0)->rank, axis);
}

/* Sets the shape of an output that has that of input 0, and checks the axis if it is already
 * known. */
static inline enum np_status np_along_infer(const struct np_call *call, uint32_t input) {
  const struct np_tensor *data = np_in(call, 0);
  uint32_t axis;
  const enum np_status status = np_read_axis(call, input, &axis);
  if (status != NP_OK && status != NP_MISSING) {
    return status;
  }
  return data->known ? np_set_shape(call, 0, data->rank, data->dims) : NP_MISSING;
}

/* Views a tensor along an axis; `outer` is 0 for a tensor without elements. */
static inline struct np_along np_along_axis(const struct np_tensor *tensor, uint32_t axis) {
  struct np_along along = {tensor->elements > 0, tensor->dims[axis], 1};
  for (uint32_t d = 0; d < tensor->rank; d++) {
    along.outer *= d < axis ? tensor->dims[d] : 1;
    along.inner *= d > axis ? tensor->dims[d] : 1;
  }
  return along;
}

#endif
