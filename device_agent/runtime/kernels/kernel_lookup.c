/* GATHER and EMBEDDING_LOOKUP: pick slices by index. */
#include <string.h>

#include "kernels/np_move.h"

/* Copies the n slices of `bytes` each, of `limit` ones, that `indices` select. */
static enum np_status pick(const struct np_call *call, const int32_t *indices, size_t n,
                           uint32_t limit, const unsigned char *from, unsigned char *to,
                           size_t bytes) {
  for (size_t i = 0; i < n; i++) {
    if (indices[i] < 0 || (uint32_t)indices[i] >= limit) {
      return np_fail(call, NP_BAD_MODEL, "index %zu is %d, wanted one below %u", i, indices[i],
                     limit);
    }
    memcpy(to + i * bytes, from + (size_t)indices[i] * bytes, bytes);
  }
  return NP_OK;
}

/* ---- GATHER: input, axis, indices ---- */

static enum np_status gather_axis(const struct np_call *call, uint32_t *axis) {
  int32_t value;
  if (!np_in(call, 0)->known || !np_in(call, 2)->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &value));
  return np_axis(call, value, np_in(call, 0)->rank, axis);
}

/* The dimensions of the indices replace the axis. */
static enum np_status gather_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[2 * NP_MAX_RANK];
  uint32_t rank = 0;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(gather_axis(call, &axis));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *indices = np_in(call, 2);
  for (uint32_t d = 0; d < axis; d++) {
    dims[rank++] = input->dims[d];
  }
  for (uint32_t d = 0; d < indices->rank; d++) {
    dims[rank++] = indices->dims[d];
  }
  for (uint32_t d = axis + 1; d < input->rank; d++) {
    dims[rank++] = input->dims[d];
  }
  return np_set_shape(call, 0, rank, dims);
}

static enum np_status gather_run(const struct np_call *call) {
  uint32_t axis = 0;
  NP_TRY(gather_axis(call, &axis));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *indices = np_in(call, 2);
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  size_t outer, inner;
  np_split_at(input, axis, &outer, &inner);
  const size_t stride = inner * np_type_bytes(input->type);
  const size_t bytes = input->dims[axis] == 0 ? 0 : stride / input->dims[axis];
  for (size_t i = 0; i < outer; i++) {
    NP_TRY(pick(call, indices->data, indices->elements, input->dims[axis],
                (const unsigned char *)input->data + i * stride,
                (unsigned char *)np_out(call, 0)->room + i * indices->elements * bytes, bytes));
  }
  return NP_OK;
}

/* ---- EMBEDDING_LOOKUP: lookups, values ---- */

enum np_status np_rows_infer(const struct np_call *call, uint32_t values) {
  const struct np_tensor *lookups = np_in(call, 0);
  const struct np_tensor *rows = np_in(call, values);
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, values));
  if (!lookups->known || !rows->known) {
    return NP_MISSING;
  }
  if (lookups->rank != 1 || rows->rank < 1) {
    return np_fail(call, NP_BAD_MODEL, "lookups of rank %u among values of rank %u, wanted 1",
                   lookups->rank, rows->rank);
  }
  memcpy(dims, rows->dims, sizeof dims);
  dims[0] = lookups->dims[0];
  return np_set_shape(call, 0, rows->rank, dims);
}

size_t np_row_bytes(const struct np_tensor *tensor) {
  size_t outer, inner;
  np_split_at(tensor, 1, &outer, &inner);
  return inner * np_type_bytes(tensor->type);
}

static enum np_status embedding_lookup_infer(const struct np_call *call) {
  return np_rows_infer(call, 1);
}

static enum np_status embedding_lookup_run(const struct np_call *call) {
  const struct np_tensor *lookups = np_in(call, 0);
  const struct np_tensor *values = np_in(call, 1);
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  return pick(call, lookups->data, lookups->elements, values->dims[0], values->data,
              np_out(call, 0)->room, np_row_bytes(values));
}

const struct np_kernel np_kernel_GATHER = {
    .types = NP_ANY_TENSOR, .infer = gather_infer, .run = gather_run};

const struct np_kernel np_kernel_EMBEDDING_LOOKUP = {
    .types = NP_MOVES, .infer = embedding_lookup_infer, .run = embedding_lookup_run};
