/* TRANSPOSE, SLICE and STRIDED_SLICE: move values. */
#include <string.h>

#include "kernels/np_move.h"

void np_copy_view(const struct np_tensor *tensor, void *out, uint32_t rank, const uint32_t *dims,
                  const ptrdiff_t *steps, ptrdiff_t start) {
  const size_t size = np_type_bytes(tensor->type);
  struct np_view to = {.rank = rank};
  struct np_view from = {.rank = rank};
  np_row_major(rank, dims, to.strides);
  for (uint32_t d = 0; d < rank; d++) {
    to.dims[d] = dims[d];
    from.dims[d] = dims[d];
    from.strides[d] = steps[d];
  }
  np_gather(&to, out, &from, (const unsigned char *)tensor->data + start * (ptrdiff_t)size, size);
}

void np_copy_into(const struct np_tensor *tensor, const struct np_tensor *whole,
                  const uint32_t *starts) {
  const size_t size = np_type_bytes(tensor->type);
  struct np_view to = {.rank = tensor->rank};
  struct np_view from = {.rank = tensor->rank};
  np_row_major(whole->rank, whole->dims, to.strides);
  np_row_major(tensor->rank, tensor->dims, from.strides);
  ptrdiff_t start = 0;
  for (uint32_t d = 0; d < tensor->rank; d++) {
    to.dims[d] = tensor->dims[d];
    start += (ptrdiff_t)starts[d] * to.strides[d];
  }
  np_gather(&to, (unsigned char *)whole->room + start * (ptrdiff_t)size, &from, tensor->data, size);
}

size_t np_strided_offset(size_t index, uint32_t n, const uint32_t *dims, const ptrdiff_t *strides) {
  size_t place = 0;
  for (uint32_t d = n; d-- > 0; index /= dims[d]) {
    place += index % dims[d] * (size_t)strides[d];
  }
  return place;
}

void np_split_at(const struct np_tensor *tensor, uint32_t axis, size_t *outer, size_t *inner) {
  *outer = 1;
  *inner = 1;
  for (uint32_t d = 0; d < tensor->rank; d++) {
    *(d < axis ? outer : inner) *= tensor->dims[d];
  }
}

enum np_status np_multiply_dim(const struct np_call *call, uint32_t dim, uint64_t times,
                               uint32_t *product) {
  if (times > UINT32_MAX || dim * times > UINT32_MAX) {
    return np_fail(call, NP_BAD_MODEL, "a dimension of %u becomes too large", dim);
  }
  *product = (uint32_t)(dim * times);
  return NP_OK;
}

/* ---- TRANSPOSE ---- */

/* Output dimension d is input dimension order[d]. */
static enum np_status read_order(const struct np_call *call, uint32_t *order) {
  const struct np_tensor *input = np_in(call, 0);
  if (!input->known) {
    return NP_MISSING;
  }
  if (!np_has(call, 1)) {
    for (uint32_t d = 0; d < input->rank; d++) {
      order[d] = input->rank - 1 - d;
    }
    return NP_OK;
  }
  const int32_t *permutation;
  size_t n;
  NP_TRY(np_read_list(call, 1, &permutation, &n));
  if (n != input->rank) {
    return np_fail(call, NP_BAD_MODEL, "a permutation of %zu dimensions, wanted %u", n,
                   input->rank);
  }
  uint32_t seen = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    if (permutation[d] < 0 || (uint32_t)permutation[d] >= input->rank ||
        (seen >> permutation[d] & 1) != 0) {
      return np_fail(call, NP_BAD_MODEL,
                     "entry %u of the permutation is %d, wanted each of 0 to %u"
                     " once",
                     d, permutation[d], input->rank - 1);
    }
    seen |= 1u << permutation[d];
    order[d] = (uint32_t)permutation[d];
  }
  return NP_OK;
}

static enum np_status transpose_infer(const struct np_call *call) {
  uint32_t order[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_order(call, order));
  const struct np_tensor *input = np_in(call, 0);
  uint32_t dims[NP_MAX_RANK];
  for (uint32_t d = 0; d < input->rank; d++) {
    dims[d] = input->dims[order[d]];
  }
  return np_set_shape(call, 0, input->rank, dims);
}

static enum np_status transpose_run(const struct np_call *call) {
  uint32_t order[NP_MAX_RANK];
  NP_TRY(read_order(call, order));
  const struct np_tensor *input = np_in(call, 0);
  ptrdiff_t strides[NP_MAX_RANK];
  ptrdiff_t steps[NP_MAX_RANK];
  if (input->elements == 0) {
    return NP_OK;
  }
  np_row_major(input->rank, input->dims, strides);
  for (uint32_t d = 0; d < input->rank; d++) {
    steps[d] = strides[order[d]];
  }
  np_copy_view(input, np_out(call, 0)->room, input->rank, np_out(call, 0)->dims, steps, 0);
  return NP_OK;
}

/* ---- SLICE ---- */

static enum np_status read_slice(const struct np_call *call, uint32_t *begins, uint32_t *dims) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *begin;
  const int32_t *size;
  size_t n_begin;
  size_t n_size;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, &begin, &n_begin));
  NP_TRY(np_read_list(call, 2, &size, &n_size));
  if (n_begin != input->rank || n_size != input->rank) {
    return np_fail(call, NP_BAD_MODEL, "%zu begins and %zu sizes, wanted %u of each", n_begin,
                   n_size, input->rank);
  }
  for (uint32_t d = 0; d < input->rank; d++) {
    const int64_t dim = input->dims[d];
    const int64_t length = size[d] == -1 ? dim - begin[d] : size[d];
    if (begin[d] < 0 || length < 0 || begin[d] + length > dim) {
      return np_fail(call, NP_BAD_MODEL, "begin %d and size %d leave dimension %u of %u elements",
                     begin[d], size[d], d, input->dims[d]);
    }
    begins[d] = (uint32_t)begin[d];
    dims[d] = (uint32_t)length;
  }
  return NP_OK;
}

