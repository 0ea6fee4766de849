/* MEAN and the reductions REDUCE_SUM, REDUCE_PROD, REDUCE_MAX and REDUCE_MIN over a set of axes. */
#include <math.h>
#include <string.h>

#include "kernels/np_families.h"

/* Bit set of the axes to reduce, and whether they stay as dimensions of 1. MEAN says so with an
 * INT32, the others with a BOOL. */
static enum np_status read_reduce(const struct np_call *call, uint32_t *axes, int *keep) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *values;
  size_t n;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, &values, &n));
  if (call->kernel->extra == NP_REDUCE_MEAN) {
    int32_t number;
    NP_TRY(np_read_i32(call, 2, &number));
    *keep = number > 0;
  } else {
    NP_TRY(np_read_bool(call, 2, keep));
  }
  if (n == 0) {
    return np_fail(call, NP_BAD_MODEL, "no axes (input 1), wanted one at least");
  }
  *axes = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t axis;
    NP_TRY(np_axis(call, values[i], input->rank, &axis));
    *axes |= 1u << axis;
  }
  return NP_OK;
}

enum np_status np_reduce_infer(const struct np_call *call) {
  uint32_t axes;
  int keep;
  NP_TRY(read_reduce(call, &axes, &keep));
  const struct np_tensor *input = np_in(call, 0);
  uint32_t dims[NP_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t d = 0; d < input->rank; d++) {
    const int reduced = (axes >> d & 1) != 0;
    if (!reduced || keep) {
      dims[rank++] = reduced ? 1 : input->dims[d];
    }
  }
  if (rank == 0) {
    dims[rank++] = 1; /* as NNAPI's documentation says */
  }
  return np_set_shape(call, 0, rank, dims);
}

static float combine(enum np_reduce reduce, float a, float b) {
  switch (reduce) {
  case NP_REDUCE_MEAN:
  case NP_REDUCE_SUM:
    return a + b;
  case NP_REDUCE_PROD:
    return a * b;
  case NP_REDUCE_MAX:
    return b > a ? b : a;
  case NP_REDUCE_MIN:
    return b < a ? b : a;
  }
  return a;
}

static float neutral(enum np_reduce reduce) {
  switch (reduce) {
  case NP_REDUCE_PROD:
    return 1.0f;
  case NP_REDUCE_MAX:
    return -INFINITY;
  case NP_REDUCE_MIN:
    return INFINITY;
  case NP_REDUCE_MEAN:
  case NP_REDUCE_SUM:
    return 0.0f;
  }
  return 0.0f;
}

/* Takes one row into out: element by element where its dimension stays, else into out[0]. Sums of a
 * row are made in eight parts, which is faster and more precise than one. */
static void take_row(enum np_reduce reduce, const float *row, float *out, size_t n, int stays) {
  const int is_sum = reduce == NP_REDUCE_MEAN || reduce == NP_REDUCE_SUM;
  if (stays && is_sum) {
    for (size_t i = 0; i < n; i++) {
      out[i] += row[i];
    }
  } else if (stays) {
    for (size_t i = 0; i < n; i++) {
      out[i] = combine(reduce, out[i], row[i]);
    }
  } else {
    float parts[8];
    for (size_t p = 0; p < 8; p++) {
      parts[p] = neutral(reduce);
    }
    size_t i = 0;
    for (; is_sum && i + 8 <= n; i += 8) {
      for (size_t p = 0; p < 8; p++) {
        parts[p] += row[i + p];
      }
    }
    for (; i < n; i++) {
      parts[i % 8] = combine(reduce, parts[i % 8], row[i]);
    }
    for (size_t p = 0; p < 8; p++) {
      out[0] = combine(reduce, out[0], parts[p]);
    }
  }
}

enum np_status np_reduce_run(const struct np_call *call) {
  uint32_t axes;
  int keep;
  NP_TRY(read_reduce(call, &axes, &keep));
  const enum np_reduce reduce = (enum np_reduce)call->kernel->extra;
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const float *in = input->data;
  float *out = output->room;
  for (size_t i = 0; i < output->elements; i++) {
    out[i] = neutral(reduce);
  }
  if (input->elements == 0) {
    return NP_OK;
  }
  size_t strides[NP_MAX_RANK]; /* of the output over the input's dimensions, 0 where reduced */
  size_t step = 1;
  size_t reduced = 1;
  for (uint32_t d = input->rank; d-- > 0;) {
    const int stays = (axes >> d & 1) == 0;
    strides[d] = stays ? step : 0;
    step *= stays ? input->dims[d] : 1;
    reduced *= stays ? 1 : input->dims[d];
  }
  const uint32_t last = input->rank - 1;
  const size_t n = input->dims[last];
  size_t at[NP_MAX_RANK] = {0};
  size_t to = 0;
  for (size_t done = 0; done < input->elements; done += n) {
    take_row(reduce, in + done, out + to, n, strides[last] != 0);
    for (uint32_t d = last; d-- > 0;) {
      to += strides[d];
      if (++at[d] < input->dims[d]) {
        break;
      }
      to -= strides[d] * input->dims[d];
      at[d] = 0;
    }
  }
  for (size_t i = 0; reduce == NP_REDUCE_MEAN && i < output->elements; i++) {
    out[i] /= (float)reduced;
  }
  return NP_OK;
}

const struct np_kernel np_kernel_MEAN = {
    .types = NP_FLOATS, .extra = NP_REDUCE_MEAN, .infer = np_reduce_infer, .run = np_reduce_run};
const struct np_kernel np_kernel_REDUCE_SUM = {
    .types = NP_FLOATS, .extra = NP_REDUCE_SUM, .infer = np_reduce_infer, .run = np_reduce_run};
const struct np_kernel np_kernel_REDUCE_PROD = {
    .types = NP_FLOATS, .extra = NP_REDUCE_PROD, .infer = np_reduce_infer, .run = np_reduce_run};
const struct np_kernel np_kernel_REDUCE_MAX = {
    .types = NP_FLOATS, .extra = NP_REDUCE_MAX, .infer = np_reduce_infer, .run = np_reduce_run};
const struct np_kernel np_kernel_REDUCE_MIN = {
    .types = NP_FLOATS, .extra = NP_REDUCE_MIN, .infer = np_reduce_infer, .run = np_reduce_run};
