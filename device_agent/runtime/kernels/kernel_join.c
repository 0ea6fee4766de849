/* CONCATENATION, SPLIT, PAD and PAD_V2: tensors joined, cut and framed. */
#include <string.h>

#include "kernels/np_families.h"
#include "kernels/np_gather.h"

/* ---- CONCATENATION: data inputs, then the axis ---- */

static enum np_status concatenation_axis(const struct np_call *call, uint32_t *axis) {
  const uint32_t n = call->operation->n_inputs - 1;
  const struct np_tensor *first = np_in(call, 0);
  int32_t value;
  if (!first->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, n, &value));
  if (value < 0 || (uint32_t)value >= first->rank) {
    return np_fail(call, NP_BAD_MODEL, "axis %d, wanted 0 to %d", value, (int)first->rank - 1);
  }
  *axis = (uint32_t)value;
  return NP_OK;
}

enum np_status np_concatenation_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(concatenation_axis(call, &axis));
  const struct np_tensor *first = np_in(call, 0);
  memcpy(dims, first->dims, sizeof dims);
  for (uint32_t i = 1; i + 1 < call->operation->n_inputs; i++) {
    const struct np_tensor *input = np_in(call, i);
    if (!input->known) {
      return NP_MISSING;
    }
    if (input->rank != first->rank) {
      return np_fail(call, NP_BAD_MODEL, "input %u has rank %u, wanted %u as input 0", i,
                     input->rank, first->rank);
    }
    for (uint32_t d = 0; d < first->rank; d++) {
      if (d != axis && input->dims[d] != first->dims[d]) {
        return np_fail(call, NP_BAD_MODEL, "input %u has %u in dimension %u, wanted %u as input 0",
                       i, input->dims[d], d, first->dims[d]);
      }
    }
    if (dims[axis] > UINT32_MAX - input->dims[axis]) {
      return np_fail(call, NP_BAD_MODEL, "the joined dimension %u is too large", axis);
    }
    dims[axis] += input->dims[axis];
  }
  return np_set_shape(call, 0, first->rank, dims);
}

/* Elements of a tensor before and from an axis on: [outer, inner]. */
static void split_at(const struct np_tensor *tensor, uint32_t axis, size_t *outer, size_t *inner) {
  *outer = 1;
  *inner = 1;
  for (uint32_t d = 0; d < tensor->rank; d++) {
    *(d < axis ? outer : inner) *= tensor->dims[d];
  }
}

/* Copies `outer` rows of `bytes` each between places with strides of their own. */
static void copy_rows(unsigned char *to, size_t to_stride, const unsigned char *from,
                      size_t from_stride, size_t outer, size_t bytes) {
  for (size_t i = 0; bytes > 0 && i < outer; i++) {
    memcpy(to + i * to_stride, from + i * from_stride, bytes);
  }
}

enum np_status np_concatenation_run(const struct np_call *call) {
  uint32_t axis = 0;
  size_t outer, out_inner;
  NP_TRY(concatenation_axis(call, &axis));
  const struct np_tensor *output = np_out(call, 0);
  const size_t size = np_type_bytes(output->type);
  split_at(output, axis, &outer, &out_inner);
  unsigned char *to = output->room;
  for (uint32_t i = 0; i + 1 < call->operation->n_inputs; i++) {
    const struct np_tensor *input = np_in(call, i);
    size_t inner;
    split_at(input, axis, &outer, &inner);
    copy_rows(to, out_inner * size, input->data, inner * size, outer, inner * size);
    to += inner * size;
  }
  return NP_OK;
}

/* ---- SPLIT: input, axis, number of parts ---- */

static enum np_status split_axis(const struct np_call *call, uint32_t *axis) {
  int32_t value, parts;
  if (!np_in(call, 0)->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &value));
  NP_TRY(np_read_i32(call, 2, &parts));
  NP_TRY(np_axis(call, value, np_in(call, 0)->rank, axis));
  const uint32_t dim = np_in(call, 0)->dims[*axis];
  if (parts < 1 || (uint32_t)parts != call->operation->n_outputs || dim % (uint32_t)parts != 0) {
    return np_fail(call, NP_BAD_MODEL, "%u elements into %d parts and %u outputs", dim, parts,
                   call->operation->n_outputs);
  }
  return NP_OK;
}

