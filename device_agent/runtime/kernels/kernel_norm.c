/* L2_NORMALIZATION along an axis, INSTANCE_NORMALIZATION over the pixels of each image and
 * channel. */
#include <math.h>

#include "kernels/np_along.h"
#include "kernels/np_quant.h"

/* One line along the axis; `start` is its first element. */
typedef void line(const struct np_call *call, size_t start, const struct np_along *along);

static void each_line(const struct np_call *call, uint32_t axis, line *one) {
  const struct np_along along = np_along_axis(np_in(call, 0), axis);
  for (size_t o = 0; o < along.outer; o++) {
    for (size_t i = 0; i < along.inner; i++) {
      one(call, o * along.n * along.inner + i, &along);
    }
  }
}

/* ---- L2_NORMALIZATION: input, optional axis ---- */

static enum np_status l2_infer(const struct np_call *call) {
  const int32_t type = np_in(call, 0)->type;
  if (type != NP_TYPE_TENSOR_FLOAT32) {
    NP_TRY(np_q_fixed_output(call, 0, 1.0f / 128, np_q_is_signed(type) ? 0 : 128));
  }
  return np_along_infer(call, 1);
}

/* A line of zeros stays zero, as feature level 4 requires. */
static void l2_f32(const struct np_call *call, size_t start, const struct np_along *along) {
  const float *in = (const float *)np_in(call, 0)->data + start;
  float *out = (float *)np_out(call, 0)->room + start;
  const float least = 1e-6f;
  float sum = 0.0f;
  for (size_t i = 0; i < along->n; i++) {
    sum += in[i * along->inner] * in[i * along->inner];
  }
  const float root = sqrtf(sum);
  const float length = root < least ? least : root;
  for (size_t i = 0; i < along->n; i++) {
    out[i * along->inner] = in[i * along->inner] / length;
  }
}

/* Returns the multiplier nearest to 1 / sqrt(sum) for sum >= 1, by five steps of Newton's method in
 * fixed point with 3 integer bits, to round exactly like Android's reference. The sum is first
 * scaled into [1/4, 1) by powers of 4. */
static struct np_multiplier inverse_root(int64_t sum) {
  const int32_t three_halves = (1 << 28) + (1 << 27);
  const int32_t half_root_of_two = 1518500250;
  int right = 11;
  if (sum <= 1) {
    return (struct np_multiplier){INT32_MAX, 0};
  }
  for (; sum >= 1 << 29; right++) {
    sum /= 4;
  }
  for (; sum < 1 << 27; right--) {
    sum *= 4;
  }
  const int32_t half = np_rounding_shift((int32_t)(sum / 2), 1);
  int32_t x = 1 << 28;
  for (int step = 0; step < 5; step++) {
    const int32_t cube = np_doubling_high(np_doubling_high(x, x), x);
    const int32_t change = np_doubling_high(half, np_saturating_left(cube, 6));
    x = np_saturating_left(np_doubling_high(three_halves, x) - change, 3);
  }
  x = np_doubling_high(x, half_root_of_two);
  return right < 0 ? (struct np_multiplier){np_saturating_left(x, -right), 0}
                   : (struct np_multiplier){x, -right};
}

static void l2_quant(const struct np_call *call, size_t start, const struct np_along *along) {
  const struct np_operand *from = np_in_operand(call, 0);
  const struct np_operand *to = np_out_operand(call, 0);
  const unsigned char *in = (const unsigned char *)np_in(call, 0)->data + start;
  unsigned char *out = (unsigned char *)np_out(call, 0)->room + start;
  int64_t sum = 0;
  int32_t low, high;
  np_q_limits(to->type, &low, &high);
  for (size_t i = 0; i < along->n; i++) {
    const int32_t x = np_q_read(from->type, in, i * along->inner) - from->zero_point;
    sum += x * x;
  }
  const struct np_multiplier factor = inverse_root(sum);
  for (size_t i = 0; i < along->n; i++) {
    const int32_t x = np_q_read(from->type, in, i * along->inner) - from->zero_point;
    const int32_t q = np_scale(x * 128, factor) + to->zero_point;
    np_q_write(to->type, out, i * along->inner, np_limit(q, low, high));
  }
}

static enum np_status l2_run(const struct np_call *call) {
  uint32_t axis = 0;
  NP_TRY(np_read_axis(call, 1, &axis));
  each_line(call, axis, np_in(call, 0)->type == NP_TYPE_TENSOR_FLOAT32 ? l2_f32 : l2_quant);
  return NP_OK;
}

/* ---- INSTANCE_NORMALIZATION: input, gamma, beta, epsilon, layout ---- */

static enum np_status instance_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  if (!input->known) {
    return NP_MISSING;
  }
  if (input->rank != 4) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has rank %u, wanted 4", input->rank);
  }
  return np_set_shape(call, 0, input->rank, input->dims);
}

struct affine {
  float gamma, beta, epsilon;
};

/* Normalises one channel of an image of n pixels, `step` apart. */
static void instance_one(const float *in, float *out, size_t n, size_t step,
                         const struct affine *affine) {
  double sum = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i < n; i++) {
    sum += (double)in[i * step];
  }
  const double mean = sum / (double)n;
  for (size_t i = 0; i < n; i++) {
    const double off = (double)in[i * step] - mean;
    squares += off * off;
  }
  const double deviation = sqrt(squares / (double)n + (double)affine->epsilon);
  for (size_t i = 0; i < n; i++) {
    const double off = (double)in[i * step] - mean;
    out[i * step] = (float)(off * (double)affine->gamma / deviation + (double)affine->beta);
  }
}

static enum np_status instance_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const float *in = input->data;
  float *out = np_out(call, 0)->room;
  struct affine affine;
  NP_TRY(np_read_f32(call, 1, &affine.gamma));
  NP_TRY(np_read_f32(call, 2, &affine.beta));
  NP_TRY(np_read_f32(call, 3, &affine.epsilon));
  const size_t pixels = (size_t)input->dims[1] * input->dims[2];
  const size_t channels = input->dims[3];
  for (size_t n = 0; input->elements > 0 && n < input->dims[0]; n++) {
    for (size_t c = 0; c < channels; c++) {
      const size_t start = n * pixels * channels + c;
      instance_one(in + start, out + start, pixels, channels, &affine);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_L2_NORMALIZATION = {
    .types = NP_FLOATS | NP_QUANT8, .infer = l2_infer, .run = l2_run};
const struct np_kernel np_kernel_INSTANCE_NORMALIZATION = {
    .types = NP_FLOATS, .infer = instance_infer, .run = instance_run};
