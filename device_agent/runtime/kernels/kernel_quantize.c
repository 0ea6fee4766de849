/* QUANTIZE: float32 to 8 bits. DEQUANTIZE: 8 bits, with one scale or one per channel, to float32 or
 * float16. */
#include "kernels/np_along.h"
#include "kernels/np_half.h"
#include "kernels/np_quant.h"

/* ---- QUANTIZE ---- */

static enum np_status quantize_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  return input->known ? np_set_shape(call, 0, input->rank, input->dims) : NP_MISSING;
}

static enum np_status quantize_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_operand *output = np_out_operand(call, 0);
  const float *in = input->data;
  int32_t low, high;
  np_q_limits(output->type, &low, &high);
  for (size_t i = 0; i < input->elements; i++) {
    np_q_write(output->type, np_out(call, 0)->room, i,
               np_quantize(in[i], output->scale, output->zero_point, low, high));
  }
  return NP_OK;
}

const struct np_kernel np_kernel_QUANTIZE = {
    .types = NP_FLOATS, .infer = quantize_infer, .run = quantize_run};

/* ---- DEQUANTIZE ---- */

static int has_channels(const struct np_call *call) {
  return np_in(call, 0)->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL;
}

static enum np_status dequantize_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_operand *operand = np_in_operand(call, 0);
  if (has_channels(call) && operand->channel_scales == NULL) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has no scales of its channels");
  }
  if (!input->known) {
    return NP_MISSING;
  }
  if (has_channels(call) &&
      (operand->channel_dim >= input->rank ||
       operand->dims[operand->channel_dim] != input->dims[operand->channel_dim])) {
    return np_fail(call, NP_BAD_MODEL,
                   "dimension %u of input 0, which has scales, is not as declared",
                   operand->channel_dim);
  }
  return np_set_shape(call, 0, input->rank, input->dims);
}

/* Dequantises n consecutive elements from `start` on, which share a scale. */
static void dequantize(const struct np_call *call, size_t start, size_t n, float scale,
                       int32_t zero_point) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const int is_half = output->type == NP_TYPE_TENSOR_FLOAT16;
  for (size_t i = start; i < start + n; i++) {
    const float value = np_dequantize(np_q_read(input->type, input->data, i), scale, zero_point);
    if (is_half) {
      ((uint16_t *)output->room)[i] = np_half_from_float(value);
    } else {
      ((float *)output->room)[i] = value;
    }
  }
}

static enum np_status dequantize_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_operand *operand = np_in_operand(call, 0);
  if (!has_channels(call)) {
    dequantize(call, 0, input->elements, operand->scale, operand->zero_point);
    return NP_OK;
  }
  const struct np_along along = np_along_axis(input, operand->channel_dim);
  for (size_t o = 0; o < along.outer; o++) {
    for (size_t c = 0; c < along.n; c++) {
      dequantize(call, (o * along.n + c) * along.inner, along.inner, operand->channel_scales[c], 0);
    }
  }
  return NP_OK;
}

/* FLOAT16 is supported for the output only. */
const struct np_kernel np_kernel_DEQUANTIZE = {
    .types = NP_QUANT8 | NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM) |
             NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) | NP_BIT(NP_TYPE_TENSOR_FLOAT16),
    .infer = dequantize_infer,
    .run = dequantize_run};