enum np_status np_split_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(split_axis(call, &axis));
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  dims[axis] /= call->operation->n_outputs;
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    NP_TRY(np_set_shape(call, i, np_in(call, 0)->rank, dims));
  }
  return NP_OK;
}

enum np_status np_split_run(const struct np_call *call) {
  uint32_t axis = 0;
  size_t outer, in_inner;
  NP_TRY(split_axis(call, &axis));
  const struct np_tensor *input = np_in(call, 0);
  const size_t size = np_type_bytes(input->type);
  split_at(input, axis, &outer, &in_inner);
  const size_t bytes = in_inner / call->operation->n_outputs * size;
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    copy_rows(np_out(call, i)->room, bytes, (const unsigned char *)input->data + i * bytes,
              in_inner * size, outer, bytes);
  }
  return NP_OK;
}

/* ---- PAD and PAD_V2: input, paddings [rank, 2], value ---- */

static enum np_status read_paddings(const struct np_call *call, const int32_t **paddings) {
  const struct np_tensor *input = np_in(call, 0);
  size_t n;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, paddings, &n));
  if (n != 2 * (size_t)input->rank) {
    return np_fail(call, NP_BAD_MODEL, "%zu paddings, wanted two for each of %u dimensions", n,
                   input->rank);
  }
  return NP_OK;
}

enum np_status np_pad_infer(const struct np_call *call) {
  const int32_t *paddings;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(read_paddings(call, &paddings));
  const struct np_tensor *input = np_in(call, 0);
  for (uint32_t d = 0; d < input->rank; d++) {
    const int32_t before = paddings[2 * d];
    const int32_t after = paddings[2 * d + 1];
    const uint64_t dim = (uint64_t)input->dims[d] + (uint32_t)before + (uint32_t)after;
    if (before < 0 || after < 0 || dim > UINT32_MAX) {
      return np_fail(call, NP_BAD_MODEL, "paddings %d and %d of dimension %u, wanted 0 or more",
                     before, after, d);
    }
    dims[d] = (uint32_t)dim;
  }
  return np_set_shape(call, 0, input->rank, dims);
}

enum np_status np_pad_run(const struct np_call *call) {
  const int32_t *paddings;
  float value = 0.0f;
  NP_TRY(read_paddings(call, &paddings));
  if (np_has(call, 2)) {
    NP_TRY(np_read_f32(call, 2, &value));
  }
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  struct np_view to = {.rank = input->rank};
  struct np_view from = {.rank = input->rank};
  float *out = output->room;
  for (size_t i = 0; i < output->elements; i++) {
    out[i] = value;
  }
  if (input->elements == 0) {
    return NP_OK;
  }
  np_row_major(output->rank, output->dims, to.strides);
  np_row_major(input->rank, input->dims, from.strides);
  for (uint32_t d = 0; d < input->rank; d++) {
    to.dims[d] = input->dims[d];
    out += (ptrdiff_t)paddings[2 * d] * to.strides[d];
  }
  np_gather(&to, out, &from, input->data, sizeof *out);
  return NP_OK;
}

const struct np_kernel np_kernel_CONCATENATION = {.types =
                                                      NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16),
                                                  .infer = np_concatenation_infer,
                                                  .run = np_concatenation_run};

const struct np_kernel np_kernel_SPLIT = {
    .types = NP_MOVES, .infer = np_split_infer, .run = np_split_run};

const struct np_kernel np_kernel_PAD = {
    .types = NP_FLOATS, .infer = np_pad_infer, .run = np_pad_run};
const struct np_kernel np_kernel_PAD_V2 = {
    .types = NP_FLOATS, .infer = np_pad_infer, .run = np_pad_run};
