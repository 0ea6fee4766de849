/* MEAN and the reductions REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL and
 * REDUCE_ANY over a set of axes. Data of 8 bits are reduced in integers. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/np_kernel.h"
#include "kernels/np_quant.h"
#include "np_executor.h"

enum reduce { MEAN, REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL, REDUCE_ANY };

/* Reads the set of axes to reduce, and whether they are kept as dimensions of 1, which is an INT32
 * for MEAN and a BOOL for the others. */
static enum np_status read_reduce(const struct np_call *call, uint32_t *axes, int *keep) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t *values;
  size_t n;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_list(call, 1, &values, &n));
  if (call->kernel->extra == MEAN) {
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

static enum np_status infer(const struct np_call *call) {
  uint32_t axes;
  int keep;
  NP_TRY(np_q_same_as_input(call, 0, 0));
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
    dims[rank++] = 1; /* required by NNAPI's documentation */
  }
  return np_set_shape(call, 0, rank, dims);
}

/* ---- float32 ---- */

static float combine(enum reduce reduce, float a, float b) {
  switch (reduce) {
  case MEAN:
  case REDUCE_SUM:
    return a + b;
  case REDUCE_PROD:
    return a * b;
  case REDUCE_MAX:
    return b > a ? b : a;
  case REDUCE_MIN:
    return b < a ? b : a;
  default:
    return a;
  }
}

static float neutral(enum reduce reduce) {
  switch (reduce) {
  case REDUCE_PROD:
    return 1.0f;
  case REDUCE_MAX:
    return -INFINITY;
  case REDUCE_MIN:
    return INFINITY;
  default:
    return 0.0f;
  }
}

/* Adds one row to out: element by element if its dimension is kept, else to out[0]. Sums of a row
 * are computed in eight parts, which is faster and more precise than one. */
