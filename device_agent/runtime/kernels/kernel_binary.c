/* Operations of two tensors, element by element, broadcast as NNAPI's documentation of ADD says:
 * dimensions are compared from the last one on, and equal or 1. */
#include <math.h>
#include <string.h>

#include "kernels/np_families.h"

/* The two inputs over the output's elements, neighbouring dimensions merged where both inputs walk
 * through them alike. Strides are in elements, 0 where an input is broadcast. */
struct walk {
  uint32_t rank;
  size_t dims[NP_MAX_RANK];
  size_t strides[2][NP_MAX_RANK];
};

static uint32_t dim_from_end(const struct np_tensor *tensor, uint32_t back) {
  return back < tensor->rank ? tensor->dims[tensor->rank - 1 - back] : 1;
}

enum np_status np_binary_infer(const struct np_call *call) {
  const struct np_tensor *a = np_in(call, 0);
  const struct np_tensor *b = np_in(call, 1);
  if (!a->known || !b->known) {
    return NP_MISSING;
  }
  const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
  uint32_t dims[NP_MAX_RANK];
  for (uint32_t back = 0; back < rank; back++) {
    const uint32_t x = dim_from_end(a, back);
    const uint32_t y = dim_from_end(b, back);
    if (x != y && x != 1 && y != 1) {
      return np_fail(call, NP_BAD_MODEL,
                     "inputs have %u and %u in dimension %u from the end, wanted equal or 1", x, y,
                     back + 1);
    }
    dims[rank - 1 - back] = x == 1 ? y : x;
  }
  return np_set_shape(call, 0, rank, dims);
}

static struct walk find_walk(const struct np_call *call) {
  const struct np_tensor *out = np_out(call, 0);
  struct walk walk = {.rank = 1, .dims = {1}, .strides = {{0}, {0}}};
  size_t steps[2] = {1, 1}; /* stride of the next dimension outwards */
  uint32_t n = 0;
  for (uint32_t back = 0; back < out->rank; back++) { /* from the innermost on */
    const size_t dim = dim_from_end(out, back);
    size_t strides[2];
    for (uint32_t i = 0; i < 2; i++) {
      const size_t own = dim_from_end(np_in(call, i), back);
      strides[i] = own == 1 ? 0 : steps[i];
      steps[i] *= own;
    }
    if (dim == 1) {
      continue;
    }
    if (n > 0 && strides[0] == walk.strides[0][n - 1] * walk.dims[n - 1] &&
        strides[1] == walk.strides[1][n - 1] * walk.dims[n - 1]) {
      walk.dims[n - 1] *= dim;
      continue;
    }
    walk.dims[n] = dim;
    walk.strides[0][n] = strides[0];
    walk.strides[1][n] = strides[1];
    n++;
  }
  walk.rank = n == 0 ? 1 : n;
  return walk;
}

/* Defines NAME(a, step_a, b, step_b, out, n): out[i] = f(a[i * step_a], b[i * step_b]), steps being
 * 0 or 1, with loops of their own so that each vectorises. */
#define DEFINE_ROW(NAME, T, EXPRESSION)                                                            \
  static void NAME(const T *a, size_t step_a, const T *b, size_t step_b, T *out, size_t n) {       \
    if (step_a == 0) {                                                                             \
      const T x = *a;                                                                              \
      for (size_t i = 0; i < n; i++) {                                                             \
        const T y = b[i * step_b];                                                                 \
        out[i] = (EXPRESSION);                                                                     \
      }                                                                                            \
    } else if (step_b == 0) {                                                                      \
      const T y = *b;                                                                              \
      for (size_t i = 0; i < n; i++) {                                                             \
        const T x = a[i];                                                                          \
        out[i] = (EXPRESSION);                                                                     \
      }                                                                                            \
    } else {                                                                                       \
      for (size_t i = 0; i < n; i++) {                                                             \
        const T x = a[i];                                                                          \
        const T y = b[i];                                                                          \
        out[i] = (EXPRESSION);                                                                     \
      }                                                                                            \
    }                                                                                              \
  }

/* Integers wrap around, as on every processor; C leaves that undefined for signed ones. */
#define WRAP(x, operator, y) ((int32_t)((uint32_t)(x)operator(uint32_t)(y)))

