#include <math.h>
#include <string.h>

#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"

/* Rows of weights that one tile takes, and elements that rows are padded to. */
#define PANEL 4u
#define PADDING 16u
/* Products summed in 32 bits at a time: 16384 times 255 x 255 fits. */
#define DEPTH 16384u

size_t np_q_row(size_t k) {
  const size_t padded = np_add_saturated(k, PADDING - 1);
  return padded == SIZE_MAX ? SIZE_MAX : padded / PADDING * PADDING;
}

size_t np_q_packed(size_t n, size_t k) {
  const size_t rows = np_add_saturated(n, PANEL - 1);
  return rows == SIZE_MAX ? SIZE_MAX : np_mul_saturated(rows / PANEL * PANEL, np_q_row(k));
}

void np_q_widen(const struct np_operand *operand, const unsigned char *from, size_t n,
                int16_t *to) {
  const int is_signed = np_q_is_signed(operand->type);
  const unsigned flip = is_signed ? 0x80u : 0u;
  const int32_t shift = operand->zero_point + (is_signed ? 128 : 0);
  for (size_t i = 0; i < n; i++) {
    to[i] = (int16_t)((int32_t)(from[i] ^ flip) - shift);
  }
}

void np_q_pack(const struct np_operand *operand, const unsigned char *weights, size_t n, size_t k,
               int16_t *packed) {
  struct np_operand centred = *operand;
  if (operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    centred.zero_point = 0;
  }
  const size_t row = np_q_row(k);
  memset(packed, 0, np_q_packed(n, k) * sizeof *packed);
  for (size_t i = 0; i < n; i++) {
    np_q_widen(&centred, weights + i * k, k, packed + i * row);
  }
}

void np_q_gemm(size_t m, size_t n, size_t k, const int16_t *a, const int16_t *packed,
               int32_t *sums) {
  np_gemm_dots *dots = np_gemm_engine()->dots;
  const size_t row = np_q_row(k);
  for (size_t c = 0; c < n; c += PANEL) {
    const size_t used = n - c < PANEL ? n - c : PANEL;
    for (size_t r = 0; r < m; r += 2) {
      const int16_t *first = a + r * row;
      const int16_t *second = r + 1 < m ? first + row : first;
      int64_t totals[2 * PANEL] = {0};
      for (size_t i = 0; i < row; i += DEPTH) {
        int32_t partial[2 * PANEL];
        dots(row - i < DEPTH ? row - i : DEPTH, first + i, second + i, packed + c * row + i, row,
             partial);
        for (size_t j = 0; j < 2 * PANEL; j++) {
          totals[j] += partial[j];
        }
      }
      for (size_t j = 0; j < used; j++) {
        sums[r * n + c + j] = np_saturate(totals[j]);
      }
      for (size_t j = 0; j < used && r + 1 < m; j++) {
        sums[(r + 1) * n + c + j] = np_saturate(totals[PANEL + j]);
      }
    }
  }
}

void np_q_finish_row(const struct np_q_finish *finish, size_t n, const int32_t *sums,
                     unsigned char *out) {
  for (size_t i = 0; i < n; i++) {
    const int32_t biased =
        finish->bias == NULL ? sums[i] : np_saturate((int64_t)sums[i] + finish->bias[i]);
    const int32_t scaled = np_scale(biased, finish->multipliers[i]);
    const int32_t q = np_saturate((int64_t)scaled + finish->zero_point);
    out[i] = (unsigned char)((uint32_t)np_limit(q, finish->low, finish->high) & 0xffu);
  }
}

int np_q_data(const struct np_call *call) {
  return np_in(call, 0)->type == NP_TYPE_TENSOR_QUANT8_ASYMM ||
         np_in(call, 0)->type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
}

enum np_status np_q_check_weights(const struct np_call *call, uint32_t channel_dim) {
  if (!np_q_data(call)) {
    return NP_OK;
  }
  const struct np_operand *input = np_in_operand(call, 0);
  const struct np_operand *weights = np_in_operand(call, 1);
  const struct np_operand *bias = np_in_operand(call, 2);
  const int per_channel = weights->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL;
  const int is_empty = np_in(call, 0)->known && np_in(call, 0)->elements == 0;
  if (bias->zero_point != 0) {
    return np_fail(call, NP_BAD_MODEL, "bias (input 2) has zero point %d, wanted 0",
                   bias->zero_point);
  }
  if (!per_channel) {
    const float product = input->scale * weights->scale;
    const double least = fmin((double)product, (double)bias->scale);
    if (!is_empty && !(fabs((double)product - (double)bias->scale) <= 1e-6 * least)) {
      return np_fail(call, NP_BAD_MODEL,
                     "bias (input 2) has scale %g, wanted input times weights: %g",
                     (double)bias->scale, (double)product);
    }
    return NP_OK;
  }
  if (weights->channel_scales == NULL || weights->channel_dim != channel_dim) {
    return np_fail(call, NP_BAD_MODEL,
                   "weights (input 1) have scales along dimension %u, wanted %u",
                   weights->channel_dim, channel_dim);
  }
  if (weights->dims[channel_dim] != np_in(call, 1)->dims[channel_dim]) {
    return np_fail(call, NP_BAD_MODEL, "weights (input 1) have %u scales, wanted %u",
                   weights->dims[channel_dim], np_in(call, 1)->dims[channel_dim]);
  }
  if (!is_empty && bias->scale != 0.0f) {
    return np_fail(call, NP_BAD_MODEL,
                   "bias (input 2) has scale %g, wanted 0 with a scale for each channel",
                   (double)bias->scale);
  }
  return NP_OK;
}

void np_q_multipliers(const struct np_call *call, size_t n, struct np_multiplier *multipliers) {
  const struct np_operand *weights = np_in_operand(call, 1);
  const float input_scale = np_in_operand(call, 0)->scale;
  const double output_scale = (double)np_out_operand(call, 0)->scale;
  for (size_t i = 0; i < n; i++) {
    const float scale =
        weights->channel_scales != NULL ? weights->channel_scales[i] : weights->scale;
    const float product = input_scale * scale; /* in single precision, as the reference does */
    multipliers[i] = np_multiplier_of((double)product / output_scale);
  }
}

enum np_status np_q_finish_of(const struct np_call *call, int32_t fuse,
                              struct np_q_finish *finish) {
  const struct np_operand *output = np_out_operand(call, 0);
  finish->zero_point = output->zero_point;
  return np_q_fuse_limits(call, fuse, output, &finish->low, &finish->high);
}
