/* PAD, PAD_V2 and MIRROR_PAD: frame tensors with a value or with their own reflection. */
#include <string.h>

#include "kernels/np_move.h"

/* Reads input 1, [rank, 2]: the padding before and after each dimension. */
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

static enum np_status pad_infer(const struct np_call *call) {
  const int32_t *paddings;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, 0));
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

/* Copies the input to its place inside the paddings. */
static void copy_middle(const struct np_call *call, const int32_t *paddings) {
  uint32_t starts[NP_MAX_RANK];
  for (uint32_t d = 0; d < np_in(call, 0)->rank; d++) {
    starts[d] = (uint32_t)paddings[2 * d];
  }
  if (np_in(call, 0)->elements > 0) {
    np_copy_into(np_in(call, 0), np_out(call, 0), starts);
  }
}

/* ---- PAD and PAD_V2 ---- */

/* Returns the value of the frame in the data's type; for PAD it is the representation of zero. */
static void frame_value(const struct np_call *call, unsigned char value[4]) {
  const struct np_operand *data = np_in_operand(call, 0);
  const int quantised = (NP_BIT(data->type) & NP_QUANT8) != 0;
  int32_t q = data->zero_point;
  memset(value, 0, 4);
  if (call->operation->n_inputs > 2) { /* PAD_V2's value, quantised like the data */
    const struct np_tensor *scalar = np_in(call, 2);
    memcpy(quantised ? (void *)&q : (void *)value, scalar->data, np_type_bytes(scalar->type));
  }
  if (quantised) {
    int32_t low, high;
    np_q_limits(data->type, &low, &high);
    np_q_write(data->type, value, 0, np_limit(q, low, high));
  }
}

static void fill(unsigned char *out, size_t n, const unsigned char *value, size_t size) {
  if (size == 1) {
    memset(out, value[0], n);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    memcpy(out + i * size, value, size);
  }
}

static enum np_status pad_run(const struct np_call *call) {
  const int32_t *paddings;
  unsigned char value[4];
  NP_TRY(read_paddings(call, &paddings));
  const struct np_tensor *output = np_out(call, 0);
  if (output->elements == 0) {
    return NP_OK;
  }
  frame_value(call, value);
  fill(output->room, output->elements, value, np_type_bytes(output->type));
  copy_middle(call, paddings);
  return NP_OK;
}

/* ---- MIRROR_PAD: input, paddings, mode ---- */

/* Reads how many edge elements a reflection skips: 1 in mode REFLECT, 0 in SYMMETRIC. */
static enum np_status read_mode(const struct np_call *call, uint32_t *skipped) {
  int32_t mode;
  NP_TRY(np_read_i32(call, 2, &mode));
  if (mode != 0 && mode != 1) {
    return np_fail(call, NP_BAD_MODEL, "mode %d, wanted 0 or 1", mode);
  }
  *skipped = mode == 0;
  return NP_OK;
}

static enum np_status mirror_pad_infer(const struct np_call *call) {
  const int32_t *paddings;
  uint32_t skipped = 0;
  NP_TRY(read_paddings(call, &paddings));
  NP_TRY(read_mode(call, &skipped));
  for (uint32_t i = 0; i < 2 * np_in(call, 0)->rank; i++) {
    const uint32_t dim = np_in(call, 0)->dims[i / 2];
    if (paddings[i] < 0 || (int64_t)paddings[i] > (int64_t)dim - skipped) {
      return np_fail(call, NP_BAD_MODEL, "padding %d of a dimension of %u, wanted 0 to %lld",
                     paddings[i], dim, (long long)dim - skipped);
    }
  }
  return pad_infer(call);
}

/* Reflects one axis of the output into its frame, for one position of the axes before it. `slab` is
 * the bytes of one element of the axis. */
static void reflect(unsigned char *row, size_t slab, uint32_t dim, uint32_t before, uint32_t after,
                    uint32_t skipped) {
  for (uint32_t i = 0; i < before; i++) {
    memcpy(row + (before - 1 - i) * slab, row + ((size_t)before + skipped + i) * slab, slab);
  }
  const size_t end = (size_t)before + dim;
  for (uint32_t i = 0; i < after; i++) {
    memcpy(row + (end + i) * slab, row + (end - 1 - skipped - i) * slab, slab);
  }
}

/* Copies the middle first; then reflects along each axis, innermost first, the part that is
 * complete by then. */
static enum np_status mirror_pad_run(const struct np_call *call) {
  const int32_t *paddings;
  uint32_t skipped = 0;
  NP_TRY(read_paddings(call, &paddings));
  NP_TRY(read_mode(call, &skipped));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const size_t size = np_type_bytes(output->type);
  ptrdiff_t strides[NP_MAX_RANK];
  if (output->elements == 0) {
    return NP_OK;
  }
  copy_middle(call, paddings);
  np_row_major(output->rank, output->dims, strides);
  size_t middle = 0; /* offset of the middle's first element in the axes before */
  size_t outer = 1;
  for (uint32_t d = 0; d < input->rank; d++) {
    middle += (size_t)paddings[2 * d] * (size_t)strides[d];
    outer *= input->dims[d];
  }
  for (uint32_t d = input->rank; d-- > 0;) {
    middle -= (size_t)paddings[2 * d] * (size_t)strides[d];
    outer /= input->dims[d];
    for (size_t i = 0; i < outer; i++) {
      const size_t place = middle + np_strided_offset(i, d, input->dims, strides);
      reflect((unsigned char *)output->room + place * size, (size_t)strides[d] * size,
              input->dims[d], (uint32_t)paddings[2 * d], (uint32_t)paddings[2 * d + 1], skipped);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_PAD = {.types = NP_MOVES, .infer = pad_infer, .run = pad_run};

const struct np_kernel np_kernel_PAD_V2 = {.types = NP_MOVES, .infer = pad_infer, .run = pad_run};

const struct np_kernel np_kernel_MIRROR_PAD = {
    .types = NP_MOVES, .infer = mirror_pad_infer, .run = mirror_pad_run};
