/* EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL of two tensors that broadcast, as
 * BOOL8. Quantised values are compared as real numbers. */
#include "kernels/np_broadcast.h"
#include "kernels/np_quant.h"

enum compare { EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, N_COMPARES };

/* Real values of the bytes of quantised inputs. */
struct tables {
  float a[256];
  float b[256];
};

/* Defines NAME, an np_row of elements T; a and b are one element of each input, READ_A and READ_B
 * their compared values. */
#define DEFINE_ROW(NAME, T, READ_A, READ_B, OPERATOR)                                              \
  static void NAME(const void *how, const void *first, size_t step_a, const void *second,          \
                   size_t step_b, void *result, size_t n) {                                        \
    const struct tables *tables = how;                                                             \
    unsigned char *out = result;                                                                   \
    (void)tables;                                                                                  \
    for (size_t i = 0; i < n; i++) {                                                               \
      const T a = ((const T *)first)[i * step_a];                                                  \
      const T b = ((const T *)second)[i * step_b];                                                 \
      out[i] = (unsigned char)((READ_A)OPERATOR(READ_B));                                          \
    }                                                                                              \
  }

#define DEFINE_ROWS(NAME, T, READ_A, READ_B)                                                       \
  DEFINE_ROW(NAME##_equal, T, READ_A, READ_B, ==)                                                  \
  DEFINE_ROW(NAME##_not_equal, T, READ_A, READ_B, !=)                                              \
  DEFINE_ROW(NAME##_less, T, READ_A, READ_B, <)                                                    \
  DEFINE_ROW(NAME##_less_equal, T, READ_A, READ_B, <=)                                             \
  DEFINE_ROW(NAME##_greater, T, READ_A, READ_B, >)                                                 \
  DEFINE_ROW(NAME##_greater_equal, T, READ_A, READ_B, >=)                                          \
  static np_row *const ROWS_##NAME[N_COMPARES] = {                                                 \
      [EQUAL] = NAME##_equal,     [NOT_EQUAL] = NAME##_not_equal,                                  \
      [LESS] = NAME##_less,       [LESS_EQUAL] = NAME##_less_equal,                                \
      [GREATER] = NAME##_greater, [GREATER_EQUAL] = NAME##_greater_equal,                          \
  };

DEFINE_ROWS(f32, float, a, b)
DEFINE_ROWS(i32, int32_t, a, b)
DEFINE_ROWS(bool, unsigned char, a != 0, b != 0)
DEFINE_ROWS(quant, unsigned char, tables->a[a], tables->b[b])

static void fill_table(const struct np_operand *operand, float *table) {
  for (int i = 0; i < 256; i++) {
    const unsigned char byte = (unsigned char)i;
    table[i] =
        np_dequantize(np_q_read(operand->type, &byte, 0), operand->scale, operand->zero_point);
  }
}

static enum np_status run(const struct np_call *call) {
  const uint8_t compare = call->kernel->extra;
  struct tables tables;
  switch (np_in(call, 0)->type) {
  case NP_TYPE_TENSOR_FLOAT32:
    np_broadcast_run(call, ROWS_f32[compare], NULL);
    break;
  case NP_TYPE_TENSOR_INT32:
    np_broadcast_run(call, ROWS_i32[compare], NULL);
    break;
  case NP_TYPE_TENSOR_BOOL8:
    np_broadcast_run(call, ROWS_bool[compare], NULL);
    break;
  default:
    fill_table(np_in_operand(call, 0), tables.a);
    fill_table(np_in_operand(call, 1), tables.b);
    np_broadcast_run(call, ROWS_quant[compare], &tables);
  }
  return NP_OK;
}

#define COMPARE(name)                                                                              \
  const struct np_kernel np_kernel_##name = {.types = NP_FLOATS | NP_INTS | NP_QUANT8 |            \
                                                      NP_BIT(NP_TYPE_TENSOR_BOOL8),                \
                                             .extra = name,                                        \
                                             .infer = np_broadcast_infer,                          \
                                             .run = run}

COMPARE(EQUAL);
COMPARE(NOT_EQUAL);
COMPARE(LESS);
COMPARE(LESS_EQUAL);
COMPARE(GREATER);
COMPARE(GREATER_EQUAL);
