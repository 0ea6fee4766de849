/* SOFTMAX and LOG_SOFTMAX along one axis, the largest value subtracted first. */
#include <math.h>

#include "kernels/np_families.h"

/* SOFTMAX takes input, beta, optional axis (the last one); LOG_SOFTMAX input, beta, axis. */
static enum np_status read_axis(const struct np_call *call, uint32_t *axis) {
  int32_t value = -1;
  if (np_has(call, 2)) {
    NP_TRY(np_read_i32(call, 2, &value));
  }
  return np_axis(call, value, np_in(call, 0)->rank, axis);
}

enum np_status np_softmax_infer(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  if (!input->known) {
    return NP_MISSING;
  }
  return np_set_shape(call, 0, input->rank, input->dims);
}

/* One distribution of n values, `step` apart. */
static void run_one(const float *in, float *out, size_t n, size_t step, float beta, int is_log) {
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

enum np_status np_softmax_run(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  uint32_t axis = 0;
  float beta;
  NP_TRY(read_axis(call, &axis));
  NP_TRY(np_read_f32(call, 1, &beta));
  const int is_log = call->kernel->extra == NP_LOG_SOFTMAX;
  if (!(beta > 0.0f)) {
    return np_fail(call, NP_BAD_MODEL, "beta (input 1) is %g, wanted more than 0", (double)beta);
  }
  size_t inner = 1;
  for (uint32_t d = axis + 1; d < input->rank; d++) {
    inner *= input->dims[d];
  }
  const size_t n = input->dims[axis];
  const float *in = input->data;
  float *out = np_out(call, 0)->room;
  for (size_t start = 0; start < input->elements; start += n * inner) {
    for (size_t i = 0; i < inner; i++) {
      run_one(in + start + i, out + start + i, n, inner, beta, is_log);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_SOFTMAX = {
    .types = NP_FLOATS, .extra = NP_SOFTMAX, .infer = np_softmax_infer, .run = np_softmax_run};
const struct np_kernel np_kernel_LOG_SOFTMAX = {
    .types = NP_FLOATS, .extra = NP_LOG_SOFTMAX, .infer = np_softmax_infer, .run = np_softmax_run};
