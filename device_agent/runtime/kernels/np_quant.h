/* Arithmetic shared by quantised kernels, bit-identical to Android's reference: integers and fixed
 * point as in gemmlowp (github.com/google/gemmlowp, doc/quantization.md and
 * fixedpoint/fixedpoint.h), multipliers and limits as in Android's OperationsUtils.cpp.
 *
 * A quantised value q stands for scale * (q - zero_point). np_q_read reads 8-bit data, signed or
 * unsigned, as int32. No function here has undefined behaviour within the stated ranges of its
 * arguments: where the reference overflows, these functions saturate. */
#ifndef NP_QUANT_H
#define NP_QUANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/np_kernel.h"

/* ---- Values and their limits ---------------------------------------------------------------- */

/* Gets the smallest and largest q of a quantised operand type; 0 and 0 for other types. */
void np_q_limits(int32_t type, int32_t *low, int32_t *high);

/* Returns whether an 8-bit type is signed: TENSOR_QUANT8_ASYMM_SIGNED and both symmetric ones. */
static inline int np_q_is_signed(int32_t type) { return type != NP_TYPE_TENSOR_QUANT8_ASYMM; }

/* Read and write element i of 8-bit data; q must be within the type's limits. */
static inline int32_t np_q_read(int32_t type, const void *data, size_t i) {
  const unsigned char byte = ((const unsigned char *)data)[i];
  return np_q_is_signed(type) ? (int32_t)(byte ^ 0x80) - 128 : (int32_t)byte;
}

static inline void np_q_write(int32_t type, void *data, size_t i, int32_t q) {
  (void)type; /* two's complement: the low byte is the same */
  ((unsigned char *)data)[i] = (unsigned char)((uint32_t)q & 0xffu);
}

/* Read and write element i of 16-bit data: TENSOR_QUANT16_SYMM (signed), TENSOR_QUANT16_ASYMM
 * (unsigned). */
static inline int32_t np_q16_read(int32_t type, const void *data, size_t i) {
  uint16_t bits;
  memcpy(&bits, (const unsigned char *)data + 2 * i, sizeof bits);
  return type == NP_TYPE_TENSOR_QUANT16_SYMM ? (int32_t)(bits ^ 0x8000) - 32768 : (int32_t)bits;
}

static inline void np_q16_write(void *data, size_t i, int32_t q) {
  const uint16_t bits = (uint16_t)((uint32_t)q & 0xffffu);
  memcpy((unsigned char *)data + 2 * i, &bits, sizeof bits);
}

static inline int32_t np_limit(int32_t value, int32_t low, int32_t high) {
  const int32_t raised = value < low ? low : value;
  return raised > high ? high : raised;
}

static inline int32_t np_saturate(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* Quantises as QUANTIZE does: zero_point + value / scale, with the quotient rounded half away from
 * zero, then limited; NaN becomes `high`, as in QUANTIZE. scale > 0. */
int32_t np_quantize(float value, float scale, int32_t zero_point, int32_t low, int32_t high);

static inline float np_dequantize(int32_t q, float scale, int32_t zero_point) {
  return scale * (float)(q - zero_point);
}

/* Converts a value of one operand to a value of another, in double precision as CONCATENATION and
 * others do; both must have quantised types and scales > 0. */
int32_t np_requantize(int32_t q, const struct np_operand *from, const struct np_operand *to);

/* Gets the limits of a quantised output's values under a fuse code. NP_BAD_MODEL (with a sentence)
 * for an unknown code. */
enum np_status np_q_fuse_limits(const struct np_call *call, int32_t fuse,
                                const struct np_operand *output, int32_t *low, int32_t *high);

/* Checks that an output has the scale and zero point of an input: NP_BAD_MODEL and a sentence if
 * not. Accepts types that have none. */
enum np_status np_q_same_as_input(const struct np_call *call, uint32_t output, uint32_t input);

/* Checks that an output has exactly this scale and zero point. */
enum np_status np_q_fixed_output(const struct np_call *call, uint32_t output, float scale,
                                 int32_t zero_point);

/* ---- Multiplication by real numbers --------------------------------------------------------- */

/* Returns the high 32 bits of 2 * a * b, rounded half away from zero, except for negative ties,
 * which are rounded up; only INT32_MIN times itself saturates. */
static inline int32_t np_doubling_high(int32_t a, int32_t b) {
  const int64_t product = (int64_t)a * b;
  const int64_t nudge = product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30);
  return np_saturate((product + nudge) / ((int64_t)1 << 31));
}

/* Returns value / 2^exponent, rounded half away from zero. 0 <= exponent <= 31. */
static inline int32_t np_rounding_shift(int32_t value, int exponent) {
  const int64_t mask = ((int64_t)1 << exponent) - 1;
  const int64_t remainder = value & mask;
  const int64_t threshold = (mask >> 1) + (value < 0);
  return (int32_t)((value >> exponent) + (remainder > threshold));
}

/* Returns value * 2^exponent, saturated. 0 <= exponent <= 31. */
static inline int32_t np_saturating_left(int32_t value, int exponent) {
  return np_saturate((int64_t)value * ((int64_t)1 << exponent));
}

/* The number significand / 2^31 * 2^shift, with the significand in [2^30, 2^31) or 0. */
struct np_multiplier {
  int32_t significand;
  int shift; /* -31 to 31: positive is to the left */
};

/* Returns the multiplier closest to a number >= 0; 0 for numbers below 2^-32, negative ones and
 * NaN, the largest multiplier for numbers that are too large. (QuantizeMultiplier, and its forms
 * for numbers smaller or greater than one, which differ only in what they refuse.) */
struct np_multiplier np_multiplier_of(double number);

/* Returns value times the multiplier: MultiplyByQuantizedMultiplier, and its forms for multipliers
 * smaller or greater than one. Shifts left first (saturating), then multiplies, then shifts
 * right. */
static inline int32_t np_scale(int32_t value, struct np_multiplier multiplier) {
  const int left = multiplier.shift > 0 ? multiplier.shift : 0;
  const int right = multiplier.shift > 0 ? 0 : -multiplier.shift;
  return np_rounding_shift(
      np_doubling_high(np_saturating_left(value, left), multiplier.significand), right);
}

/* Returns the largest |x| that fits a number of `integer_bits` after a shift to the left:
 * CalculateInputRadius of quantised LOGISTIC, TANH (4 integer bits) and SOFTMAX (5). 0 <=
 * integer_bits <= 30, 0 <= left_shift <= 62. */
int32_t np_input_radius(int integer_bits, int left_shift);

/* ---- Functions in fixed point --------------------------------------------------------------- */

/* A fixed-point format: numbers of `width` bits (16 or 32), sign included, with `integer_bits`
 * before the point. Results of the functions below have no integer bits: x stands for x / 2^(width
 * - 1), and the largest number stands for 1. */
struct np_fixed {
  int width;
  int integer_bits;
};

/* Returns exp(a) for a <= 0 (1 for other a). integer_bits 0 to 5. */
int32_t np_fixed_exp(struct np_fixed format, int32_t a);

/* Return 1 / (1 + x), and (1 - x) / (1 + x), for x in [0, 1] without integer bits, by Newton's
 * method. */
int32_t np_fixed_reciprocal(int width, int32_t x);
int32_t np_fixed_tanh_of_exp(int width, int32_t x);

/* Return the logistic function, and the hyperbolic tangent, of any a. integer_bits 1 to 5, for tanh
 * 0 to 4. */
int32_t np_fixed_logistic(struct np_fixed format, int32_t a);
int32_t np_fixed_tanh(struct np_fixed format, int32_t a);

#endif
