/* CAST: converts values to another type, ignoring scales. Conversion to an integer truncates
 * towards zero; numbers out of range become the type's limit, and NaN becomes 0. Lowering casts
 * FLOAT16 and FLOAT32 with this kernel, scalars too. */
#include <string.h>

#include "kernels/np_half.h"
#include "kernels/np_kernel.h"

/* Types that are converted to each other, as bits; all others are only copied. */
#define NUMBERS                                                                                    \
  (NP_BIT(NP_TYPE_TENSOR_FLOAT16) | NP_BIT(NP_TYPE_TENSOR_FLOAT32) |                               \
   NP_BIT(NP_TYPE_TENSOR_INT32) | NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM))
#define COPIES                                                                                     \
  (NP_BIT(NP_TYPE_TENSOR_BOOL8) | NP_BIT(NP_TYPE_TENSOR_QUANT16_ASYMM) |                           \
   NP_BIT(NP_TYPE_TENSOR_QUANT16_SYMM) | NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED) |              \
   NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM))

/* Returns the tensor type whose elements have a scalar type. */
static int32_t elements_of(int32_t type) {
  switch (type) {
  case NP_TYPE_FLOAT16:
    return NP_TYPE_TENSOR_FLOAT16;
  case NP_TYPE_FLOAT32:
    return NP_TYPE_TENSOR_FLOAT32;
  case NP_TYPE_INT32:
    return NP_TYPE_TENSOR_INT32;
  default:
    return type;
  }
}

static int is_number(int32_t type) { return (NUMBERS >> type & 1u) != 0; }

static enum np_status infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t from = elements_of(input->type);
  const int32_t to = elements_of(np_out(call, 0)->type);
  if (from != to && !(is_number(from) && is_number(to))) {
    return np_fail(call, NP_BAD_MODEL, "a cast from %s to %s", np_type_name(input->type),
                   np_type_name(np_out(call, 0)->type));
  }
  return input->known ? np_set_shape(call, 0, input->rank, input->dims) : NP_MISSING;
}

static int32_t to_i32(float x) {
  if (!(x >= -0x1p31f)) {
    return x < 0.0f ? INT32_MIN : 0; /* NaN is 0 */
  }
  return x >= 0x1p31f ? INT32_MAX : (int32_t)x;
}

static uint8_t to_u8(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > UINT8_MAX ? UINT8_MAX : x); }

/* Defines from_NAME(in, to, out, n), which converts n values of T, read as `x`, to type `to`.
 * INTEGER and REAL are x as int32_t and as float. */
#define DEFINE_CAST(NAME, T, INTEGER, REAL)                                                        \
  static void from_##NAME(const T *in, int32_t to, void *out, size_t n) {                          \
    for (size_t i = 0; i < n; i++) {                                                               \
      const T x = in[i];                                                                           \
      switch (to) {                                                                                \
      case NP_TYPE_TENSOR_FLOAT16:                                                                 \
        ((uint16_t *)out)[i] = np_half_from_float(REAL);                                           \
        break;                                                                                     \
      case NP_TYPE_TENSOR_FLOAT32:                                                                 \
        ((float *)out)[i] = (REAL);                                                                \
        break;                                                                                     \
      case NP_TYPE_TENSOR_INT32:                                                                   \
        ((int32_t *)out)[i] = (INTEGER);                                                           \
        break;                                                                                     \
      default:                                                                                     \
        ((uint8_t *)out)[i] = to_u8(INTEGER);                                                      \
      }                                                                                            \
    }                                                                                              \
  }

DEFINE_CAST(half, uint16_t, to_i32(np_half_to_float(x)), np_half_to_float(x))
DEFINE_CAST(float, float, to_i32(x), x)
DEFINE_CAST(i32, int32_t, x, (float)x)
DEFINE_CAST(u8, uint8_t, x, (float)x)

static enum np_status run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const int32_t from = elements_of(input->type);
  const int32_t to = elements_of(np_out(call, 0)->type);
  void *out = np_out(call, 0)->room;
  if (input->elements == 0) {
    return NP_OK;
  }
  if (from == to) {
    memcpy(out, input->data, input->elements * np_type_bytes(input->type));
    return NP_OK;
  }
  switch (from) {
  case NP_TYPE_TENSOR_FLOAT16:
    from_half(input->data, to, out, input->elements);
    break;
  case NP_TYPE_TENSOR_FLOAT32:
    from_float(input->data, to, out, input->elements);
    break;
  case NP_TYPE_TENSOR_INT32:
    from_i32(input->data, to, out, input->elements);
    break;
  default:
    from_u8(input->data, to, out, input->elements);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_CAST = {.types = NUMBERS | COPIES | NP_BIT(NP_TYPE_FLOAT16) |
                                                  NP_BIT(NP_TYPE_FLOAT32) | NP_BIT(NP_TYPE_INT32),
                                         .infer = infer,
                                         .run = run};
