/* The arithmetic of the recurrent operations on floats. */
#include <math.h>
#include <string.h>

#include "kernels/np_lstm.h"

float np_activate(int32_t activation, float value) {
  switch (activation) {
  case ANEURALNETWORKS_FUSED_RELU:
    return value < 0.0f ? 0.0f : value;
  case ANEURALNETWORKS_FUSED_RELU1:
    return value < -1.0f ? -1.0f : value > 1.0f ? 1.0f : value;
  case ANEURALNETWORKS_FUSED_RELU6:
    return value < 0.0f ? 0.0f : value > 6.0f ? 6.0f : value;
  case NP_ACTIVATION_TANH:
    return tanhf(value);
  case NP_ACTIVATION_SIGMOID:
    return 1.0f / (1.0f + expf(-value));
  default:
    return value;
  }
}

enum { LANES = 8 }; /* partial sums: a compiler may vectorise them without changing results */

float np_dot(const float *a, const float *b, size_t n) {
  float sums[LANES] = {0.0f};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (size_t lane = 0; lane < LANES; lane++) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < n; i++) {
    sums[i % LANES] += a[i] * b[i];
  }
  float sum = 0.0f;
  for (size_t lane = 0; lane < LANES; lane++) {
    sum += sums[lane];
  }
  return sum;
}

void np_add_product(const float *weights, const float *vector, size_t rows, size_t columns,
                    float *out) {
  for (size_t row = 0; row < rows; row++) {
    out[row] += np_dot(weights + row * columns, vector, columns);
  }
}

static void clip(float *values, size_t n, float limit) {
  if (limit > 0.0f) {
    np_clamp(values, n, -limit, limit);
  }
}

/* Normalises to mean 0 and standard deviation 1. A vector of equal values becomes zeros. */
static void normalise(float *values, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; i++) {
    sum += (double)values[i];
  }
  const double mean = sum / (double)n;
  double squares = 0.0;
  for (size_t i = 0; i < n; i++) {
    const double difference = (double)values[i] - mean;
    squares += difference * difference;
  }
  const double variance = squares / (double)n;
  const double smallest = 1e-8; /* the reference's value if there is no variance */
  const double factor = 1.0 / sqrt(variance == 0.0 ? smallest : variance);
  for (size_t i = 0; i < n; i++) {
    values[i] = (float)(((double)values[i] - mean) * factor);
  }
}

/* Computes the sums of a gate before its peephole, with the bias unless that comes after a
 * normalisation. */
static void sum_gate(const struct np_lstm *lstm, const struct np_lstm_gate *gate,
                     const float *input, const float *auxiliary, const float *state, float *sums) {
  if (gate->norm == NULL) {
    memcpy(sums, gate->bias, lstm->units * sizeof *sums);
  } else {
    memset(sums, 0, lstm->units * sizeof *sums);
  }
  np_add_product(gate->input, input, lstm->units, lstm->inputs, sums);
  if (auxiliary != NULL && gate->auxiliary != NULL) {
    np_add_product(gate->auxiliary, auxiliary, lstm->units, lstm->auxiliary_inputs, sums);
  }
  np_add_product(gate->recurrent, state, lstm->units, lstm->outputs, sums);
}

/* Applies peephole, normalisation and activation to a gate's sums. */
static void finish_gate(const struct np_lstm *lstm, const struct np_lstm_gate *gate,
                        const float *cell, int32_t activation, float *sums) {
  if (gate->peephole != NULL) {
    for (size_t u = 0; u < lstm->units; u++) {
      sums[u] += gate->peephole[u] * cell[u];
    }
  }
  if (gate->norm != NULL) {
    normalise(sums, lstm->units);
    for (size_t u = 0; u < lstm->units; u++) {
      sums[u] = sums[u] * gate->norm[u] + gate->bias[u];
    }
  }
  for (size_t u = 0; u < lstm->units; u++) {
    sums[u] = np_activate(activation, sums[u]);
  }
}

/* The gates of one row of the batch. */
struct gate_rows {
  float *of[NP_GATES];
};

static void update_cell(const struct np_lstm *lstm, const struct gate_rows *rows, float *cell) {
  float *forget = rows->of[NP_GATE_FORGET];
  const float *value = rows->of[NP_GATE_CELL];
  for (size_t u = 0; u < lstm->units; u++) {
    const float kept = forget[u] * cell[u];
    if (np_lstm_has_input_gate(lstm)) {
      cell[u] = kept + value[u] * rows->of[NP_GATE_INPUT][u];
    } else {
      forget[u] = 1.0f - forget[u];
      cell[u] = kept + value[u] * forget[u];
    }
  }
  clip(cell, lstm->units, lstm->cell_clip);
}

static void project(const struct np_lstm *lstm, const float *hidden, float *out) {
  const size_t bytes = lstm->outputs * sizeof *out;
  if (lstm->projection == NULL) {
    memcpy(out, hidden, bytes);
    return;
  }
  if (lstm->projection_bias == NULL) {
    memset(out, 0, bytes);
  } else {
    memcpy(out, lstm->projection_bias, bytes);
  }
  np_add_product(lstm->projection, hidden, lstm->outputs, lstm->units, out);
  clip(out, lstm->outputs, lstm->projection_clip);
}

/* Computes a step for one row of the batch. */
static void step_row(const struct np_lstm *lstm, const float *input, const float *auxiliary,
                     float *state, float *cell, const struct gate_rows *rows) {
  for (size_t g = 0; g < NP_GATES; g++) {
    if (lstm->gates[g].input != NULL) {
      sum_gate(lstm, &lstm->gates[g], input, auxiliary, state, rows->of[g]);
      if (g != NP_GATE_OUTPUT) {
        finish_gate(lstm, &lstm->gates[g], cell,
                    g == NP_GATE_CELL ? lstm->activation : NP_ACTIVATION_SIGMOID, rows->of[g]);
      }
    }
  }
  update_cell(lstm, rows, cell);
  float *out = rows->of[NP_GATE_OUTPUT];
  finish_gate(lstm, &lstm->gates[NP_GATE_OUTPUT], cell, NP_ACTIVATION_SIGMOID, out);
  for (size_t u = 0; u < lstm->units; u++) {
    const float value = np_activate(lstm->activation, cell[u]);
    rows->of[NP_GATE_CELL][u] = value;
    out[u] *= value;
  }
  project(lstm, out, state);
}

void np_lstm_step(const struct np_lstm *lstm, size_t batch, struct np_rows input,
                  struct np_rows auxiliary, float *state, float *cell, float *gates,
                  struct np_rows_out output) {
  /* The reference's order: input (if any), cell, forget, output gate of all rows. */
  const size_t first = np_lstm_has_input_gate(lstm) ? 1 : 0;
  const size_t block = batch * lstm->units;
  for (size_t b = 0; b < batch; b++) {
    float *start = gates + b * lstm->units;
    const struct gate_rows rows = {.of = {[NP_GATE_INPUT] = start,
                                          [NP_GATE_CELL] = start + first * block,
                                          [NP_GATE_FORGET] = start + (first + 1) * block,
                                          [NP_GATE_OUTPUT] = start + (first + 2) * block}};
    float *row_state = state + b * lstm->outputs;
    step_row(lstm, input.data + b * input.stride,
             auxiliary.data == NULL ? NULL : auxiliary.data + b * auxiliary.stride, row_state,
             cell + b * lstm->units, &rows);
    memcpy(output.data + b * output.stride, row_state, lstm->outputs * sizeof *row_state);
  }
}
