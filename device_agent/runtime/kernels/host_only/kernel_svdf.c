/* SVDF: a layer whose units are `rank` filters each, over the last values of features of the input.
 * state[batch, filters * memory] has, for each filter, the features of the last steps, the newest
 * in the last but one place; the last is free. */
#include <string.h>

#include "kernels/np_lstm.h"

enum { INPUT, WEIGHTS_FEATURE, WEIGHTS_TIME, BIAS, STATE_IN, RANK, FUSE };
enum { STATE_OUT, OUTPUT };

struct svdf {
  size_t batch, inputs, filters, memory, rank, units;
  int32_t activation;
};

static enum np_status read_svdf(const struct np_call *call, struct svdf *svdf) {
  int32_t rank;
  size_t rows;
  NP_TRY(np_read_i32(call, RANK, &rank));
  NP_TRY(np_read_matrix(call, INPUT, &svdf->batch, &svdf->inputs));
  NP_TRY(np_read_matrix(call, WEIGHTS_FEATURE, &svdf->filters, &rows));
  NP_TRY(np_read_matrix(call, WEIGHTS_TIME, &rows, &svdf->memory));
  if (svdf->filters == 0 || svdf->memory == 0 || svdf->inputs == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "%zu filters with a memory of %zu and inputs of %zu, wanted at least one of "
                   "each",
                   svdf->filters, svdf->memory, svdf->inputs);
  }
  if (rank <= 0 || svdf->filters % (size_t)rank != 0) {
    return np_fail(call, NP_BAD_MODEL, "rank (input 5) is %d, wanted a divisor of %zu filters",
                   rank, svdf->filters);
  }
  svdf->rank = (size_t)rank;
  svdf->units = svdf->filters / svdf->rank;
  NP_TRY(np_require_matrix(call, WEIGHTS_FEATURE, svdf->filters, svdf->inputs));
  NP_TRY(np_require_matrix(call, WEIGHTS_TIME, svdf->filters, svdf->memory));
  NP_TRY(np_require_vector(call, BIAS, svdf->units));
  if (!np_has(call, STATE_IN)) {
    return np_fail(call, NP_BAD_MODEL, "state_in (input 4) is left out");
  }
  return np_require_matrix(call, STATE_IN, svdf->batch,
                           np_mul_saturated(svdf->filters, svdf->memory));
}

static enum np_status find_shapes(const struct np_call *call) {
  struct svdf svdf = {0};
  NP_TRY(read_svdf(call, &svdf));
  NP_TRY(np_set_matrix(call, STATE_OUT, svdf.batch, np_mul_saturated(svdf.filters, svdf.memory)));
  return np_set_matrix(call, OUTPUT, svdf.batch, svdf.units);
}

static enum np_status infer(const struct np_call *call) {
  return np_allow_omitted(call, find_shapes(call));
}

/* Runs one filter for one row: returns its sum over time, and shifts its state by one place. */
static float run_filter(const struct svdf *svdf, float feature, const float *weights,
                        const float *before, float *after) {
  const size_t last = svdf->memory - 1;
  memcpy(after, before, last * sizeof *after);
  after[last] = feature;
  const float sum = np_dot(after, weights, svdf->memory);
  memmove(after, after + 1, last * sizeof *after);
  after[last] = 0.0f;
  return sum;
}

static void run_row(const struct np_call *call, const struct svdf *svdf, size_t b) {
  const float *input = np_floats(call, INPUT) + b * svdf->inputs;
  const float *features = np_floats(call, WEIGHTS_FEATURE);
  const float *times = np_floats(call, WEIGHTS_TIME);
  const float *bias = np_floats(call, BIAS);
  const size_t state = b * svdf->filters * svdf->memory;
  const float *before = np_floats(call, STATE_IN) + state;
  float *after = (float *)np_out(call, STATE_OUT)->room + state;
  float *out = (float *)np_out(call, OUTPUT)->room + b * svdf->units;
  for (size_t u = 0; u < svdf->units; u++) {
    float sum = bias == NULL ? 0.0f : bias[u];
    for (size_t f = u * svdf->rank; f < (u + 1) * svdf->rank; f++) {
      const float feature = np_dot(features + f * svdf->inputs, input, svdf->inputs);
      const size_t place = f * svdf->memory;
      sum += run_filter(svdf, feature, times + place, before + place, after + place);
    }
    out[u] = np_activate(svdf->activation, sum);
  }
}

static enum np_status run(const struct np_call *call) {
  struct svdf svdf = {0};
  NP_TRY(read_svdf(call, &svdf));
  NP_TRY(np_read_activation(call, FUSE, NP_RNN_ACTIVATIONS, &svdf.activation));
  for (size_t b = 0; b < svdf.batch; b++) {
    run_row(call, &svdf, b);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_SVDF = {.types = NP_FLOATS, .infer = infer, .run = run};
