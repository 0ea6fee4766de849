/* Fixed-point arithmetic of quantised kernels against the C library's floating point. */
#include <math.h>

#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "kernels/np_quant.h"
#include "np_test.h"

static void values_keep_their_sign(void) {
  unsigned char bytes[4] = {0, 127, 128, 255};
  const int32_t unsigned_wanted[4] = {0, 127, 128, 255};
  const int32_t signed_wanted[4] = {0, 127, -128, -1};
  for (size_t i = 0; i < 4; i++) {
    CHECK(np_q_read(NP_TYPE_TENSOR_QUANT8_ASYMM, bytes, i) == unsigned_wanted[i]);
    CHECK(np_q_read(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED, bytes, i) == signed_wanted[i]);
    CHECK(np_q_read(NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL, bytes, i) == signed_wanted[i]);
  }
  np_q_write(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED, bytes, 1, -3);
  CHECK(bytes[1] == 253);
  unsigned char words[4];
  np_q16_write(words, 1, -2);
  CHECK(np_q16_read(NP_TYPE_TENSOR_QUANT16_SYMM, words, 1) == -2);
  CHECK(np_q16_read(NP_TYPE_TENSOR_QUANT16_ASYMM, words, 1) == 65534);
}

static void values_are_quantised(void) {
  CHECK(np_quantize(1.25f, 0.5f, 10, 0, 255) == 13); /* 2.5 away from zero */
  CHECK(np_quantize(-1.25f, 0.5f, 10, 0, 255) == 7);
  CHECK(np_quantize(-100.0f, 0.5f, 10, 0, 255) == 0);
  CHECK(np_quantize(-100.0f, 0.5f, 10, -128, 127) == -128);
  CHECK(np_quantize(1e30f, 1e-30f, 0, -128, 127) == 127);
  CHECK(np_quantize(-1e30f, 1e-30f, 0, -128, 127) == -128);
  CHECK(np_quantize(NAN, 1.0f, 0, 0, 255) == 255);
  CHECK(np_dequantize(7, 0.5f, 10) == -1.5f);
  const struct np_operand from = {
      .type = NP_TYPE_TENSOR_QUANT8_ASYMM, .scale = 0.5f, .zero_point = 100};
  const struct np_operand to = {
      .type = NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED, .scale = 0.25f, .zero_point = 3};
  CHECK(np_requantize(110, &from, &to) == 23);
  CHECK(np_requantize(255, &from, &to) == 127);
  CHECK(np_requantize(0, &from, &to) == -128);
}

static void fuse_codes_limit(void) {
  struct np_message why = {{0}};
  const struct np_operation operation = {.code = ANEURALNETWORKS_ADD};
  const struct np_call call = {.operation = &operation, .why = &why};
  struct np_operand output = {.type = NP_TYPE_TENSOR_QUANT8_ASYMM, .scale = 0.1f, .zero_point = 20};
  static const int32_t WANTED[4][2] = {{0, 255}, {20, 255}, {10, 30}, {20, 80}};
  int32_t low, high;
  for (int32_t fuse = 0; fuse < 4; fuse++) {
    CHECK(np_q_fuse_limits(&call, fuse, &output, &low, &high) == NP_OK);
    CHECK(low == WANTED[fuse][0] && high == WANTED[fuse][1]);
  }
  CHECK(np_q_fuse_limits(&call, 4, &output, &low, &high) == NP_BAD_MODEL);
  output = (struct np_operand){
      .type = NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED, .scale = 1e-38f, .zero_point = -5};
  CHECK(np_q_fuse_limits(&call, ANEURALNETWORKS_FUSED_RELU1, &output, &low, &high) == NP_OK);
  CHECK(low == -128 && high == 127);
}

static void multipliers_round(void) {
  const struct np_multiplier half = np_multiplier_of(0.5);
  CHECK(half.significand == 1 << 30 && half.shift == 0);
  const struct np_multiplier three = np_multiplier_of(3.0);
  CHECK(three.significand == 1610612736 && three.shift == 2);
  CHECK(np_multiplier_of(0.0).significand == 0 && np_multiplier_of(NAN).significand == 0);
  CHECK(np_multiplier_of(-1.0).significand == 0 && np_multiplier_of(0x1p-40).significand == 0);
  CHECK(np_multiplier_of(INFINITY).significand == INT32_MAX);
  CHECK(np_multiplier_of(1.0 - 0x1p-40).significand == 1 << 30); /* rounds up to 1 */
  CHECK(np_multiplier_of(1.0 - 0x1p-40).shift == 1);
  CHECK(np_scale(INT32_MAX, np_multiplier_of(1e30)) >= INT32_MAX - 1);
  CHECK(np_scale(INT32_MIN, np_multiplier_of(1e30)) < -INT32_MAX + 2);
  CHECK(np_doubling_high(INT32_MIN, INT32_MIN) == INT32_MAX);
  CHECK(np_rounding_shift(5, 1) == 3 && np_rounding_shift(-5, 1) == -3);
  CHECK(np_rounding_shift(-6, 2) == -2 && np_rounding_shift(-5, 2) == -1);
  CHECK(np_rounding_shift(INT32_MIN, 31) == -1 && np_rounding_shift(INT32_MAX, 31) == 1);
  uint64_t seed = 5;
  for (int i = 0; i < 20000; i++) {
    const int32_t a = (int32_t)(uint32_t)np_test_random(&seed);
    const int32_t b = (int32_t)(uint32_t)np_test_random(&seed);
    CHECK(np_doubling_high(a, b) == (int32_t)floorl((long double)a * b / 0x1p31L + 0.5L));
    const double factor = ldexp(1.0 + np_test_float(&seed) / 2.0, (int)(i % 16) - 12);
    const int32_t small = a >> 8;
    CHECK(fabs(np_scale(small, np_multiplier_of(factor)) - small * factor) <= 1.01);
  }
}

