/* CONCATENATION and SPLIT: join and cut tensors. */
#include <math.h>
#include <string.h>

#include "kernels/np_move.h"

void np_copy_rows(unsigned char *to, size_t to_stride, const unsigned char *from,
                  size_t from_stride, size_t outer, size_t bytes) {
  for (size_t i = 0; bytes > 0 && i < outer; i++) {
    memcpy(to + i * to_stride, from + i * from_stride, bytes);
  }
}

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

/* Adds input i to the joined shape. */
static enum np_status join_shape(const struct np_call *call, uint32_t i, uint32_t axis,
                                 uint32_t *dims) {
  const struct np_tensor *first = np_in(call, 0);
  const struct np_tensor *input = np_in(call, i);
  if (!input->known) {
    return NP_MISSING;
  }
  if (input->rank != first->rank) {
    return np_fail(call, NP_BAD_MODEL, "input %u has rank %u, wanted %u as input 0", i, input->rank,
                   first->rank);
  }
  for (uint32_t d = 0; d < first->rank; d++) {
    if (d != axis && input->dims[d] != first->dims[d]) {
      return np_fail(call, NP_BAD_MODEL, "input %u has %u in dimension %u, wanted %u as input 0", i,
                     input->dims[d], d, first->dims[d]);
    }
  }
  if (dims[axis] > UINT32_MAX - input->dims[axis]) {
    return np_fail(call, NP_BAD_MODEL, "the joined dimension %u is too large", axis);
  }
  dims[axis] += input->dims[axis];
  return NP_OK;
}

static enum np_status concatenation_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(concatenation_axis(call, &axis));
  const struct np_tensor *first = np_in(call, 0);
  memcpy(dims, first->dims, sizeof dims);
  for (uint32_t i = 1; i + 1 < call->operation->n_inputs; i++) {
    NP_TRY(join_shape(call, i, axis, dims));
  }
  return np_set_shape(call, 0, first->rank, dims);
}

/* Fills a table that converts bytes of a quantised input to the output: in single precision, scaled
 * before the zero point is added, and with both types as unsigned, as in the reference. */
static void requantization(const struct np_operand *from, const struct np_operand *to,
                           unsigned char table[256]) {
  const int32_t shift = np_q_is_signed(from->type) ? 128 : 0;
  const float scale = from->scale * (1.0f / to->scale);
  const float bias = (float)-(from->zero_point + shift) * scale;
  for (int32_t q = 0; q < 256; q++) {
    const float value = roundf((float)q * scale + bias) + (float)(to->zero_point + shift);
    const int32_t limited = value >= 255.0f ? 255 : value > 0.0f ? (int32_t)value : 0;
    table[q ^ shift] = (unsigned char)(limited ^ shift);
  }
}

static void apply_table(const unsigned char table[256], unsigned char *to, size_t to_stride,
                        const unsigned char *from, size_t outer, size_t inner) {
  for (size_t i = 0; i < outer; i++) {
    for (size_t j = 0; j < inner; j++) {
      to[i * to_stride + j] = table[from[i * inner + j]];
    }
  }
}

static enum np_status concatenation_run(const struct np_call *call) {
  uint32_t axis = 0;
  size_t outer, out_inner;
  NP_TRY(concatenation_axis(call, &axis));
  const struct np_tensor *output = np_out(call, 0);
  const struct np_operand *joined = np_out_operand(call, 0);
  const size_t size = np_type_bytes(output->type);
  if (output->elements == 0) {
    return NP_OK;
  }
  np_split_at(output, axis, &outer, &out_inner);
  unsigned char *to = output->room;
  for (uint32_t i = 0; i + 1 < call->operation->n_inputs; i++) {
    const struct np_tensor *input = np_in(call, i);
    const struct np_operand *operand = np_in_operand(call, i);
    size_t inner;
    np_split_at(input, axis, &outer, &inner);
    if ((NP_BIT(operand->type) & NP_QUANT8) != 0 &&
        (operand->scale != joined->scale || operand->zero_point != joined->zero_point)) {
      unsigned char table[256];
      requantization(operand, joined, table);
      apply_table(table, to, out_inner, input->data, outer, inner);
    } else {
      np_copy_rows(to, out_inner * size, input->data, inner * size, outer, inner * size);
    }
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

static enum np_status split_infer(const struct np_call *call) {
  uint32_t axis = 0;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(split_axis(call, &axis));
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  dims[axis] /= call->operation->n_outputs;
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    NP_TRY(np_q_same_as_input(call, i, 0));
    NP_TRY(np_set_shape(call, i, np_in(call, 0)->rank, dims));
  }
  return NP_OK;
}

static enum np_status split_run(const struct np_call *call) {
  uint32_t axis = 0;
  size_t outer, in_inner;
  NP_TRY(split_axis(call, &axis));
  const struct np_tensor *input = np_in(call, 0);
  const size_t size = np_type_bytes(input->type);
  if (input->elements == 0) {
    return NP_OK;
  }
  np_split_at(input, axis, &outer, &in_inner);
  const size_t bytes = in_inner / call->operation->n_outputs * size;
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    np_copy_rows(np_out(call, i)->room, bytes, (const unsigned char *)input->data + i * bytes,
                 in_inner * size, outer, bytes);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_CONCATENATION = {
    .types = NP_MOVES, .infer = concatenation_infer, .run = concatenation_run};

const struct np_kernel np_kernel_SPLIT = {
    .types = NP_MOVES, .infer = split_infer, .run = split_run};
