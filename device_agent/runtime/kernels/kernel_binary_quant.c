/* Quantised arithmetic on two tensors, in integers like Android's reference.
 *
 * Each input's 256 values are first converted to the numbers that the operation combines, so that
 * the loops only look them up: for ADD and SUB multiples of twice the larger scale / 2^20, for MUL
 * and PRELU the values less their zero points, for MAXIMUM and MINIMUM the values requantised to
 * the output. */
#include "kernels/np_broadcast.h"
#include "kernels/np_quant.h"

enum { SUM_SHIFT = 20 }; /* bits that ADD and SUB add below the inputs' */

struct quant {
  int32_t a[256]; /* by the input's byte */
  int32_t b[256];
  struct np_multiplier result;   /* applied to the sum or product */
  struct np_multiplier positive; /* applied to PRELU's non-negative inputs */
  int32_t zero_point;            /* the output's */
  int32_t low, high;
};

/* Fills a table with the value of each byte, less the zero point. */
static void fill_centred(const struct np_operand *operand, int32_t *table) {
  for (int i = 0; i < 256; i++) {
    const unsigned char byte = (unsigned char)i;
    table[i] = np_q_read(operand->type, &byte, 0) - operand->zero_point;
  }
}

static void fill_requantised(const struct np_operand *from, const struct np_operand *to,
                             int32_t *table) {
  for (int i = 0; i < 256; i++) {
    const unsigned char byte = (unsigned char)i;
    table[i] = np_requantize(np_q_read(from->type, &byte, 0), from, to);
  }
}

/* Scales one input of ADD or SUB; `sign` is its multiplier's, since ties are not rounded
 * symmetrically. */
static void scale_addend(int32_t *table, double scale, double twice_largest, int sign) {
  struct np_multiplier multiplier = np_multiplier_of(scale / twice_largest);
  multiplier.significand *= sign;
  for (int i = 0; i < 256; i++) {
    table[i] = np_scale(table[i] * (1 << SUM_SHIFT), multiplier);
  }
}

static void prepare(const struct np_call *call, struct quant *quant) {
  const struct np_operand *a = np_in_operand(call, 0);
  const struct np_operand *b = np_in_operand(call, 1);
  const struct np_operand *out = np_out_operand(call, 0);
  const enum np_binary binary = (enum np_binary)call->kernel->extra;
  const float product_scale = a->scale * b->scale;
  quant->zero_point = out->zero_point;
  if (binary == NP_BINARY_MAXIMUM || binary == NP_BINARY_MINIMUM) {
    fill_requantised(a, out, quant->a);
    fill_requantised(b, out, quant->b);
    return;
  }
  fill_centred(a, quant->a);
  fill_centred(b, quant->b);
  if (binary == NP_BINARY_ADD || binary == NP_BINARY_SUB) {
    const double twice_largest = 2.0 * (double)(a->scale > b->scale ? a->scale : b->scale);
    scale_addend(quant->a, (double)a->scale, twice_largest, 1);
    scale_addend(quant->b, (double)b->scale, twice_largest, binary == NP_BINARY_SUB ? -1 : 1);
    quant->result = np_multiplier_of(twice_largest / ((1 << SUM_SHIFT) * (double)out->scale));
  } else {
    quant->result = np_multiplier_of((double)product_scale / (double)out->scale);
    quant->positive = np_multiplier_of((double)(a->scale / out->scale));
  }
}

static unsigned char finish(const struct quant *quant, int32_t scaled) {
  const int32_t q = np_saturate((int64_t)scaled + quant->zero_point);
  return (unsigned char)((uint32_t)np_limit(q, quant->low, quant->high) & 0xffu);
}

/* Defines NAME, an np_row of bytes, from looked up x and y. */
#define DEFINE_ROW(NAME, EXPRESSION)                                                               \
  static void NAME(const void *how, const void *first, size_t step_a, const void *second,          \
                   size_t step_b, void *result, size_t n) {                                        \
    const struct quant *quant = how;                                                               \
    const unsigned char *a = first;                                                                \
    const unsigned char *b = second;                                                               \
    unsigned char *out = result;                                                                   \
    for (size_t i = 0; i < n; i++) {                                                               \
      const int32_t x = quant->a[a[i * step_a]];                                                   \
      const int32_t y = quant->b[b[i * step_b]];                                                   \
      out[i] = (EXPRESSION);                                                                       \
    }                                                                                              \
  }

DEFINE_ROW(sum, finish(quant, np_scale(x + y, quant->result)))
DEFINE_ROW(product, finish(quant, np_scale(x *y, quant->result)))
DEFINE_ROW(maximum, (unsigned char)((uint32_t)(x > y ? x : y) & 0xffu))
DEFINE_ROW(minimum, (unsigned char)((uint32_t)(x < y ? x : y) & 0xffu))
DEFINE_ROW(prelu,
           finish(quant, x >= 0 ? np_scale(x, quant->positive) : np_scale(x * y, quant->result)))

enum np_status np_binary_quant_check(const struct np_call *call) {
  const float product = np_in_operand(call, 0)->scale * np_in_operand(call, 1)->scale;
  const float scale = np_out_operand(call, 0)->scale;
  if (call->kernel->extra == NP_BINARY_MUL && np_out(call, 0)->elements > 0 && !(scale > product)) {
    return np_fail(call, NP_BAD_MODEL,
                   "output 0 has scale %g, wanted more than %g, the product of the inputs'",
                   (double)scale, (double)product);
  }
  return NP_OK;
}

void np_binary_quant_run(const struct np_call *call, int32_t low, int32_t high) {
  static np_row *const ROWS[] = {
      [NP_BINARY_ADD] = sum,         [NP_BINARY_SUB] = sum,         [NP_BINARY_MUL] = product,
      [NP_BINARY_MAXIMUM] = maximum, [NP_BINARY_MINIMUM] = minimum, [NP_BINARY_PRELU] = prelu,
  };
  struct quant quant = {.low = low, .high = high};
  prepare(call, &quant);
  np_broadcast_run(call, ROWS[call->kernel->extra], &quant);
}
