/* Element-wise arithmetic on two tensors: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW and PRELU. */
#include <math.h>

#include "kernels/np_broadcast.h"
#include "kernels/np_quant.h"

/* Defines NAME, an np_row of elements T, with a separate loop for each way of broadcasting, so that
 * each vectorises. */
#define DEFINE_ROW(NAME, T, EXPRESSION)                                                            \
  static void NAME(const void *how, const void *first, size_t step_a, const void *second,          \
                   size_t step_b, void *result, size_t n) {                                        \
    const T *a = first;                                                                            \
    const T *b = second;                                                                           \
    T *out = result;                                                                               \
    (void)how;                                                                                     \
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

/* Integers wrap around, as on every processor, although C leaves this undefined for signed ones. */
#define WRAP(x, operator, y) ((int32_t)((uint32_t)(x)operator(uint32_t)(y)))

/* Returns the quotient rounded down; 0 for division by 0, which NNAPI leaves open, as AOSP's CPU
 * path does. */
static int32_t floor_div(int32_t x, int32_t y) {
  if (y == 0) {
    return 0;
  }
  if (y == -1) {
    return (int32_t)(0u - (uint32_t)x);
  }
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

/* MAXIMUM and MINIMUM return the first argument if one is NaN, like std::max. */
DEFINE_ROW(add_f32, float, x + y)
DEFINE_ROW(sub_f32, float, x - y)
DEFINE_ROW(mul_f32, float, x *y)
DEFINE_ROW(div_f32, float, x / y)
DEFINE_ROW(maximum_f32, float, x < y ? y : x)
DEFINE_ROW(minimum_f32, float, y < x ? y : x)
DEFINE_ROW(pow_f32, float, powf(x, y))
DEFINE_ROW(prelu_f32, float, x >= 0.0f ? x : x * y)
DEFINE_ROW(add_i32, int32_t, WRAP(x, +, y))
DEFINE_ROW(sub_i32, int32_t, WRAP(x, -, y))
DEFINE_ROW(mul_i32, int32_t, WRAP(x, *, y))
DEFINE_ROW(div_i32, int32_t, floor_div(x, y))
DEFINE_ROW(maximum_i32, int32_t, x > y ? x : y)
DEFINE_ROW(minimum_i32, int32_t, x < y ? x : y)

static np_row *const ROWS_F32[] = {
    [NP_BINARY_ADD] = add_f32, [NP_BINARY_SUB] = sub_f32,         [NP_BINARY_MUL] = mul_f32,
    [NP_BINARY_DIV] = div_f32, [NP_BINARY_MAXIMUM] = maximum_f32, [NP_BINARY_MINIMUM] = minimum_f32,
    [NP_BINARY_POW] = pow_f32, [NP_BINARY_PRELU] = prelu_f32,
};
static np_row *const ROWS_I32[] = {
    [NP_BINARY_ADD] = add_i32, [NP_BINARY_SUB] = sub_i32,         [NP_BINARY_MUL] = mul_i32,
    [NP_BINARY_DIV] = div_i32, [NP_BINARY_MAXIMUM] = maximum_i32, [NP_BINARY_MINIMUM] = minimum_i32,
};

/* Reads the fuse code of ADD, SUB, MUL and DIV; 0 for the others. NP_MISSING if it is not known. */
static enum np_status read_fuse(const struct np_call *call, int32_t *fuse) {
  *fuse = ANEURALNETWORKS_FUSED_NONE;
  return np_has(call, 2) ? np_read_i32(call, 2, fuse) : NP_OK;
}

static enum np_status check_fuse(const struct np_call *call, int32_t fuse) {
  float low, high;
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  if (np_in(call, 0)->type == NP_TYPE_TENSOR_INT32 && fuse != ANEURALNETWORKS_FUSED_NONE) {
    return np_fail(call, NP_BAD_MODEL, "fuse code %d with TENSOR_INT32, wanted 0", fuse);
  }
  return NP_OK;
}

static int is_quant(const struct np_call *call) {
  return (NP_QUANT8 >> np_in(call, 0)->type & 1u) != 0;
}

static enum np_status infer(const struct np_call *call) {
  int32_t fuse;
  if (read_fuse(call, &fuse) == NP_OK) {
    NP_TRY(check_fuse(call, fuse));
  }
  NP_TRY(np_broadcast_infer(call));
  return is_quant(call) ? np_binary_quant_check(call) : NP_OK;
}

static enum np_status run(const struct np_call *call) {
  const uint8_t binary = call->kernel->extra;
  const struct np_tensor *output = np_out(call, 0);
  int32_t fuse;
  NP_TRY(read_fuse(call, &fuse));
  NP_TRY(check_fuse(call, fuse));
  if (output->elements == 0) {
    return NP_OK;
  }
  if (is_quant(call)) {
    int32_t low, high;
    NP_TRY(np_q_fuse_limits(call, fuse, np_out_operand(call, 0), &low, &high));
    np_binary_quant_run(call, low, high);
    return NP_OK;
  }
  if (np_in(call, 0)->type == NP_TYPE_TENSOR_INT32) {
    np_broadcast_run(call, ROWS_I32[binary], NULL);
    return NP_OK;
  }
  float low, high;
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  np_broadcast_run(call, ROWS_F32[binary], NULL);
  np_clamp(output->room, output->elements, low, high);
  return NP_OK;
}

#define BINARY(name, set)                                                                          \
  const struct np_kernel np_kernel_##name = {                                                      \
      .types = (set), .extra = NP_BINARY_##name, .infer = infer, .run = run}

BINARY(ADD, NP_FLOATS | NP_INTS | NP_QUANT8);
BINARY(SUB, NP_FLOATS | NP_INTS | NP_QUANT8);
BINARY(MUL, NP_FLOATS | NP_INTS | NP_QUANT8);
BINARY(DIV, NP_FLOATS | NP_INTS);
BINARY(MAXIMUM, NP_FLOATS | NP_INTS | NP_QUANT8);
BINARY(MINIMUM, NP_FLOATS | NP_INTS | NP_QUANT8);
BINARY(POW, NP_FLOATS);
BINARY(PRELU, NP_FLOATS | NP_QUANT8);