static void take_f32(enum reduce reduce, const float *row, float *out, size_t n, int stays) {
  const int is_sum = reduce == MEAN || reduce == REDUCE_SUM;
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

/* ---- 8 bits: quantised values and booleans ---- */

static int64_t combine_bytes(enum reduce reduce, int64_t a, int32_t b) {
  switch (reduce) {
  case REDUCE_MAX:
    return b > a ? b : a;
  case REDUCE_MIN:
    return b < a ? b : a;
  case REDUCE_ALL:
    return a != 0 && b != 0;
  case REDUCE_ANY:
    return a != 0 || b != 0;
  default:
    return a + b;
  }
}

static int64_t neutral_bytes(enum reduce reduce, int32_t type) {
  int32_t low, high;
  np_q_limits(type, &low, &high);
  switch (reduce) {
  case REDUCE_MAX:
    return low;
  case REDUCE_MIN:
    return high;
  case REDUCE_ALL:
    return 1;
  default:
    return 0;
  }
}

/* Adds one row to sums, like take_f32. */
static void take_bytes(enum reduce reduce, int32_t type, const unsigned char *row, int64_t *sums,
                       size_t n, int stays) {
  for (size_t i = 0; i < n; i++) {
    int64_t *sum = &sums[stays ? i : 0];
    *sum = combine_bytes(reduce, *sum, np_q_read(type, row, i));
  }
}

/* ---- Both ---- */

static int is_float(const struct np_call *call) {
  return np_in(call, 0)->type == NP_TYPE_TENSOR_FLOAT32;
}

/* Floats are collected in the output itself, 8-bit data in integers in the scratch memory. */
static size_t scratch(const struct np_call *call) {
  return is_float(call) ? 0 : np_mul_saturated(np_out(call, 0)->elements, sizeof(int64_t));
}

/* Returns the result of reducing no elements; if the executor's options ask for finite results, the
 * largest of none is the lowest finite number, as in Android's own code. */
static float first(const struct np_call *call, enum reduce reduce) {
  const float value = neutral(reduce);
  return call->options != NULL && call->options->finite
             ? copysignf(fminf(fabsf(value), FLT_MAX), value)
             : value;
}

static void start(const struct np_call *call) {
  const enum reduce reduce = (enum reduce)call->kernel->extra;
  const struct np_tensor *output = np_out(call, 0);
  for (size_t i = 0; i < output->elements; i++) {
    if (is_float(call)) {
      ((float *)output->room)[i] = first(call, reduce);
    } else {
      ((int64_t *)call->scratch)[i] = neutral_bytes(reduce, output->type);
    }
  }
}

/* Adds the rows of the input to the results. */
static void collect(const struct np_call *call, uint32_t axes) {
  const enum reduce reduce = (enum reduce)call->kernel->extra;
  const struct np_tensor *input = np_in(call, 0);
  size_t strides[NP_MAX_RANK]; /* the output's, over the input's dimensions; 0 if reduced */
  size_t step = 1;
  for (uint32_t d = input->rank; d-- > 0;) {
    const int stays = (axes >> d & 1) == 0;
    strides[d] = stays ? step : 0;
    step *= stays ? input->dims[d] : 1;
  }
  const uint32_t last = input->rank - 1;
  const size_t n = input->dims[last];
  size_t at[NP_MAX_RANK] = {0};
  size_t to = 0;
  for (size_t done = 0; done < input->elements; done += n) {
    if (is_float(call)) {
      take_f32(reduce, (const float *)input->data + done, (float *)np_out(call, 0)->room + to, n,
               strides[last] != 0);
    } else {
      take_bytes(reduce, input->type, (const unsigned char *)input->data + done,
                 (int64_t *)call->scratch + to, n, strides[last] != 0);
    }
    for (uint32_t d = last; d-- > 0;) {
      to += strides[d];
      if (++at[d] < input->dims[d]) {
        break;
      }
      to -= strides[d] * input->dims[d];
      at[d] = 0;
    }
  }
}

/* Computes the outputs from the results of `count` elements each. A mean of integers is truncated
 * towards zero, as in Android's reference; the mean of no elements represents 0. */
static void finish(const struct np_call *call, size_t count) {
  const struct np_tensor *output = np_out(call, 0);
  const int is_mean = call->kernel->extra == MEAN;
  for (size_t i = 0; is_float(call) && is_mean && count > 0 && i < output->elements; i++) {
    ((float *)output->room)[i] /= (float)count;
  }
  for (size_t i = 0; !is_float(call) && i < output->elements; i++) {
    int64_t result = ((const int64_t *)call->scratch)[i];
    if (is_mean) {
      result = count > 0 ? result / (int64_t)count : np_out_operand(call, 0)->zero_point;
    }
    np_q_write(output->type, output->room, i, (int32_t)result);
  }
}

static enum np_status run(const struct np_call *call) {
  uint32_t axes;
  int keep;
  NP_TRY(read_reduce(call, &axes, &keep));
  const struct np_tensor *input = np_in(call, 0);
  size_t count = 1;
  for (uint32_t d = 0; d < input->rank; d++) {
    count *= (axes >> d & 1) != 0 ? input->dims[d] : 1;
  }
  start(call);
  collect(call, axes);
  finish(call, count);
  return NP_OK;
}

#define REDUCE(name, set)                                                                          \
  const struct np_kernel np_kernel_##name = {                                                      \
      .types = (set), .extra = name, .infer = infer, .scratch = scratch, .run = run}

REDUCE(MEAN, NP_FLOATS | NP_QUANT8);
REDUCE(REDUCE_SUM, NP_FLOATS);
REDUCE(REDUCE_PROD, NP_FLOATS);
REDUCE(REDUCE_MAX, NP_FLOATS | NP_QUANT8);
REDUCE(REDUCE_MIN, NP_FLOATS | NP_QUANT8);
REDUCE(REDUCE_ALL, NP_BIT(NP_TYPE_TENSOR_BOOL8));
REDUCE(REDUCE_ANY, NP_BIT(NP_TYPE_TENSOR_BOOL8));
