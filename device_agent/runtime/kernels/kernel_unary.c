/* Operations of one tensor, element by element. */
#include <math.h>

#include "kernels/np_families.h"

enum np_status np_unary_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
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
    out[i] = keep ? in[i] : (int32_t)(0u - (uint32_t)in[i]); /* the least integer stays itself */
  }
}

enum np_status np_unary_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const enum np_unary unary = (enum np_unary)call->kernel->extra;
  float alpha = 0.0f;
  if (unary == NP_UNARY_ELU) {
    NP_TRY(np_read_f32(call, 1, &alpha));
  }
  if (input->type == NP_TYPE_TENSOR_INT32) {
    run_i32(unary, input->data, np_out(call, 0)->room, input->elements);
  } else {
    run_f32(unary, input->data, np_out(call, 0)->room, input->elements, alpha);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_RELU = {
    .types = NP_FLOATS, .extra = NP_UNARY_RELU, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_RELU1 = {
    .types = NP_FLOATS, .extra = NP_UNARY_RELU1, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_RELU6 = {
    .types = NP_FLOATS, .extra = NP_UNARY_RELU6, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_LOGISTIC = {
    .types = NP_FLOATS, .extra = NP_UNARY_LOGISTIC, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_TANH = {
    .types = NP_FLOATS, .extra = NP_UNARY_TANH, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_HARD_SWISH = {
    .types = NP_FLOATS, .extra = NP_UNARY_HARD_SWISH, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_ELU = {
    .types = NP_FLOATS, .extra = NP_UNARY_ELU, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_FLOOR = {
    .types = NP_FLOATS, .extra = NP_UNARY_FLOOR, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_ABS = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_UNARY_ABS,
                                        .infer = np_unary_infer,
                                        .run = np_unary_run};
const struct np_kernel np_kernel_EXP = {
    .types = NP_FLOATS, .extra = NP_UNARY_EXP, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_NEG = {.types = NP_FLOATS | NP_INTS,
                                        .extra = NP_UNARY_NEG,
                                        .infer = np_unary_infer,
                                        .run = np_unary_run};
const struct np_kernel np_kernel_SQRT = {
    .types = NP_FLOATS, .extra = NP_UNARY_SQRT, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_RSQRT = {
    .types = NP_FLOATS, .extra = NP_UNARY_RSQRT, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_LOG = {
    .types = NP_FLOATS, .extra = NP_UNARY_LOG, .infer = np_unary_infer, .run = np_unary_run};
const struct np_kernel np_kernel_SIN = {
    .types = NP_FLOATS, .extra = NP_UNARY_SIN, .infer = np_unary_infer, .run = np_unary_run};