static enum np_status slice_infer(const struct np_call *call) {
  uint32_t begins[NP_MAX_RANK];
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_slice(call, begins, dims));
  return np_set_shape(call, 0, np_in(call, 0)->rank, dims);
}

static enum np_status slice_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  uint32_t begins[NP_MAX_RANK];
  uint32_t dims[NP_MAX_RANK];
  ptrdiff_t steps[NP_MAX_RANK];
  NP_TRY(read_slice(call, begins, dims));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  np_row_major(input->rank, input->dims, steps);
  ptrdiff_t start = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    start += (ptrdiff_t)begins[d] * steps[d];
  }
  np_copy_view(input, np_out(call, 0)->room, input->rank, dims, steps, start);
  return NP_OK;
}

/* ---- STRIDED_SLICE ---- */

struct strided {
  int64_t begins[NP_MAX_RANK];
  int64_t strides[NP_MAX_RANK];
  uint32_t dims[NP_MAX_RANK]; /* before axes are dropped */
  uint32_t dropped;           /* bit set of axes */
};

/* Clamps an index as NNAPI does: a negative one counts from the end, one outside is moved to the
 * edge that the stride's direction can reach. */
static int64_t clamp_index(int64_t index, int64_t dim, int forward) {
  index = index < 0 ? index + dim : index;
  const int64_t least = forward ? 0 : -1;
  const int64_t most = forward ? dim : dim - 1;
  return index < least ? least : index > most ? most : index;
}

/* Reads one axis of the slice. `lists` are begins, ends and strides; `masks` are ignored begins,
 * ignored ends, and dropped axes. */
static enum np_status read_strided_axis(const struct np_call *call, uint32_t d,
                                        const int32_t *const lists[3], const int32_t masks[3],
                                        struct strided *slice) {
  const int64_t dim = np_in(call, 0)->dims[d];
  const int64_t stride = lists[2][d];
  const int forward = stride > 0;
  if (stride == 0) {
    return np_fail(call, NP_BAD_MODEL, "stride %u is 0", d);
  }
  int64_t begin = clamp_index(lists[0][d], dim, forward);
  int64_t end = clamp_index(lists[1][d], dim, forward);
  if ((masks[0] >> d & 1) != 0) {
    begin = forward ? 0 : dim - 1;
  }
  if ((masks[1] >> d & 1) != 0) {
    end = forward ? dim : -1;
  }
  const int64_t span = forward ? end - begin : begin - end;
  const int64_t step = forward ? stride : -stride;
  const int64_t length = span <= 0 ? 0 : (span + step - 1) / step;
  if ((masks[2] >> d & 1) != 0) {
    if (!forward || length != 1) {
      return np_fail(call, NP_BAD_MODEL,
                     "axis %u is dropped, but has %lld elements with stride %d, wanted 1 and a"
                     " positive stride",
                     d, (long long)length, lists[2][d]);
    }
    slice->dropped |= 1u << d;
  }
  slice->begins[d] = begin;
  slice->strides[d] = stride;
  slice->dims[d] = (uint32_t)length;
  return NP_OK;
}

static enum np_status read_strided(const struct np_call *call, struct strided *slice) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *lists[3];
  int32_t masks[3];
  if (!input->known) {
    return NP_MISSING;
  }
  for (uint32_t i = 0; i < 3; i++) {
    size_t n;
    NP_TRY(np_read_list(call, 1 + i, &lists[i], &n));
    NP_TRY(np_read_i32(call, 4 + i, &masks[i]));
    if (n != input->rank) {
      return np_fail(call, NP_BAD_MODEL, "input %u has %zu elements, wanted %u", 1 + i, n,
                     input->rank);
    }
  }
  slice->dropped = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    NP_TRY(read_strided_axis(call, d, lists, masks, slice));
  }
  return NP_OK;
}

static enum np_status strided_slice_infer(const struct np_call *call) {
  struct strided slice;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_strided(call, &slice));
  uint32_t dims[NP_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t d = 0; d < np_in(call, 0)->rank; d++) {
    if ((slice.dropped >> d & 1) == 0) {
      dims[rank++] = slice.dims[d];
    }
  }
  if (rank == 0) {
    dims[rank++] = 1; /* a scalar is a tensor of one element */
  }
  return np_set_shape(call, 0, rank, dims);
}

static enum np_status strided_slice_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  struct strided slice;
  ptrdiff_t strides[NP_MAX_RANK];
  ptrdiff_t steps[NP_MAX_RANK];
  NP_TRY(read_strided(call, &slice));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  np_row_major(input->rank, input->dims, strides);
  ptrdiff_t start = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    start += (ptrdiff_t)slice.begins[d] * strides[d];
    /* The stride of an axis of one element is never used, and may be too large to multiply. */
    steps[d] = slice.dims[d] == 1 ? 0 : (ptrdiff_t)slice.strides[d] * strides[d];
  }
  np_copy_view(input, np_out(call, 0)->room, input->rank, slice.dims, steps, start);
  return NP_OK;
}

const struct np_kernel np_kernel_TRANSPOSE = {
    .types = NP_ANY_TENSOR, .infer = transpose_infer, .run = transpose_run};

const struct np_kernel np_kernel_SLICE = {
    .types = NP_MOVES, .infer = slice_infer, .run = slice_run};

const struct np_kernel np_kernel_STRIDED_SLICE = {
    .types = NP_MOVES, .infer = strided_slice_infer, .run = strided_slice_run};
