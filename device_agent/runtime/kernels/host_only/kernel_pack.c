/* PACK: tensors of one shape as slices along a new axis. Inputs: the axis, then the tensors. */
#include <string.h>

#include "kernels/np_move.h"

static enum np_status pack_axis(const struct np_call *call, uint32_t *axis) {
  int32_t value;
  if (!np_in(call, 1)->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 0, &value));
  if (value < 0 || (uint32_t)value > np_in(call, 1)->rank) {
    return np_fail(call, NP_BAD_MODEL, "axis %d, wanted 0 to %u", value, np_in(call, 1)->rank);
  }
  *axis = (uint32_t)value;
  return NP_OK;
}

static enum np_status pack_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[NP_MAX_RANK + 1];
  NP_TRY(pack_axis(call, &axis));
  const struct np_tensor *first = np_in(call, 1);
  for (uint32_t i = 1; i < call->operation->n_inputs; i++) {
    const struct np_tensor *input = np_in(call, i);
    if (!input->known) {
      return NP_MISSING;
    }
    if (input->rank != first->rank ||
        memcmp(input->dims, first->dims, first->rank * sizeof *first->dims) != 0) {
      return np_fail(call, NP_BAD_MODEL, "input %u has another shape than input 1", i);
    }
    NP_TRY(np_q_same_as_input(call, 0, i));
  }
  for (uint32_t d = 0; d <= first->rank; d++) {
    dims[d] = d == axis ? call->operation->n_inputs - 1 : first->dims[d - (d > axis)];
  }
  return np_set_shape(call, 0, first->rank + 1, dims);
}

static enum np_status pack_run(const struct np_call *call) {
  uint32_t axis = 0;
  size_t outer, inner;
  NP_TRY(pack_axis(call, &axis));
  const uint32_t n = call->operation->n_inputs - 1;
  const size_t size = np_type_bytes(np_out(call, 0)->type);
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  np_split_at(np_in(call, 1), axis, &outer, &inner);
  for (uint32_t i = 0; i < n; i++) {
    np_copy_rows((unsigned char *)np_out(call, 0)->room + i * inner * size, n * inner * size,
                 np_in(call, 1 + i)->data, inner * size, outer, inner * size);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_PACK = {.types = NP_MOVES, .infer = pack_infer, .run = pack_run};
