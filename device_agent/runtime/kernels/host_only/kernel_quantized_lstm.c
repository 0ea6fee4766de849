/* QUANTIZED_LSTM: one step of a batch, read here and computed in kernel_quantized_lstm_step.c.
 *
 * Where Android's reference contradicts the documentation, this follows the documentation and
 * TensorFlow Lite: biases also count without layer normalisation; peepholes into the old cell state
 * read that, not the new one; the clip of projected values is in the unit of the output. */
#include <math.h>
#include <string.h>

#include "kernels/host_only/np_quantized_lstm.h"

enum {
  RECURRENT = 5,
  PEEPHOLES = 9,
  BIASES = 12,
  PROJECTION = 16,
  PROJECTION_BIAS = 17,
  CELL_CLIP = 24,
  PROJECTION_CLIP = 25,
  INTERMEDIATE_SCALES = 26,
  HIDDEN_ZERO_POINT = 30,
  HIDDEN_SCALE = 31,
};
enum { STATE_OUT, CELL_OUT, OUTPUT };

static const struct np_lstm_arguments ARGUMENTS = {.input = 0,
                                                   .auxiliary = UINT32_MAX,
                                                   .auxiliary_weights = UINT32_MAX,
                                                   .weights = 1,
                                                   .norm = 20,
                                                   .state = 18,
                                                   .cell = 19,
                                                   .scalars = UINT32_MAX};

static float scale_of(const struct np_call *call, uint32_t input) {
  return np_in_operand(call, input)->scale;
}

static const void *values_of(const struct np_call *call, uint32_t input) {
  return np_has(call, input) ? np_in(call, input)->data : NULL;
}

static enum np_status read_sizes(const struct np_call *call, size_t *batch, struct np_lstm *sizes) {
  size_t inputs;
  NP_TRY(np_read_matrix(call, ARGUMENTS.input, batch, &inputs));
  if (!np_has(call, ARGUMENTS.state) || !np_has(call, ARGUMENTS.cell)) {
    return np_fail(call, NP_BAD_MODEL, "a state (input %u or %u) is left out", ARGUMENTS.state,
                   ARGUMENTS.cell);
  }
  return np_lstm_read_sizes(call, &ARGUMENTS, *batch, inputs, 0, sizes);
}

/* The cell state's scale is 2^(integer bits - 15). */
static enum np_status read_cell_format(const struct np_call *call, int *integer_bits) {
  const struct np_operand *cell = np_in_operand(call, ARGUMENTS.cell);
  const float power = log2f(cell->scale);
  const float whole = roundf(power);
  if (!(fabsf(power - whole) < 1e-3f) || whole < -15.0f || whole > -9.0f) {
    return np_fail(
        call, NP_BAD_MODEL,
        "cell_state_in (input %u) has scale %g, wanted a power of two from 2^-15 to 2^-9",
        ARGUMENTS.cell, (double)cell->scale);
  }
  *integer_bits = 15 + (int)whole;
  return NP_OK;
}

static enum np_status find_shapes(const struct np_call *call) {
  struct np_lstm sizes = {0};
  size_t batch;
  int integer_bits;
  NP_TRY(read_sizes(call, &batch, &sizes));
  NP_TRY(read_cell_format(call, &integer_bits));
  NP_TRY(np_set_matrix(call, STATE_OUT, batch, sizes.outputs));
  NP_TRY(np_set_matrix(call, CELL_OUT, batch, sizes.units));
  return np_set_matrix(call, OUTPUT, batch, sizes.outputs);
}

static enum np_status infer(const struct np_call *call) {
  return np_allow_omitted(call, find_shapes(call));
}

/* Reads a scale that a scalar gives. */
static enum np_status read_scale(const struct np_call *call, uint32_t input, float *scale) {
  NP_TRY(np_read_f32(call, input, scale));
  if (!(*scale > 0.0f) || isinf(*scale)) {
    return np_fail(call, NP_BAD_MODEL, "the scale of input %u is %g, wanted more than 0", input,
                   (double)*scale);
  }
  return NP_OK;
}

/* Reads a clip as a quantised value, 0 for none. */
static enum np_status read_clip(const struct np_call *call, uint32_t input, float scale,
                                int32_t largest, int32_t *clip) {
  float value = 0.0f;
  if (np_has(call, input)) {
    NP_TRY(np_read_f32(call, input, &value));
  }
  const float quotient = value / scale;
  *clip = !(value > 0.0f) ? 0 : quotient < (float)largest ? (int32_t)quotient : largest;
  return NP_OK;
}

