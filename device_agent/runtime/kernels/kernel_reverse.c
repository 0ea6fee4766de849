/* REVERSE: reverses one axis. */
#include "kernels/np_move.h"

static enum np_status read_axis(const struct np_call *call, uint32_t *axis) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *values;
  size_t n;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, &values, &n));
  if (n != 1 || values[0] < 0 || (uint32_t)values[0] >= input->rank) {
    return np_fail(call, NP_BAD_MODEL, "%zu axes, wanted one from 0 to %d", n,
                   (int)input->rank - 1);
  }
  *axis = (uint32_t)values[0];
  return NP_OK;
}

static enum np_status reverse_infer(const struct np_call *call) {
  uint32_t axis = 0;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_axis(call, &axis));
  return np_set_shape(call, 0, np_in(call, 0)->rank, np_in(call, 0)->dims);
}

static enum np_status reverse_run(const struct np_call *call) {
  uint32_t axis = 0;
  NP_TRY(read_axis(call, &axis));
  const struct np_tensor *input = np_in(call, 0);
  ptrdiff_t steps[NP_MAX_RANK];
  if (input->elements == 0) {
    return NP_OK;
  }
  np_row_major(input->rank, input->dims, steps);
  const ptrdiff_t last = steps[axis] * (ptrdiff_t)(input->dims[axis] - 1);
  steps[axis] = -steps[axis];
  np_copy_view(input, np_out(call, 0)->room, input->rank, input->dims, steps, last);
  return NP_OK;
}

const struct np_kernel np_kernel_REVERSE = {
    .types = NP_MOVES, .infer = reverse_infer, .run = reverse_run};
