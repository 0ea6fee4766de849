/* QUANTIZED_16BIT_LSTM: one step of a plain LSTM on integers, bit-identical to Android's reference.
 *
 * Sums of 32 bits are converted to fixed point with 3 integer bits; the gates computed from them
 * have none, the cell state has 4. */
#include <math.h>

#include "kernels/np_lstm.h"
#include "kernels/np_quant.h"

enum {
  INPUT = 0,
  INPUT_WEIGHTS = 1,
  RECURRENT_WEIGHTS = 5,
  BIASES = 9,
  CELL_IN = 13,
  STATE_IN = 14
};
enum { CELL_OUT, OUTPUT };

/* The scale of all inputs and outputs. */
static const float VALUE_SCALE = 1.0f / 128;
enum { VALUE_ZERO_POINT = 128 };

struct qlstm16 {
  size_t batch, inputs, units;
  struct np_multiplier to_fixed; /* from sums to 3 integer bits */
  int32_t weights_zero_point;
};

static enum np_status want_quantisation(const struct np_call *call, uint32_t input, float scale,
                                        int32_t zero_point) {
  const struct np_operand *operand = np_in_operand(call, input);
  if (operand->scale != scale || operand->zero_point != zero_point) {
    return np_fail(call, NP_BAD_MODEL, "input %u has scale %g and zero point %d, wanted %g and %d",
                   input, (double)operand->scale, operand->zero_point, (double)scale, zero_point);
  }
  return NP_OK;
}

static enum np_status check_quantisation(const struct np_call *call) {
  const struct np_operand *weights = np_in_operand(call, INPUT_WEIGHTS);
  const struct np_operand *cell = np_in_operand(call, CELL_IN);
  NP_TRY(want_quantisation(call, INPUT, VALUE_SCALE, VALUE_ZERO_POINT));
  NP_TRY(want_quantisation(call, STATE_IN, VALUE_SCALE, VALUE_ZERO_POINT));
  for (uint32_t i = INPUT_WEIGHTS; i < BIASES; i++) {
    NP_TRY(want_quantisation(call, i, weights->scale, weights->zero_point));
  }
  for (uint32_t i = BIASES; i < CELL_IN; i++) {
    NP_TRY(want_quantisation(call, i, weights->scale * VALUE_SCALE, 0));
  }
  if (!(fabsf(log2f(cell->scale) + 11.0f) < 1e-3f) || cell->zero_point != 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "cell_state_in (input %d) has scale %g and zero point %d, wanted 1/2048 and 0",
                   CELL_IN, (double)cell->scale, cell->zero_point);
  }
  NP_TRY(np_q_fixed_output(call, CELL_OUT, cell->scale, 0));
  return np_q_fixed_output(call, OUTPUT, VALUE_SCALE, VALUE_ZERO_POINT);
}

static enum np_status read_sizes(const struct np_call *call, struct qlstm16 *lstm) {
  size_t rows;
  for (uint32_t i = 0; i < call->operation->n_inputs; i++) {
    if (!np_has(call, i)) {
      return np_fail(call, NP_BAD_MODEL, "input %u is left out", i);
    }
  }
  NP_TRY(np_read_matrix(call, INPUT, &lstm->batch, &lstm->inputs));
  NP_TRY(np_read_matrix(call, STATE_IN, &rows, &lstm->units));
  if (lstm->units == 0 || lstm->inputs == 0) {
    return np_fail(call, NP_BAD_MODEL, "%zu units and inputs of %zu, wanted at least one of each",
                   lstm->units, lstm->inputs);
  }
  for (uint32_t g = 0; g < NP_GATES; g++) {
    NP_TRY(np_require_matrix(call, INPUT_WEIGHTS + g, lstm->units, lstm->inputs));
    NP_TRY(np_require_matrix(call, RECURRENT_WEIGHTS + g, lstm->units, lstm->units));
    NP_TRY(np_require_vector(call, BIASES + g, lstm->units));
  }
  NP_TRY(np_require_matrix(call, STATE_IN, lstm->batch, lstm->units));
  return np_require_matrix(call, CELL_IN, lstm->batch, lstm->units);
}

static enum np_status infer(const struct np_call *call) {
  struct qlstm16 lstm = {0};
  NP_TRY(check_quantisation(call));
  NP_TRY(read_sizes(call, &lstm));
  NP_TRY(np_set_matrix(call, CELL_OUT, lstm.batch, lstm.units));
  return np_set_matrix(call, OUTPUT, lstm.batch, lstm.units);
}

