/* One step of QUANTIZED_LSTM on one row of a batch, in integers, bit-identical to Android's
 * reference and TensorFlow Lite. */
#ifndef NP_QUANTIZED_LSTM_H
#define NP_QUANTIZED_LSTM_H

#include "kernels/np_lstm.h"
#include "kernels/np_quant.h"

/* Arguments of activations have 16 bits, 3 of them before the point; results have none. */
enum { NP_QLSTM_INTEGER_BITS = 3 };

struct np_qlstm_gate {
  const int8_t *input;     /* [units, inputs]; NULL in the input gate: there is no input gate */
  const int8_t *recurrent; /* [units, outputs] */
  const int16_t *peephole; /* [units], or NULL */
  const int16_t *norm;     /* [units], or NULL */
  const int32_t *bias;     /* [units] */
  struct np_multiplier input_scale, recurrent_scale, peephole_scale, norm_scale;
};

struct np_qlstm {
  size_t inputs, units, outputs;
  struct np_qlstm_gate gates[NP_GATES];
  int32_t input_zero_point, state_zero_point, hidden_zero_point;
  int cell_integer_bits; /* 0 to 6 */
  int32_t cell_clip;     /* 0 for none */
  struct np_multiplier hidden_scale;
  const int8_t *projection;       /* [outputs, units], or NULL */
  const int32_t *projection_bias; /* [outputs], or NULL */
  struct np_multiplier projection_scale;
  int32_t projection_clip; /* 0 for none */
};

/* Computes a step: input[inputs], state_in[outputs], cell_in[units] -> cell[units], state[outputs].
 * gates [NP_GATES * units] and hidden[units] are working memory. */
void np_qlstm_step(const struct np_qlstm *lstm, const int8_t *input, const int8_t *state_in,
                   const int16_t *cell_in, int16_t *cell, int8_t *state, int16_t *gates,
                   int8_t *hidden);

#endif
