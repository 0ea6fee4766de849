/* float16 from and to float32: sign (1 bit), exponent (5, bias 15), mantissa (10), against 1, 8
 * (bias 127), 23. */
#include "kernels/np_half.h"

#include <string.h>

enum { MANTISSA_STEP = 13 }; /* extra bits of float32's mantissa */

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float np_half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    return float_of(sign | 0x7F800000u | mantissa << MANTISSA_STEP);
  }
  if (exponent != 0) {
    return float_of(sign | (exponent + 127 - 15) << 23 | mantissa << MANTISSA_STEP);
  }
  const float size = (float)mantissa * 0x1p-24f; /* subnormal, or zero: exact in float32 */
  return sign != 0 ? -size : size;
}

/* Returns `bits` without the `drop` lowest ones, rounded to nearest, ties to even. 1 <= drop <=
 * 24. */
static uint32_t round_off(uint32_t bits, uint32_t drop) {
  const uint32_t kept = bits >> drop;
  const uint32_t rest = bits & ((1u << drop) - 1);
  const uint32_t half = 1u << (drop - 1);
  return kept + (uint32_t)(rest > half || (rest == half && (kept & 1u) != 0));
}

uint16_t np_half_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t size = bits & 0x7FFFFFFFu;
  uint32_t result;
  if (size > 0x7F800000u) {
    result = 0x7E00u | (size >> MANTISSA_STEP & 0x3FFu);
  } else if (size >= 0x477FF000u) { /* 65520, halfway between the largest and the next step */
    result = 0x7C00u;
  } else if (size >= 0x38800000u) { /* 2^-14, the least normal; a carry raises the exponent */
    result = round_off(size - ((127u - 15u) << 23), MANTISSA_STEP);
  } else if (size >= 0x33000000u) { /* 2^-25, halfway to the least subnormal */
    const uint32_t mantissa = (size & 0x7FFFFFu) | 0x800000u;
    result = round_off(mantissa, 126u - (size >> 23)); /* in units of 2^-24 */
  } else {
    result = 0;
  }
  return (uint16_t)(sign | result);
}

void np_half_to_floats(const uint16_t *from, float *to, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i] = np_half_to_float(from[i]);
  }
}

void np_half_from_floats(const float *from, uint16_t *to, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i] = np_half_from_float(from[i]);
  }
}
