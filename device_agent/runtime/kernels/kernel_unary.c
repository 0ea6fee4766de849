/* Element-wise operations on one tensor. */
#include <math.h>

#include "kernels/np_unary.h"

static int is_quant(const struct np_call *call) {
  return (NP_QUANT8 >> np_in(call, 0)->type & 1u) != 0;
}

static enum np_status infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  if (is_quant(call)) {
    NP_TRY(np_unary_quant_check(call));
  }
  return input->known ? np_set_shape(call, 0, input->rank, input->dims) : NP_MISSING;
}

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* One loop for each operation, so that those with plain arithmetic vectorise. */
#define EACH(EXPRESSION)                                                                           \
  for (size_t i = 0; i < n; i++) {                                                                 \
    const float x = in[i];                                                                         \
    out[i] = (EXPRESSION);                                                                         \
  }                                                                                                \
  break

static void run_f32(enum np_unary unary, const float *in, float *out, size_t n, float alpha) {
  switch (unary) {
  case NP_UNARY_RELU:
    EACH(x < 0.0f ? 0.0f : x);
  case NP_UNARY_RELU1:
    EACH(clamp(x, -1.0f, 1.0f));
  case NP_UNARY_RELU6:
    EACH(clamp(x, 0.0f, 6.0f));
  case NP_UNARY_LOGISTIC:
    EACH(1.0f / (1.0f + expf(-x)));
  case NP_UNARY_TANH:
    EACH(tanhf(x));
  case NP_UNARY_HARD_SWISH:
    EACH(x * clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f);
  case NP_UNARY_ELU:
    EACH(x < 0.0f ? alpha * expm1f(x) : x);
  case NP_UNARY_FLOOR:
    EACH(floorf(x));
  case NP_UNARY_ABS:
    EACH(fabsf(x));
  case NP_UNARY_EXP:
    EACH(expf(x));
  case NP_UNARY_NEG:
    EACH(-x);
  case NP_UNARY_SQRT:
    EACH(sqrtf(x));
  case NP_UNARY_RSQRT:
    EACH(1.0f / sqrtf(x));
  case NP_UNARY_LOG:
    EACH(logf(x));
  case NP_UNARY_SIN:
    EACH(sinf(x));
  }
}

static void run_i32(enum np_unary unary, const int32_t *in, int32_t *out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const int keep = unary == NP_UNARY_ABS && in[i] >= 0;
    out[i] = keep ? in[i] : (int32_t)(0u - (uint32_t)in[i]); /* INT32_MIN stays unchanged */
  }
}

static enum np_status run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const enum np_unary unary = (enum np_unary)call->kernel->extra;
  float alpha = 0.0f;
  if (unary == NP_UNARY_ELU) {
    NP_TRY(np_read_f32(call, 1, &alpha));
  }
  if (is_quant(call)) {
    return np_unary_quant_run(call);
  }
  if (input->type == NP_TYPE_TENSOR_INT32) {
    run_i32(unary, input->data, np_out(call, 0)->room, input->elements);
  } else {
    run_f32(unary, input->data, np_out(call, 0)->room, input->elements, alpha);
  }
  return NP_OK;
}

#define UNARY(name, set)                                                                           \
  const struct np_kernel np_kernel_##name = {                                                      \
      .types = (set), .extra = NP_UNARY_##name, .infer = infer, .run = run}

UNARY(RELU, NP_FLOATS | NP_QUANT8);
UNARY(RELU1, NP_FLOATS | NP_QUANT8);
UNARY(RELU6, NP_FLOATS | NP_QUANT8);
UNARY(LOGISTIC, NP_FLOATS | NP_QUANT8);
UNARY(TANH, NP_FLOATS | NP_QUANT8);
UNARY(HARD_SWISH, NP_FLOATS | NP_QUANT8);
UNARY(ELU, NP_FLOATS);
UNARY(FLOOR, NP_FLOATS);
UNARY(ABS, NP_FLOATS | NP_INTS);
UNARY(EXP, NP_FLOATS);
UNARY(NEG, NP_FLOATS | NP_INTS);
UNARY(SQRT, NP_FLOATS);
UNARY(RSQRT, NP_FLOATS | NP_QUANT8);
UNARY(LOG, NP_FLOATS);
UNARY(SIN, NP_FLOATS);
