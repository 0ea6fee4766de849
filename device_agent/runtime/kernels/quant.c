#include <math.h>

#include "kernels/np_quant.h"

void np_q_limits(int32_t type, int32_t *low, int32_t *high) {
  *low = 0;
  *high = 0;
  switch (type) {
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    *high = UINT8_MAX;
    break;
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
  case NP_TYPE_TENSOR_QUANT8_SYMM:
  case NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL:
    *low = INT8_MIN;
    *high = INT8_MAX;
    break;
  case NP_TYPE_TENSOR_QUANT16_ASYMM:
    *high = UINT16_MAX;
    break;
  case NP_TYPE_TENSOR_QUANT16_SYMM:
    *low = INT16_MIN;
    *high = INT16_MAX;
    break;
  default:
    break;
  }
}

int32_t np_quantize(float value, float scale, int32_t zero_point, int32_t low, int32_t high) {
  const float q = (float)zero_point + roundf(value / scale);
  if (!(q < (float)high)) {
    return high;
  }
  return q < (float)low ? low : (int32_t)q;
}

int32_t np_requantize(int32_t q, const struct np_operand *from, const struct np_operand *to) {
  int32_t low, high;
  np_q_limits(to->type, &low, &high);
  const float value = (float)(q - from->zero_point) * from->scale;
  const double result = (double)value / (double)to->scale + to->zero_point;
  if (!(result > low)) {
    return low;
  }
  return result > high ? high : np_limit((int32_t)round(result), low, high);
}

/* Converts a limit of an activation to a q between low and high. */
static int32_t limit_of(float value, const struct np_operand *output, int32_t low, int32_t high) {
  const double q = (double)roundf(value / output->scale) + output->zero_point;
  return q > high ? high : q > low ? (int32_t)q : low;
}

enum np_status np_q_fuse_limits(const struct np_call *call, int32_t fuse,
                                const struct np_operand *output, int32_t *low, int32_t *high) {
  float floor_, ceiling;
  NP_TRY(np_fuse_limits(call, fuse, &floor_, &ceiling));
  int32_t least, most;
  np_q_limits(output->type, &least, &most);
  *low = floor_ == -INFINITY ? least : limit_of(floor_, output, least, most);
  *high = ceiling == INFINITY ? most : limit_of(ceiling, output, least, most);
  return NP_OK;
}

enum np_status np_q_fixed_output(const struct np_call *call, uint32_t output, float scale,
                                 int32_t zero_point) {
  const struct np_operand *operand = np_out_operand(call, output);
  if (operand->scale != scale || operand->zero_point != zero_point) {
    return np_fail(call, NP_BAD_MODEL, "output %u has scale %g and zero point %d, wanted %g and %d",
                   output, (double)operand->scale, operand->zero_point, (double)scale, zero_point);
  }
  return NP_OK;
}

enum np_status np_q_same_as_input(const struct np_call *call, uint32_t output, uint32_t input) {
  const struct np_operand *operand = np_in_operand(call, input);
  int32_t low, high;
  np_q_limits(operand->type, &low, &high);
  return low == high ? NP_OK : np_q_fixed_output(call, output, operand->scale, operand->zero_point);
}

struct np_multiplier np_multiplier_of(double number) {
  if (!(number > 0.0)) {
    return (struct np_multiplier){0, 0};
  }
  if (number >= 0x1p31) {
    return (struct np_multiplier){INT32_MAX, 31};
  }
  int shift;
  int64_t significand = (int64_t)round(frexp(number, &shift) * 0x1p31);
  if (significand == (int64_t)1 << 31) {
    significand /= 2;
    shift++;
  }
  if (shift < -31) {
    return (struct np_multiplier){0, 0};
  }
  return shift > 31 ? (struct np_multiplier){INT32_MAX, 31}
                    : (struct np_multiplier){(int32_t)significand, shift};
}

int32_t np_input_radius(int integer_bits, int left_shift) {
  const double largest = (double)((1 << integer_bits) - 1) * ldexp(1.0, 31 - integer_bits);
  return (int32_t)floor(ldexp(largest, -left_shift));
}

/* The functions below follow gemmlowp's fixedpoint.h step by step, to round exactly like it; the
 * names in brackets are gemmlowp's. All values are raw integers. */

static int32_t largest(int width) { return width == 16 ? INT16_MAX : INT32_MAX; }

/* Returns a * b, which has the sum of their integer bits (operator*). */
static int32_t multiply(int width, int32_t a, int32_t b) {
  if (width != 16) {
    return np_doubling_high(a, b);
  }
  const int32_t product = a * b;
  const int32_t nudge = product >= 0 ? 1 << 14 : 1 - (1 << 14);
  return np_limit((product + nudge) / (1 << 15), INT16_MIN, INT16_MAX);
}

