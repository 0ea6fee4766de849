/* The integer arithmetic of QUANTIZED_LSTM. */
#include <string.h>

#include "kernels/host_only/np_quantized_lstm.h"

static int16_t limit16(int64_t value) {
  return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static int8_t limit8(int64_t value) {
  return (int8_t)(value < INT8_MIN ? INT8_MIN : value > INT8_MAX ? INT8_MAX : value);
}

/* Returns the sum of weights[i] * (values[i] - zero_point). */
static int64_t product(const int8_t *weights, const int8_t *values, int32_t zero_point, size_t n) {
  int64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    sum += weights[i] * ((int64_t)values[i] - zero_point);
  }
  return sum;
}

/* Returns 1 / sqrt(x) by Newton's method, like the reference for layer normalisation and
 * L2_NORMALIZATION (GetInvSqrtQuantizedMultiplierExp). The numbers have 3 integer bits. */
static struct np_multiplier inverse_sqrt(int32_t x) {
  if (x <= 1) {
    return (struct np_multiplier){INT32_MAX, 0};
  }
  int shift = 11;
  while (x >= 1 << 29) {
    x /= 4;
    shift++;
  }
  while (x < 1 << 27) {
    x *= 4;
    shift--;
  }
  const int32_t half = np_rounding_shift(x >> 1, 1);
  const int32_t three_halves = (1 << 28) + (1 << 27);
  int32_t root = 1 << 28;
  for (int step = 0; step < 5; step++) {
    const int32_t square = np_doubling_high(root, root);
    const int32_t cube = np_saturating_left(np_doubling_high(square, root), 6);
    const int64_t next =
        (int64_t)np_doubling_high(three_halves, root) - np_doubling_high(half, cube);
    root = np_saturating_left(np_saturate(next), 3);
  }
  const int32_t half_sqrt_2 = 1518500250; /* no integer bits */
  root = np_doubling_high(root, half_sqrt_2);
  if (shift < 0) {
    return (struct np_multiplier){np_saturating_left(root, -shift), 0};
  }
  return (struct np_multiplier){root, -shift};
}

/* Normalises one gate's sums; mean and deviation have 10 more bits than the sums. */
static void normalise(const struct np_qlstm_gate *gate, size_t n, int16_t *sums) {
  int64_t sum = 0;
  int64_t squares = 0;
  for (size_t i = 0; i < n; i++) {
    sum += sums[i];
    squares += (int64_t)sums[i] * sums[i];
  }
  const int64_t one = (int64_t)1 << 20;
  const int64_t mean = sum * 1024 / (int64_t)n;
  const int64_t variance = (squares * (one / (int64_t)n) - mean * mean) / one;
  const struct np_multiplier factor = inverse_sqrt(np_saturate(variance));
  /* Activations need 12 bits after the point; a shift beyond 31 saturates anyway. */
  const struct np_multiplier to_fixed = {gate->norm_scale.significand,
                                         (int)np_limit(gate->norm_scale.shift + 12, -31, 31)};
  for (size_t i = 0; i < n; i++) {
    const int32_t difference = (int32_t)((int64_t)sums[i] * 1024 - mean);
    const int64_t scaled = (int64_t)np_scale(difference, factor) * gate->norm[i] + gate->bias[i];
    const int64_t rounded = (scaled > 0 ? scaled + 512 : scaled - 512) / 1024;
    sums[i] = limit16(np_scale(np_saturate(rounded), to_fixed));
  }
}

/* Returns the hyperbolic tangent for any format: np_fixed_tanh, which supports up to 4 integer
 * bits, and -1 or 1 if exp(-2 |a|) is negligible. */
static int32_t wide_tanh(int integer_bits, int32_t a) {
  const int fraction_bits = 14 - integer_bits; /* for 2 |a| */
  const int32_t magnitude = a < 0 ? -a : a;
  if (integer_bits > 4 && magnitude > 32 << fraction_bits) {
    const int32_t one = np_fixed_tanh_of_exp(16, 0);
    return a < 0 ? -one : one;
  }
  return np_fixed_tanh((struct np_fixed){16, integer_bits}, a);
}

