/* RESHAPE, SQUEEZE and EXPAND_DIMS: the same values in the same order under another shape. */
#include <string.h>

#include "kernels/np_move.h"

static enum np_status copy_values(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  if (input->elements > 0) {
    memcpy(np_out(call, 0)->room, input->data, input->elements * np_type_bytes(input->type));
  }
  return NP_OK;
}

/* ---- RESHAPE ---- */

/* Reads a shape; *product is that of all dimensions except the one to stretch, whose index is
 * `rank` for none. */
static enum np_status read_shape(const struct np_call *call, size_t *rank, uint32_t *dims,
                                 size_t *product, size_t *stretched) {
  const int32_t *shape;
  NP_TRY(np_read_list(call, 1, &shape, rank));
  if (*rank == 0 || *rank > NP_MAX_RANK) {
    return np_fail(call, NP_BAD_MODEL, "a shape of %zu dimensions, wanted 1 to %u", *rank,
                   NP_MAX_RANK);
  }
  *product = 1;
  *stretched = *rank;
  for (size_t d = 0; d < *rank; d++) {
    if (shape[d] == -1 && *stretched == *rank) {
      *stretched = d;
      continue;
    }
    if (shape[d] < 0) {
      return np_fail(call, NP_BAD_MODEL, "dimension %zu of the shape is %d, wanted one -1 at most",
                     d, shape[d]);
    }
    dims[d] = (uint32_t)shape[d];
    *product = np_mul_saturated(*product, dims[d]);
  }
  return NP_OK;
}

static enum np_status reshape_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  uint32_t dims[NP_MAX_RANK];
  size_t rank = 0;
  size_t product = 0;
  size_t stretched = 0;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(read_shape(call, &rank, dims, &product, &stretched));
  if (stretched < rank) {
    const size_t rest = product == 0 ? 0 : input->elements / product;
    dims[stretched] = rest > UINT32_MAX ? UINT32_MAX : (uint32_t)rest;
    product = np_mul_saturated(product, rest);
  }
  if (product != input->elements) {
    return np_fail(call, NP_BAD_MODEL, "%zu elements do not fit a shape of %zu", input->elements,
                   product);
  }
  return np_set_shape(call, 0, (uint32_t)rank, dims);
}

/* ---- SQUEEZE ---- */

/* Marks the axes to drop: those listed, or all of size 1 if the list is omitted or empty. */
static enum np_status read_squeezed(const struct np_call *call, int squeezed[NP_MAX_RANK]) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *axes = NULL;
  size_t n = 0;
  if (np_has(call, 1)) {
    NP_TRY(np_read_list(call, 1, &axes, &n));
  }
  for (size_t i = 0; i < n; i++) {
    uint32_t axis = 0;
    NP_TRY(np_axis(call, axes[i], input->rank, &axis));
    if (input->dims[axis] != 1) {
      return np_fail(call, NP_BAD_MODEL, "dimension %u is %u, wanted 1 to squeeze it", axis,
                     input->dims[axis]);
    }
    squeezed[axis] = 1;
  }
  for (uint32_t d = 0; n == 0 && d < input->rank; d++) {
    squeezed[d] = input->dims[d] == 1;
  }
  return NP_OK;
}

static enum np_status squeeze_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  int squeezed[NP_MAX_RANK] = {0};
  NP_TRY(np_q_same_as_input(call, 0, 0));
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(read_squeezed(call, squeezed));
  uint32_t dims[NP_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    if (!squeezed[d]) {
      dims[rank++] = input->dims[d];
    }
  }
  if (rank == 0) {
    dims[rank++] = 1; /* required by NNAPI's documentation */
  }
  return np_set_shape(call, 0, rank, dims);
}

/* ---- EXPAND_DIMS ---- */

static enum np_status expand_dims_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  int32_t value;
  uint32_t axis = 0;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &value));
  NP_TRY(np_axis(call, value, input->rank + 1, &axis));
  if (input->rank == NP_MAX_RANK) {
    return np_fail(call, NP_UNSUPPORTED, "rank %u is the most that this engine knows", NP_MAX_RANK);
  }
  uint32_t dims[NP_MAX_RANK];
  for (uint32_t d = 0; d <= input->rank; d++) {
    dims[d] = d == axis ? 1 : input->dims[d - (d > axis)];
  }
  return np_set_shape(call, 0, input->rank + 1, dims);
}

const struct np_kernel np_kernel_RESHAPE = {
    .types = NP_ANY_TENSOR, .infer = reshape_infer, .run = copy_values};

const struct np_kernel np_kernel_SQUEEZE = {
    .types = NP_MOVES, .infer = squeeze_infer, .run = copy_values};

const struct np_kernel np_kernel_EXPAND_DIMS = {
    .types = NP_MOVES, .infer = expand_dims_infer, .run = copy_values};