/* The worst errors of the fixed-point functions, in units of the last place of the result. */
static void functions_are_close(int width, int integer_bits, double units) {
  const struct np_fixed format = {width, integer_bits};
  const double one = ldexp(1.0, width - 1);
  const double unit = ldexp(1.0, integer_bits - width + 1);
  uint64_t seed = 7;
  double worst_exp = 0.0;
  double worst_logistic = 0.0;
  double worst_tanh = 0.0;
  for (int i = 0; i < 20000; i++) {
    const int32_t raw = (int32_t)(uint32_t)np_test_random(&seed) >> (32 - width);
    const double x = raw * unit;
    const int32_t below = raw < 0 ? raw : -raw;
    worst_exp = fmax(worst_exp, fabs(np_fixed_exp(format, below) - one * exp(below * unit)));
    if (integer_bits > 0) {
      worst_logistic =
          fmax(worst_logistic, fabs(np_fixed_logistic(format, raw) - one / (1.0 + exp(-x))));
    }
    if (integer_bits < 5) {
      worst_tanh = fmax(worst_tanh, fabs(np_fixed_tanh(format, raw) - one * tanh(x)));
    }
  }
  CHECK(worst_exp <= units);
  CHECK(worst_logistic <= units);
  CHECK(worst_tanh <= units);
  CHECK(np_fixed_exp(format, 0) == (width == 16 ? INT16_MAX : INT32_MAX));
  CHECK(np_fixed_logistic(format, 0) == 1 << (width - 2));
  CHECK(np_fixed_tanh(format, 0) == 0);
}

/* Every engine's integer products against sums of 64 bits, at the ends of the range too. */
static void dots_are_exact(void) {
  enum { DEPTH = 48, ROW = 64 };
  static int16_t a[2][DEPTH];
  static int16_t b[4][ROW];
  uint64_t seed = 11;
  for (unsigned e = 0; e < 3; e++) {
    const struct np_gemm_engine *engine = np_gemm_engine_at(e);
    for (int round = 0; engine != NULL && round < 50; round++) {
      int32_t found[8];
      for (size_t i = 0; i < DEPTH; i++) {
        for (size_t j = 0; j < 4; j++) {
          a[j % 2][i] = (int16_t)(round == 0 ? -255 : (int)np_test_between(&seed, 0, 510) - 255);
          b[j][i] = (int16_t)(round == 0 ? 255 : (int)np_test_between(&seed, 0, 510) - 255);
        }
      }
      engine->dots(DEPTH, a[0], a[1], b[0], ROW, found);
      for (size_t k = 0; k < 8; k++) {
        int64_t wanted = 0;
        for (size_t i = 0; i < DEPTH; i++) {
          wanted += (int64_t)a[k / 4][i] * b[k % 4][i];
        }
        CHECK(found[k] == wanted);
      }
    }
  }
}

/* Products of odd sizes: rows are padded, and nothing is written beyond the last sum. */
static void products_of_odd_sizes(void) {
  enum { MOST = 7, DEPTH = 21 };
  const struct np_operand operand = {.type = NP_TYPE_TENSOR_QUANT8_ASYMM, .zero_point = 100};
  unsigned char x[MOST * DEPTH];
  unsigned char y[MOST * DEPTH];
  int16_t rows[8 * 32];
  int16_t packed[8 * 32];
  uint64_t seed = 13;
  CHECK(np_q_row(DEPTH) == 32 && np_q_packed(MOST, DEPTH) == sizeof packed / sizeof *packed);
  for (size_t i = 0; i < sizeof x; i++) {
    x[i] = (unsigned char)np_test_between(&seed, 0, 255);
    y[i] = (unsigned char)np_test_between(&seed, 0, 255);
  }
  for (size_t m = 1; m <= MOST; m++) {
    for (size_t n = 1; n <= MOST; n++) {
      int32_t sums[MOST * MOST + 1];
      sums[m * n] = 12345;
      np_q_pack(&operand, x, m, DEPTH, rows);
      np_q_pack(&operand, y, n, DEPTH, packed);
      np_q_gemm(m, n, DEPTH, rows, packed, sums);
      for (size_t i = 0; i < m * n; i++) {
        int32_t wanted = 0;
        for (size_t d = 0; d < DEPTH; d++) {
          wanted += (x[i / n * DEPTH + d] - 100) * (y[i % n * DEPTH + d] - 100);
        }
        CHECK(sums[i] == wanted);
      }
      CHECK(sums[m * n] == 12345);
    }
  }
}

int main(void) {
  dots_are_exact();
  products_of_odd_sizes();
  values_keep_their_sign();
  values_are_quantised();
  fuse_codes_limit();
  multipliers_round();
  for (int integer_bits = 0; integer_bits <= 5; integer_bits++) {
    functions_are_close(32, integer_bits, 600.0);
    functions_are_close(16, integer_bits, 13.0);
  }
  CHECK(np_input_radius(4, 0) == 2013265920);
  CHECK(np_input_radius(4, 27) == 15);
  CHECK(np_input_radius(5, 29) == 3);
  return np_test_exit();
}
