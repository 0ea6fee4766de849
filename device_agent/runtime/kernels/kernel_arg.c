/* ARGMAX and ARGMIN: the index of the first largest or smallest value along an axis, as INT32.
 * Scales do not matter, since they are positive. */
#include "kernels/np_along.h"
#include "kernels/np_quant.h"

enum { ARGMAX, ARGMIN };

static enum np_status infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  uint32_t axis;
  uint32_t dims[NP_MAX_RANK] = {1}; /* a vector reduces to this */
  uint32_t rank = 0;
  NP_TRY(np_read_axis(call, 1, &axis));
  for (uint32_t d = 0; d < input->rank; d++) {
    if (d != axis) {
      dims[rank++] = input->dims[d];
    }
  }
  return np_set_shape(call, 0, rank == 0 ? 1 : rank, dims);
}

/* Returns whether element b is larger (or smaller) than element a, and neither is NaN. */
static int beats(const struct np_tensor *input, size_t b, size_t a, int smaller) {
  switch (input->type) {
  case NP_TYPE_TENSOR_FLOAT32: {
    const float *values = input->data;
    return smaller ? values[b] < values[a] : values[b] > values[a];
  }
  case NP_TYPE_TENSOR_INT32: {
    const int32_t *values = input->data;
    return smaller ? values[b] < values[a] : values[b] > values[a];
  }
  default: {
    const int32_t x = np_q_read(input->type, input->data, b);
    const int32_t y = np_q_read(input->type, input->data, a);
    return smaller ? x < y : x > y;
  }
  }
}

static enum np_status run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const int smaller = call->kernel->extra == ARGMIN;
  int32_t *out = np_out(call, 0)->room;
  uint32_t axis = 0;
  NP_TRY(np_read_axis(call, 1, &axis));
  const struct np_along along = np_along_axis(input, axis);
  if (along.n == 0 && np_out(call, 0)->elements > 0) {
    return np_fail(call, NP_BAD_MODEL, "axis %u of no elements has no largest or smallest one",
                   axis);
  }
  if (along.n > INT32_MAX) {
    return np_fail(call, NP_UNSUPPORTED, "axis %u is too long for an index of INT32", axis);
  }
  for (size_t o = 0; o < along.outer; o++) {
    for (size_t i = 0; i < along.inner; i++) {
      const size_t start = o * along.n * along.inner + i;
      size_t best = 0;
      for (size_t k = 1; k < along.n; k++) {
        if (beats(input, start + k * along.inner, start + best * along.inner, smaller)) {
          best = k;
        }
      }
      out[o * along.inner + i] = (int32_t)best;
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_ARGMAX = {
    .types = NP_FLOATS | NP_INTS | NP_QUANT8, .extra = ARGMAX, .infer = infer, .run = run};
const struct np_kernel np_kernel_ARGMIN = {
    .types = NP_FLOATS | NP_INTS | NP_QUANT8, .extra = ARGMIN, .infer = infer, .run = run};
