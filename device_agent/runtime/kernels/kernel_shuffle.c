/* CHANNEL_SHUFFLE: transposes an axis viewed as [groups, elements of a group]. */
#include "kernels/np_move.h"

static enum np_status read_shuffle(const struct np_call *call, uint32_t *groups, uint32_t *axis) {
  const struct np_tensor *input = np_in(call, 0);
  int32_t n, value;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &n));
  NP_TRY(np_read_i32(call, 2, &value));
  NP_TRY(np_axis(call, value, input->rank, axis));
  if (n < 1 || input->dims[*axis] % (uint32_t)n != 0) {
    return np_fail(call, NP_BAD_MODEL, "%u channels in %d groups", input->dims[*axis], n);
  }
  *groups = (uint32_t)n;
  return NP_OK;
}

static enum np_status shuffle_infer(const struct np_call *call) {
  uint32_t groups = 1;
  uint32_t axis = 0;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_shuffle(call, &groups, &axis));
  return np_set_shape(call, 0, np_in(call, 0)->rank, np_in(call, 0)->dims);
}

static enum np_status shuffle_run(const struct np_call *call) {
  uint32_t groups = 1;
  uint32_t axis = 0;
  NP_TRY(read_shuffle(call, &groups, &axis));
  const struct np_tensor *input = np_in(call, 0);
  uint32_t dims[NP_MAX_RANK];
  ptrdiff_t steps[NP_MAX_RANK];
  ptrdiff_t strides[NP_MAX_RANK];
  if (input->elements == 0) {
    return NP_OK;
  }
  np_row_major(input->rank, input->dims, strides);
  const uint32_t size = input->dims[axis] / groups; /* elements of a group */
  size_t outer, inner;
  np_split_at(input, axis, &outer, &inner);
  const size_t block = inner * np_type_bytes(input->type);
  dims[0] = size;
  dims[1] = groups;
  dims[2] = (uint32_t)strides[axis];
  steps[0] = strides[axis];
  steps[1] = strides[axis] * (ptrdiff_t)size;
  steps[2] = 1;
  for (size_t i = 0; i < outer; i++) {
    np_copy_view(input, (unsigned char *)np_out(call, 0)->room + i * block, 3, dims, steps,
                 (ptrdiff_t)(i * inner));
  }
  return NP_OK;
}

const struct np_kernel np_kernel_CHANNEL_SHUFFLE = {
    .types = NP_MOVES, .infer = shuffle_infer, .run = shuffle_run};