/* Returns a * 2^exponent, saturated (SaturatingRoundingMultiplyByPOT, positive exponents). */
static int32_t shift_left(int width, int32_t a, int exponent) {
  const int32_t shifted = np_saturating_left(a, exponent);
  return width == 16 ? np_limit(shifted, INT16_MIN, INT16_MAX) : shifted;
}

/* Returns a + b; 16-bit numbers saturate (AddSaturatingIf16Bit), 32-bit ones are small enough
 * here. */
static int32_t add(int width, int32_t a, int32_t b) {
  const int32_t sum = np_saturate((int64_t)a + b);
  return width == 16 ? np_limit(sum, INT16_MIN, INT16_MAX) : sum;
}

/* Converts a 32-bit constant to a width. */
static int32_t constant(int width, int32_t raw) {
  return width == 16 ? np_rounding_shift(raw, 16) : raw;
}

/* Returns exp(a) for -1/4 <= a < 0, by the Taylor series around -1/8
 * (exp_on_interval_between_negative_one_quarter_and_0_excl). */
static int32_t exp_quarter(int w, int32_t a) {
  const int32_t at = constant(w, 1895147668);       /* exp(-1/8) */
  const int32_t one_third = constant(w, 715827883); /* 1/3 */
  const int32_t x = a + (1 << (w - 4));
  const int32_t x2 = multiply(w, x, x);
  const int32_t x3 = multiply(w, x2, x);
  const int32_t x4_over_4 = np_rounding_shift(multiply(w, x2, x2), 2);
  const int32_t tail = np_rounding_shift(multiply(w, x4_over_4 + x3, one_third) + x2, 1);
  return add(w, at, multiply(w, at, x + tail));
}

int32_t np_fixed_exp(struct np_fixed format, int32_t a) {
  /* exp(-2^e) for e from -2 to 4, in 32 bits */
  static const int32_t POWERS[7] = {1672461947, 1302514674, 790015084, 290630308,
                                    39332535,   720401,     242};
  const int w = format.width;
  if (a >= 0) {
    return largest(w);
  }
  const int fraction_bits = w - 1 - format.integer_bits;
  const int32_t quarter = 1 << (fraction_bits - 2);
  const int32_t low_part = (a & (quarter - 1)) - quarter; /* in [-1/4, 0) */
  const int32_t rest = low_part - a;                      /* a multiple of 1/4, not negative */
  int32_t result = exp_quarter(w, shift_left(w, low_part, format.integer_bits));
  for (int e = -2; e < format.integer_bits && e <= 4; e++) {
    if (rest & (1 << (fraction_bits + e))) {
      result = multiply(w, result, constant(w, POWERS[e + 2]));
    }
  }
  return result;
}

/* Returns 1 / d for d = (1 + x) / 2, with two integer bits, by three steps of Newton's method from
 * 48/17 - 32/17 d (one_over_one_plus_x_for_x_in_0_1). */
static int32_t inverse(int w, int32_t x) {
  const int32_t half = (int32_t)(((int64_t)x + largest(w) + 1) / 2); /* d, no integer bits */
  const int32_t one = 1 << (w - 3);
  int32_t guess = add(w, constant(w, 1515870810), multiply(w, half, constant(w, -1010580540)));
  for (int step = 0; step < 3; step++) {
    const int32_t error = one - multiply(w, half, guess);
    guess = add(w, guess, shift_left(w, multiply(w, guess, error), 2));
  }
  return guess;
}

/* 1 / (1 + x) is half of 1 / d, so the point is moved by one place less. */
int32_t np_fixed_reciprocal(int width, int32_t x) {
  return shift_left(width, inverse(width, x), 1);
}

/* (1 - x) / (1 + x) is 1 / d - 1. */
int32_t np_fixed_tanh_of_exp(int width, int32_t x) {
  return shift_left(width, inverse(width, x) - (1 << (width - 3)), 2);
}

int32_t np_fixed_logistic(struct np_fixed format, int32_t a) {
  if (a == 0) {
    return 1 << (format.width - 2);
  }
  const int32_t magnitude = a > 0 ? -a : a; /* negative, since -INT32_MIN overflows */
  const int32_t above = np_fixed_reciprocal(format.width, np_fixed_exp(format, magnitude));
  return a > 0 ? above : largest(format.width) - above;
}

int32_t np_fixed_tanh(struct np_fixed format, int32_t a) {
  if (a == 0) {
    return 0;
  }
  const struct np_fixed doubled = {format.width, format.integer_bits + 1}; /* 2a, the same raw */
  const int32_t exp_of = np_fixed_exp(doubled, a > 0 ? -a : a);
  const int32_t t = np_fixed_tanh_of_exp(format.width, exp_of);
  return a > 0 ? t : -t;
}
