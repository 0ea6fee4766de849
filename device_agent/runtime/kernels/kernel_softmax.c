/* SOFTMAX (input, beta, optional axis) and LOG_SOFTMAX (input, beta, axis). The largest value is
 * subtracted first. */
#include <math.h>

#include "kernels/np_along.h"
#include "kernels/np_quant.h"

enum { SOFTMAX, LOG_SOFTMAX };

static int is_quant(const struct np_call *call) {
  return (NP_QUANT8 >> np_in(call, 0)->type & 1u) != 0;
}

/* Scales of empty tensors are not checked, as in Android's reference. */
static enum np_status infer(const struct np_call *call) {
  NP_TRY(np_along_infer(call, 2));
  if (!is_quant(call) || np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const int is_signed = np_q_is_signed(np_in(call, 0)->type);
  return np_q_fixed_output(call, 0, 1.0f / 256, is_signed ? -128 : 0);
}

/* Computes one distribution of n values, `step` apart. */
static void run_f32(const float *in, float *out, size_t n, size_t step, float beta, int is_log) {
  float top = in[0];
  for (size_t i = 1; i < n; i++) {
    top = in[i * step] > top ? in[i * step] : top;
  }
  float sum = 0.0f;
  for (size_t i = 0; i < n; i++) {
    const float scaled = (in[i * step] - top) * beta;
    const float power = expf(scaled);
    out[i * step] = is_log ? scaled : power;
    sum += power;
  }
  const float log_sum = logf(sum);
  for (size_t i = 0; i < n; i++) {
    out[i * step] = is_log ? out[i * step] - log_sum : out[i * step] / sum;
  }
}

/* ---- Quantised, in fixed point as Android's reference: powers have no integer bits, their sum has
 * SUM_BITS of them. ---- */

enum { DIFFERENCE_BITS = 5, SUM_BITS = 12 };

/* Fills powers[d] with exp of a value that is d below the largest one; 0 if that is out of
 * range. */
static void fill_powers(float beta, float scale, int32_t *powers) {
  const struct np_fixed format = {32, DIFFERENCE_BITS};
  const double factor = (double)beta * (double)scale * (1 << (31 - DIFFERENCE_BITS));
  const double largest = 0x1p31 - 1.0;
  const struct np_multiplier multiplier = np_multiplier_of(factor < largest ? factor : largest);
  const int32_t radius =
      np_input_radius(DIFFERENCE_BITS, multiplier.shift > 0 ? multiplier.shift : 0);
  for (int32_t d = 0; d < 256; d++) {
    powers[d] = d <= radius ? np_fixed_exp(format, np_scale(-d, multiplier)) : 0;
  }
}

static uint32_t leading_zeros(uint32_t bits) {
  uint32_t n = 0;
  for (; (bits & 0x80000000u) == 0; n++) {
    bits <<= 1;
  }
  return n;
}

static void run_quant(const unsigned char *in, unsigned char *out, size_t n, size_t step,
                      int32_t type, const int32_t *powers) {
  int32_t least, most;
  int32_t top = INT32_MIN;
  int64_t sum = 0;
  np_q_limits(type, &least, &most);
  for (size_t i = 0; i < n; i++) {
    const int32_t q = np_q_read(type, in, i * step);
    top = q > top ? q : top;
  }
  for (size_t i = 0; i < n; i++) {
    sum += np_rounding_shift(powers[top - np_q_read(type, in, i * step)], SUM_BITS);
  }
  int shift = SUM_BITS; /* shift of the product below, beyond the 31 - 8 bits to units of 1/256 */
  for (; sum > INT32_MAX; shift++) {
    sum /= 2;
  }
  const uint32_t zeros = leading_zeros((uint32_t)sum); /* the sum holds 1 at least: the largest */
  shift += 31 - 8 - (int)zeros;
  const uint32_t above_one = ((uint32_t)sum << zeros) - 0x80000000u;
  const int32_t reciprocal = np_fixed_reciprocal(32, (int32_t)above_one);
  for (size_t i = 0; i < n; i++) {
    const int32_t power = powers[top - np_q_read(type, in, i * step)];
    const int32_t product = np_doubling_high(reciprocal, power);
    const int32_t units = shift > 31 ? 0 : np_rounding_shift(product, shift);
    np_q_write(type, out, i * step, np_limit(units + least, least, most));
  }
}

static enum np_status run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const int is_log = call->kernel->extra == LOG_SOFTMAX;
  uint32_t axis = 0;
  float beta;
  NP_TRY(np_read_axis(call, 2, &axis));
  NP_TRY(np_read_f32(call, 1, &beta));
  if (!is_log && !(beta > 0.0f)) {
    return np_fail(call, NP_BAD_MODEL, "beta (input 1) is %g, wanted more than 0", (double)beta);
  }
  int32_t powers[256];
  if (is_quant(call)) {
    fill_powers(beta, np_in_operand(call, 0)->scale, powers);
  }
  const struct np_along along = np_along_axis(input, axis);
  for (size_t o = 0; o < along.outer; o++) {
    for (size_t i = 0; i < along.inner; i++) {
      const size_t at = o * along.n * along.inner + i;
      if (is_quant(call)) {
        run_quant((const unsigned char *)input->data + at,
                  (unsigned char *)np_out(call, 0)->room + at, along.n, along.inner, input->type,
                  powers);
      } else {
        run_f32((const float *)input->data + at, (float *)np_out(call, 0)->room + at, along.n,
                along.inner, beta, is_log);
      }
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_SOFTMAX = {
    .types = NP_FLOATS | NP_QUANT8, .extra = SOFTMAX, .infer = infer, .run = run};
const struct np_kernel np_kernel_LOG_SOFTMAX = {
    .types = NP_FLOATS, .extra = LOG_SOFTMAX, .infer = infer, .run = run};