static enum np_status read_gate(const struct np_call *call, uint32_t index, int cell_integer_bits,
                                struct np_qlstm_gate *gate) {
  static const uint32_t PEEPHOLE_OF[NP_GATES] = {PEEPHOLES, PEEPHOLES + 1, UINT32_MAX,
                                                 PEEPHOLES + 2};
  const uint32_t weights = ARGUMENTS.weights + index;
  if (!np_has(call, weights)) {
    return NP_OK;
  }
  const uint32_t recurrent = RECURRENT + index;
  const uint32_t peephole = PEEPHOLE_OF[index];
  const uint32_t norm = ARGUMENTS.norm + index;
  float intermediate;
  NP_TRY(read_scale(call, INTERMEDIATE_SCALES + index, &intermediate));
  gate->input = values_of(call, weights);
  gate->recurrent = values_of(call, recurrent);
  gate->peephole = values_of(call, peephole);
  gate->norm = values_of(call, norm);
  gate->bias = values_of(call, BIASES + index);
  /* Products are rounded to float, as the reference does. */
  const float of_input = scale_of(call, weights) * scale_of(call, ARGUMENTS.input) / intermediate;
  const float of_state = scale_of(call, recurrent) * scale_of(call, ARGUMENTS.state) / intermediate;
  gate->input_scale = np_multiplier_of((double)of_input);
  gate->recurrent_scale = np_multiplier_of((double)of_state);
  if (gate->peephole != NULL) {
    const double of_cell = ldexp((double)scale_of(call, peephole), cell_integer_bits - 15);
    gate->peephole_scale = np_multiplier_of((double)(float)(of_cell / (double)intermediate));
  }
  if (gate->norm != NULL) {
    gate->norm_scale = np_multiplier_of((double)scale_of(call, norm));
  }
  return NP_OK;
}

static enum np_status read_hidden(const struct np_call *call, struct np_qlstm *lstm) {
  float hidden;
  NP_TRY(np_read_i32(call, HIDDEN_ZERO_POINT, &lstm->hidden_zero_point));
  NP_TRY(read_scale(call, HIDDEN_SCALE, &hidden));
  if (lstm->hidden_zero_point < INT8_MIN || lstm->hidden_zero_point > INT8_MAX) {
    return np_fail(call, NP_BAD_MODEL, "the zero point of input %d is %d, wanted -128 to 127",
                   HIDDEN_ZERO_POINT, lstm->hidden_zero_point);
  }
  lstm->hidden_scale = np_multiplier_of((double)(float)(0x1p-15 / (double)hidden * 0x1p-15));
  lstm->projection = values_of(call, PROJECTION);
  lstm->projection_bias = values_of(call, PROJECTION_BIAS);
  if (lstm->projection != NULL) {
    const float scale = scale_of(call, PROJECTION) * hidden / scale_of(call, ARGUMENTS.state);
    lstm->projection_scale = np_multiplier_of((double)scale);
  }
  return NP_OK;
}

static enum np_status read_lstm(const struct np_call *call, size_t *batch, struct np_qlstm *lstm) {
  struct np_lstm sizes = {0};
  NP_TRY(read_sizes(call, batch, &sizes));
  lstm->inputs = sizes.inputs;
  lstm->units = sizes.units;
  lstm->outputs = sizes.outputs;
  lstm->input_zero_point = np_in_operand(call, ARGUMENTS.input)->zero_point;
  lstm->state_zero_point = np_in_operand(call, ARGUMENTS.state)->zero_point;
  NP_TRY(read_cell_format(call, &lstm->cell_integer_bits));
  for (uint32_t g = 0; g < NP_GATES; g++) {
    NP_TRY(read_gate(call, g, lstm->cell_integer_bits, &lstm->gates[g]));
  }
  NP_TRY(read_clip(call, CELL_CLIP, scale_of(call, ARGUMENTS.cell), INT16_MAX, &lstm->cell_clip));
  NP_TRY(read_clip(call, PROJECTION_CLIP, scale_of(call, ARGUMENTS.state), INT8_MAX,
                   &lstm->projection_clip));
  return read_hidden(call, lstm);
}

static size_t gate_bytes(size_t units) {
  return np_mul_saturated(units, NP_GATES * sizeof(int16_t));
}

static size_t scratch(const struct np_call *call) {
  struct np_lstm sizes = {0};
  size_t batch;
  if (read_sizes(call, &batch, &sizes) != NP_OK) {
    return 0;
  }
  return np_add_saturated(gate_bytes(sizes.units), sizes.units);
}

static enum np_status run(const struct np_call *call) {
  struct np_qlstm lstm = {0};
  size_t batch;
  NP_TRY(read_lstm(call, &batch, &lstm));
  int16_t *gates = call->scratch;
  int8_t *hidden = (int8_t *)call->scratch + gate_bytes(lstm.units);
  for (size_t b = 0; b < batch; b++) {
    const int8_t *input = np_in(call, ARGUMENTS.input)->data;
    const int8_t *state_in = np_in(call, ARGUMENTS.state)->data;
    const int16_t *cell_in = np_in(call, ARGUMENTS.cell)->data;
    int16_t *cell = (int16_t *)np_out(call, CELL_OUT)->room + b * lstm.units;
    int8_t *state = (int8_t *)np_out(call, STATE_OUT)->room + b * lstm.outputs;
    np_qlstm_step(&lstm, input + b * lstm.inputs, state_in + b * lstm.outputs,
                  cell_in + b * lstm.units, cell, state, gates, hidden);
    memcpy((int8_t *)np_out(call, OUTPUT)->room + b * lstm.outputs, state, lstm.outputs);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_QUANTIZED_LSTM = {.types =
                                                       NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED),
                                                   .infer = infer,
                                                   .scratch = scratch,
                                                   .run = run};