static int32_t floor_div(int32_t x, int32_t y) {
  if (y == -1) {
    return (int32_t)(0u - (uint32_t)x);
  }
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

DEFINE_ROW(add_f32, float, x + y)
DEFINE_ROW(sub_f32, float, x - y)
DEFINE_ROW(mul_f32, float, x *y)
DEFINE_ROW(div_f32, float, x / y)
DEFINE_ROW(maximum_f32, float, x > y ? x : y)
DEFINE_ROW(minimum_f32, float, x < y ? x : y)
DEFINE_ROW(pow_f32, float, powf(x, y))
DEFINE_ROW(prelu_f32, float, x >= 0.0f ? x : x * y)
DEFINE_ROW(add_i32, int32_t, WRAP(x, +, y))
DEFINE_ROW(sub_i32, int32_t, WRAP(x, -, y))
DEFINE_ROW(mul_i32, int32_t, WRAP(x, *, y))
DEFINE_ROW(div_i32, int32_t, floor_div(x, y))
DEFINE_ROW(maximum_i32, int32_t, x > y ? x : y)
DEFINE_ROW(minimum_i32, int32_t, x < y ? x : y)

typedef void row_f32(const float *, size_t, const float *, size_t, float *, size_t);
typedef void row_i32(const int32_t *, size_t, const int32_t *, size_t, int32_t *, size_t);

static row_f32 *const ROWS_F32[] = {
    [NP_BINARY_ADD] = add_f32, [NP_BINARY_SUB] = sub_f32,         [NP_BINARY_MUL] = mul_f32,
    [NP_BINARY_DIV] = div_f32, [NP_BINARY_MAXIMUM] = maximum_f32, [NP_BINARY_MINIMUM] = minimum_f32,
    [NP_BINARY_POW] = pow_f32, [NP_BINARY_PRELU] = prelu_f32,
};
static row_i32 *const ROWS_I32[] = {
    [NP_BINARY_ADD] = add_i32, [NP_BINARY_SUB] = sub_i32,         [NP_BINARY_MUL] = mul_i32,
    [NP_BINARY_DIV] = div_i32, [NP_BINARY_MAXIMUM] = maximum_i32, [NP_BINARY_MINIMUM] = minimum_i32,
};

static void run_walk(const struct np_call *call, const struct walk *walk) {
  const enum np_binary binary = (enum np_binary)call->kernel->extra;
  const int is_float = np_in(call, 0)->type == NP_TYPE_TENSOR_FLOAT32;
  const size_t total = np_out(call, 0)->elements;
  const void *a = np_in(call, 0)->data;
  const void *b = np_in(call, 1)->data;
  void *out = np_out(call, 0)->room;
  size_t at[NP_MAX_RANK] = {0};
  size_t from[2] = {0, 0};
  for (size_t done = 0; done < total; done += walk->dims[0]) {
    if (is_float) {
      ROWS_F32[binary]((const float *)a + from[0], walk->strides[0][0], (const float *)b + from[1],
                       walk->strides[1][0], (float *)out + done, walk->dims[0]);
    } else {
      ROWS_I32[binary]((const int32_t *)a + from[0], walk->strides[0][0],
                       (const int32_t *)b + from[1], walk->strides[1][0], (int32_t *)out + done,
                       walk->dims[0]);
    }
    for (uint32_t d = 1; d < walk->rank; d++) {
      from[0] += walk->strides[0][d];
      from[1] += walk->strides[1][d];
      if (++at[d] < walk->dims[d]) {
        break;
      }
      from[0] -= walk->strides[0][d] * walk->dims[d];
      from[1] -= walk->strides[1][d] * walk->dims[d];
      at[d] = 0;
    }
  }
}

static int has_zero(const struct np_tensor *tensor) {
  const int32_t *values = tensor->data;
  for (size_t i = 0; i < tensor->elements; i++) {
    if (values[i] == 0) {
      return 1;
    }
  }
  return 0;
}

enum np_status np_binary_run(const struct np_call *call) {
  const int is_float = np_in(call, 0)->type == NP_TYPE_TENSOR_FLOAT32;
  const size_t total = np_out(call, 0)->elements;
  int32_t fuse = ANEURALNETWORKS_FUSED_NONE;
  float low, high;
  if (np_has(call, 2)) {
    NP_TRY(np_read_i32(call, 2, &fuse));
  }
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  if (total == 0) {
    return NP_OK;
  }
  if (!is_float && fuse != ANEURALNETWORKS_FUSED_NONE) {
    return np_fail(call, NP_BAD_MODEL, "fuse code %d with TENSOR_INT32, wanted 0", fuse);
  }
  if (!is_float && call->kernel->extra == NP_BINARY_DIV && has_zero(np_in(call, 1))) {
    return np_fail(call, NP_RUN_FAILED, "a division by zero");
  }
  const struct walk walk = find_walk(call);
  run_walk(call, &walk);
  if (is_float) {
    np_clamp(np_out(call, 0)->room, total, low, high);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_ADD = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_BINARY_ADD,
                                        .infer = np_binary_infer,
                                        .run = np_binary_run};
const struct np_kernel np_kernel_SUB = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_BINARY_SUB,
                                        .infer = np_binary_infer,
                                        .run = np_binary_run};
const struct np_kernel np_kernel_MUL = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_BINARY_MUL,
                                        .infer = np_binary_infer,
                                        .run = np_binary_run};
const struct np_kernel np_kernel_DIV = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_BINARY_DIV,
                                        .infer = np_binary_infer,
                                        .run = np_binary_run};
const struct np_kernel np_kernel_MAXIMUM = {.types = NP_FLOATS | NP_INTS,
                                            .extra = NP_BINARY_MAXIMUM,
                                            .infer = np_binary_infer,
                                            .run = np_binary_run};
const struct np_kernel np_kernel_MINIMUM = {.types = NP_FLOATS | NP_INTS,
                                            .extra = NP_BINARY_MINIMUM,
                                            .infer = np_binary_infer,
                                            .run = np_binary_run};
const struct np_kernel np_kernel_POW = {
    .types = NP_FLOATS, .extra = NP_BINARY_POW, .infer = np_binary_infer, .run = np_binary_run};
const struct np_kernel np_kernel_PRELU = {
    .types = NP_FLOATS, .extra = NP_BINARY_PRELU, .infer = np_binary_infer, .run = np_binary_run};
