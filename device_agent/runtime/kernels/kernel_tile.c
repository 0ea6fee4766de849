/* TILE: repeats a tensor along its axes. */
#include <string.h>

#include "kernels/np_move.h"

static enum np_status tile_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *multiples;
  size_t n;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, 0));
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, &multiples, &n));
  if (n != input->rank) {
    return np_fail(call, NP_BAD_MODEL, "%zu multiples, wanted %u", n, input->rank);
  }
  for (uint32_t d = 0; d < input->rank; d++) {
    if (multiples[d] < 0) {
      return np_fail(call, NP_BAD_MODEL, "multiple %u is %d, wanted 0 or more", d, multiples[d]);
    }
    NP_TRY(np_multiply_dim(call, input->dims[d], (uint64_t)multiples[d], &dims[d]));
  }
  return np_set_shape(call, 0, input->rank, dims);
}

/* Copies the input to the corner of the output; then repeats along each axis, innermost first, the
 * part that is complete by then. */
static enum np_status tile_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const uint32_t corner[NP_MAX_RANK] = {0};
  ptrdiff_t strides[NP_MAX_RANK];
  const size_t size = np_type_bytes(output->type);
  if (output->elements == 0) {
    return NP_OK;
  }
  np_copy_into(input, output, corner);
  np_row_major(output->rank, output->dims, strides);
  size_t outer = input->elements;
  for (uint32_t d = input->rank; d-- > 0;) {
    const size_t bytes = input->dims[d] * (size_t)strides[d] * size;
    outer /= input->dims[d];
    for (size_t i = 0; i < outer; i++) {
      unsigned char *row =
          (unsigned char *)output->room + np_strided_offset(i, d, input->dims, strides) * size;
      for (size_t copy = 1; copy < output->dims[d] / input->dims[d]; copy++) {
        memcpy(row + copy * bytes, row, bytes);
      }
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_TILE = {.types = NP_MOVES, .infer = tile_infer, .run = tile_run};