/* The values that a gate's sum reads: the weights are those of the state, then those of the input,
 * but they multiply the input, then the state. Android's reference pairs them like this, its tests
 * require the same results of every driver, and so this does the same. */
struct operands {
  const uint8_t *recurrent_weights; /* [units] */
  const uint8_t *input_weights;     /* [inputs] */
  const uint8_t *input;             /* [inputs] */
  const uint8_t *state;             /* [units] */
};

static int64_t product(const struct qlstm16 *lstm, const struct operands *of) {
  int64_t sum = 0;
  for (size_t i = 0; i < lstm->units + lstm->inputs; i++) {
    const int64_t weight =
        i < lstm->units ? of->recurrent_weights[i] : of->input_weights[i - lstm->units];
    const int64_t value = i < lstm->inputs ? of->input[i] : of->state[i - lstm->inputs];
    sum += (value - VALUE_ZERO_POINT) * (weight - lstm->weights_zero_point);
  }
  return sum;
}

/* Row `row` of a matrix of bytes. */
static const uint8_t *row_of(const struct np_call *call, uint32_t input, size_t row, size_t n) {
  return (const uint8_t *)np_in(call, input)->data + row * n;
}

/* Returns the argument of a gate's activation, with 3 integer bits. */
static int32_t sum_gate(const struct np_call *call, const struct qlstm16 *lstm, uint32_t gate,
                        size_t b, size_t u) {
  const int32_t *bias = np_in(call, BIASES + gate)->data;
  const struct operands operands = {
      .recurrent_weights = row_of(call, RECURRENT_WEIGHTS + gate, u, lstm->units),
      .input_weights = row_of(call, INPUT_WEIGHTS + gate, u, lstm->inputs),
      .input = row_of(call, INPUT, b, lstm->inputs),
      .state = row_of(call, STATE_IN, b, lstm->units),
  };
  const int32_t sum = np_saturate(bias[u] + product(lstm, &operands));
  return np_limit(np_scale(sum, lstm->to_fixed), INT16_MIN, INT16_MAX);
}

/* Returns the product of fixed-point numbers of 16 bits; the integer bits add up. */
static int32_t times(int32_t a, int32_t b) {
  const int32_t exact = a * b;
  const int32_t nudge = exact >= 0 ? 1 << 14 : 1 - (1 << 14);
  return np_limit((exact + nudge) / (1 << 15), INT16_MIN, INT16_MAX);
}

static void run_unit(const struct np_call *call, const struct qlstm16 *lstm, size_t b, size_t u) {
  const struct np_fixed format = {16, 3};
  const size_t place = b * lstm->units + u;
  const int32_t in = np_fixed_logistic(format, sum_gate(call, lstm, NP_GATE_INPUT, b, u));
  const int32_t forget = np_fixed_logistic(format, sum_gate(call, lstm, NP_GATE_FORGET, b, u));
  const int32_t value = np_fixed_tanh(format, sum_gate(call, lstm, NP_GATE_CELL, b, u));
  const int32_t out = np_fixed_logistic(format, sum_gate(call, lstm, NP_GATE_OUTPUT, b, u));
  const int32_t before =
      np_q16_read(NP_TYPE_TENSOR_QUANT16_SYMM, np_in(call, CELL_IN)->data, place);
  const int32_t kept = times(forget, before);
  const int32_t added = np_rounding_shift(times(in, value), 4);
  const int32_t cell = np_limit(kept + added, INT16_MIN, INT16_MAX);
  np_q16_write(np_out(call, CELL_OUT)->room, place, cell);
  const int32_t cell_of_3_bits = np_limit(2 * cell, INT16_MIN, INT16_MAX);
  const int32_t hidden = times(out, np_fixed_tanh(format, cell_of_3_bits));
  const int32_t q = np_limit(np_rounding_shift(hidden, 8), INT8_MIN, INT8_MAX);
  np_q_write(NP_TYPE_TENSOR_QUANT8_ASYMM, np_out(call, OUTPUT)->room, place, VALUE_ZERO_POINT + q);
}

static enum np_status run(const struct np_call *call) {
  struct qlstm16 lstm = {0};
  NP_TRY(read_sizes(call, &lstm));
  lstm.weights_zero_point = np_in_operand(call, INPUT_WEIGHTS)->zero_point;
  lstm.to_fixed = np_multiplier_of(4096.0 * (double)np_in_operand(call, BIASES)->scale);
  for (size_t b = 0; b < lstm.batch; b++) {
    for (size_t u = 0; u < lstm.units; u++) {
      run_unit(call, &lstm, b, u);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_QUANTIZED_16BIT_LSTM = {
    .types = NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM), .infer = infer, .run = run};