/* Computes a gate: sums of input and state, a peephole into the cell, normalisation, activation. */
static void run_gate(const struct np_qlstm *lstm, enum np_gate index, const int8_t *input,
                     const int8_t *state, const int16_t *cell, int16_t *sums) {
  const struct np_qlstm_gate *gate = &lstm->gates[index];
  const struct np_fixed format = {16, NP_QLSTM_INTEGER_BITS};
  for (size_t u = 0; u < lstm->units; u++) {
    /* Without normalisation the bias has the scale of the input's products. */
    const int64_t bias = gate->norm == NULL ? gate->bias[u] : 0;
    const int64_t of_input =
        bias + product(gate->input + u * lstm->inputs, input, lstm->input_zero_point, lstm->inputs);
    const int64_t of_state =
        product(gate->recurrent + u * lstm->outputs, state, lstm->state_zero_point, lstm->outputs);
    int64_t sum = limit16(np_scale(np_saturate(of_input), gate->input_scale));
    sum = limit16(sum + np_scale(np_saturate(of_state), gate->recurrent_scale));
    if (gate->peephole != NULL) {
      sum = limit16(sum + np_scale(gate->peephole[u] * cell[u], gate->peephole_scale));
    }
    sums[u] = (int16_t)sum;
  }
  if (gate->norm != NULL) {
    normalise(gate, lstm->units, sums);
  }
  for (size_t u = 0; u < lstm->units; u++) {
    sums[u] = (int16_t)(index == NP_GATE_CELL ? np_fixed_tanh(format, sums[u])
                                              : np_fixed_logistic(format, sums[u]));
  }
}

static void update_cell(const struct np_qlstm *lstm, const int16_t *cell_in, const int16_t *gates,
                        int16_t *cell) {
  const int16_t *in = gates + NP_GATE_INPUT * lstm->units;
  const int16_t *forget = gates + NP_GATE_FORGET * lstm->units;
  const int16_t *value = gates + NP_GATE_CELL * lstm->units;
  for (size_t u = 0; u < lstm->units; u++) {
    const int32_t through =
        lstm->gates[NP_GATE_INPUT].input == NULL ? INT16_MAX - forget[u] : in[u];
    const int32_t kept = np_rounding_shift(forget[u] * cell_in[u], 15);
    const int32_t added = np_rounding_shift(through * value[u], 15 + lstm->cell_integer_bits);
    cell[u] = limit16(kept + added);
    if (lstm->cell_clip > 0) {
      cell[u] = (int16_t)np_limit(cell[u], -lstm->cell_clip, lstm->cell_clip);
    }
  }
}

static void project(const struct np_qlstm *lstm, const int8_t *hidden, int8_t *state) {
  for (size_t o = 0; o < lstm->outputs; o++) {
    const int64_t bias = lstm->projection_bias == NULL ? 0 : lstm->projection_bias[o];
    /* The hidden state was computed without its zero point, with the reference's sign. */
    const int64_t sum = bias + product(lstm->projection + o * lstm->units, hidden,
                                       -lstm->hidden_zero_point, lstm->units);
    state[o] = limit8((int64_t)np_scale(np_saturate(sum), lstm->projection_scale) +
                      lstm->state_zero_point);
    if (lstm->projection_clip > 0) {
      state[o] = (int8_t)np_limit(state[o], -lstm->projection_clip, lstm->projection_clip);
    }
  }
}

void np_qlstm_step(const struct np_qlstm *lstm, const int8_t *input, const int8_t *state_in,
                   const int16_t *cell_in, int16_t *cell, int8_t *state, int16_t *gates,
                   int8_t *hidden) {
  for (enum np_gate g = NP_GATE_INPUT; g < NP_GATE_OUTPUT; g++) {
    if (lstm->gates[g].input != NULL) {
      run_gate(lstm, g, input, state_in, cell_in, gates + g * lstm->units);
    }
  }
  update_cell(lstm, cell_in, gates, cell);
  int16_t *out = gates + NP_GATE_OUTPUT * lstm->units;
  run_gate(lstm, NP_GATE_OUTPUT, input, state_in, cell, out);
  for (size_t u = 0; u < lstm->units; u++) {
    const int32_t exact = out[u] * wide_tanh(lstm->cell_integer_bits, cell[u]);
    hidden[u] = limit8((int64_t)np_scale(exact, lstm->hidden_scale) - lstm->hidden_zero_point);
  }
  if (lstm->projection == NULL) {
    memcpy(state, hidden, lstm->outputs);
  } else {
    project(lstm, hidden, state);
  }
}
