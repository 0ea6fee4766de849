/* Quantised operations on one tensor: look values up in a table of all 256, computed in integers
 * like Android's reference. */
#include <math.h>

#include "kernels/np_quant.h"
#include "kernels/np_unary.h"

/* ---- LOGISTIC and TANH: fixed point with 4 integer bits ---- */

enum { INTEGER_BITS = 4 };

/* Fills table[i] with the function of the centred value of byte i, in units of 2^-bits. */
static void fill_fixed(const struct np_operand *input, enum np_unary unary, int bits,
                       int32_t *table) {
  const struct np_fixed format = {32, INTEGER_BITS};
  const struct np_multiplier multiplier =
      np_multiplier_of((double)input->scale * (1 << (31 - INTEGER_BITS)));
  const int32_t limit = np_input_radius(INTEGER_BITS, multiplier.shift > 0 ? multiplier.shift : 0);
  const int32_t radius = limit > 0 ? limit : 1; /* 0 must not be out of range */
  const int32_t most = 1 << bits;
  const int32_t least = unary == NP_UNARY_TANH ? -most : 0;
  for (int i = 0; i < 256; i++) {
    const int32_t x = table[i];
    if (x <= -radius || x >= radius) {
      table[i] = x < 0 ? least : most;
      continue;
    }
    const int32_t scaled = np_scale(x, multiplier);
    const int32_t result =
        unary == NP_UNARY_TANH ? np_fixed_tanh(format, scaled) : np_fixed_logistic(format, scaled);
    table[i] = np_rounding_shift(result, 31 - bits);
  }
}

/* ---- HARD_SWISH: x * relu6(x + 3) / 6 in 16 bits ---- */

/* Returns a multiplier's significand in 16 bits. */
static int32_t short_significand(struct np_multiplier multiplier) {
  const int32_t rounded = (int32_t)(((int64_t)multiplier.significand + (1 << 15)) >> 16);
  return rounded > INT16_MAX ? INT16_MAX : rounded;
}

static int32_t limit_16(int64_t value) {
  return np_limit(np_saturate(value), INT16_MIN, INT16_MAX);
}

/* Returns a * b / 2^15, rounded to nearest. */
static int32_t doubling_high_16(int32_t a, int32_t b) {
  const int32_t product = a * b;
  const int32_t nudge = product >= 0 ? 1 << 14 : 1 - (1 << 14);
  return limit_16((product + nudge) / (1 << 15));
}

/* Returns relu6(x + 3) / 6 in units of 2^-15, from x in units of scale / 128. */
static int32_t gate(int32_t fine, struct np_multiplier multiplier) {
  int32_t value = fine; /* becomes x / 3 in units of 2^-15, saturated to [-1, 1) */
  if (multiplier.shift > 0) {
    value = limit_16(np_saturating_left(value, multiplier.shift - 1));
  }
  value = doubling_high_16(value, short_significand(multiplier));
  if (multiplier.shift > 0) {
    value = limit_16((int64_t)value * 2);
  } else {
    value = np_rounding_shift(value, -multiplier.shift);
  }
  return (value + (1 << 15)) >> 1;
}

static void fill_hard_swish(const struct np_operand *input, const struct np_operand *output,
                            int32_t *table) {
  const float fine_scale = input->scale * (1.0f / 128.0f);
  const struct np_multiplier to_output = np_multiplier_of((double)(fine_scale / output->scale));
  const struct np_multiplier to_gate = np_multiplier_of((double)(fine_scale / (3.0f / 32768.0f)));
  for (int i = 0; i < 256; i++) {
    const int32_t fine = table[i] * 128;
    const int32_t scaled = doubling_high_16(fine, short_significand(to_output));
    const int32_t product = gate(fine, to_gate) * scaled / (1 << 15);
    table[i] = to_output.shift > 0 ? np_saturating_left(product, to_output.shift)
                                   : np_rounding_shift(product, -to_output.shift);
  }
}

/* ---- The others ---- */

static void fill_rsqrt(const struct np_operand *input, const struct np_operand *output,
                       int32_t *table) {
  for (int i = 0; i < 256; i++) {
    const float root = sqrtf((float)table[i] * input->scale); /* NaN below 0 gives the largest
                                                                 result */
    table[i] = np_quantize(1.0f / root, output->scale, 0, INT16_MIN, INT16_MAX);
  }
}

static int32_t fuse_code(enum np_unary unary) {
  return unary == NP_UNARY_RELU    ? ANEURALNETWORKS_FUSED_RELU
         : unary == NP_UNARY_RELU1 ? ANEURALNETWORKS_FUSED_RELU1
         : unary == NP_UNARY_RELU6 ? ANEURALNETWORKS_FUSED_RELU6
                                   : ANEURALNETWORKS_FUSED_NONE;
}

enum np_status np_unary_quant_check(const struct np_call *call) {
  const int is_signed = np_q_is_signed(np_in(call, 0)->type);
  switch ((enum np_unary)call->kernel->extra) {
  case NP_UNARY_RELU:
  case NP_UNARY_RELU1:
  case NP_UNARY_RELU6:
    return np_q_same_as_input(call, 0, 0);
  case NP_UNARY_LOGISTIC:
    return np_q_fixed_output(call, 0, 1.0f / 256, is_signed ? -128 : 0);
  case NP_UNARY_TANH:
    return np_q_fixed_output(call, 0, 1.0f / 128, is_signed ? 0 : 128);
  default:
    return NP_OK;
  }
}

/* Fills table[i] with the output's value for byte i, less its zero point. */
static void fill(const struct np_call *call, int32_t *table) {
  const struct np_operand *input = np_in_operand(call, 0);
  const struct np_operand *output = np_out_operand(call, 0);
  const enum np_unary unary = (enum np_unary)call->kernel->extra;
  for (int i = 0; i < 256; i++) {
    const unsigned char byte = (unsigned char)i;
    table[i] = np_q_read(input->type, &byte, 0) - input->zero_point;
  }
  switch (unary) {
  case NP_UNARY_LOGISTIC:
    fill_fixed(input, unary, 8, table);
    break;
  case NP_UNARY_TANH:
    fill_fixed(input, unary, 7, table);
    break;
  case NP_UNARY_HARD_SWISH:
    fill_hard_swish(input, output, table);
    break;
  case NP_UNARY_RSQRT:
    fill_rsqrt(input, output, table);
    break;
  default: /* the RELUs only clamp */
    break;
  }
}

enum np_status np_unary_quant_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_operand *output = np_out_operand(call, 0);
  const unsigned char *in = input->data;
  unsigned char *out = np_out(call, 0)->room;
  int32_t table[256];
  unsigned char bytes[256];
  int32_t low, high;
  NP_TRY(
      np_q_fuse_limits(call, fuse_code((enum np_unary)call->kernel->extra), output, &low, &high));
  fill(call, table);
  for (size_t i = 0; i < 256; i++) {
    const int32_t q = np_saturate((int64_t)table[i] + output->zero_point);
    np_q_write(output->type, bytes, i, np_limit(q, low, high));
  }
  for (size_t i = 0; i < input->elements; i++) {
    out[i] = bytes[in[i]];
  }
  return NP_OK;
}
