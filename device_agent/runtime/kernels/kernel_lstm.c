/* LSTM, one step of a batch; and reading every float LSTM from its operation. */
#include <string.h>

#include "kernels/np_lstm.h"

/* Inputs that follow input_to_input_weights, in every operation. */
enum {
  INPUT_WEIGHTS = 0,     /* four gates */
  RECURRENT_WEIGHTS = 4, /* four gates */
  PEEPHOLES = 8,         /* three: input, forget and output gate */
  BIASES = 11,           /* four gates */
  PROJECTION = 15,
  PROJECTION_BIAS = 16,
};

static const uint32_t ALL_GATES = 0xfu;
static const uint32_t NO_INPUT_GATE = 0xeu; /* bits by enum np_gate */

/* Returns the index of input `first` + `offset`; an index that no operation has if `first` is
 * none. */
static uint32_t after(uint32_t first, uint32_t offset) {
  return first == UINT32_MAX ? UINT32_MAX : first + offset;
}

/* Returns which of n inputs have values, a bit each. */
static uint32_t present(const struct np_call *call, uint32_t first, uint32_t n) {
  uint32_t set = 0;
  for (uint32_t i = 0; i < n; i++) {
    set |= np_has(call, after(first, i)) ? 1u << i : 0u;
  }
  return set;
}

/* Checks that optional inputs that belong together are all present or all omitted. */
static enum np_status check_presence(const struct np_call *call,
                                     const struct np_lstm_arguments *arguments) {
  const uint32_t first = arguments->weights;
  const uint32_t gates = present(call, first + INPUT_WEIGHTS, NP_GATES);
  if (gates != ALL_GATES && gates != NO_INPUT_GATE) {
    return np_fail(call, NP_BAD_MODEL, "inputs %u to %u: only the input gate can be left out",
                   first, first + 3);
  }
  if (present(call, first + RECURRENT_WEIGHTS, NP_GATES) != gates ||
      present(call, first + BIASES, NP_GATES) != gates) {
    return np_fail(call, NP_BAD_MODEL,
                   "recurrent weights and biases (inputs %u and %u on) are not of the gates that "
                   "have weights (inputs %u on)",
                   first + RECURRENT_WEIGHTS, first + BIASES, first);
  }
  const uint32_t peepholes = present(call, first + PEEPHOLES, 3);
  if (peepholes != 0 && peepholes != 7 && (gates == ALL_GATES || peepholes != 6)) {
    return np_fail(call, NP_BAD_MODEL,
                   "peephole weights (inputs %u to %u) are there for some gates only",
                   first + PEEPHOLES, first + PEEPHOLES + 2);
  }
  const uint32_t norms = present(call, arguments->norm, NP_GATES);
  if (norms != 0 && norms != gates) {
    return np_fail(call, NP_BAD_MODEL,
                   "layer normalisation weights (inputs %u to %u) are not of the gates that have "
                   "weights (inputs %u on)",
                   arguments->norm, arguments->norm + 3, first);
  }
  const uint32_t auxiliary = present(call, arguments->auxiliary_weights, NP_GATES);
  if (auxiliary != 0 && auxiliary != gates) {
    return np_fail(call, NP_BAD_MODEL,
                   "auxiliary weights (inputs %u to %u) are not of the gates that have weights "
                   "(inputs %u on)",
                   arguments->auxiliary_weights, arguments->auxiliary_weights + 3, first);
  }
  if (np_has(call, first + PROJECTION_BIAS) && !np_has(call, first + PROJECTION)) {
    return np_fail(call, NP_BAD_MODEL, "a projection bias (input %u) without weights (input %u)",
                   first + PROJECTION_BIAS, first + PROJECTION);
  }
  return NP_OK;
}

static enum np_status check_shapes(const struct np_call *call,
                                   const struct np_lstm_arguments *arguments, size_t batch,
                                   const struct np_lstm *lstm) {
  const uint32_t first = arguments->weights;
  for (uint32_t g = 0; g < NP_GATES; g++) {
    NP_TRY(np_require_matrix(call, first + INPUT_WEIGHTS + g, lstm->units, lstm->inputs));
    NP_TRY(np_require_matrix(call, first + RECURRENT_WEIGHTS + g, lstm->units, lstm->outputs));
    NP_TRY(np_require_vector(call, first + BIASES + g, lstm->units));
    NP_TRY(np_require_vector(call, after(arguments->norm, g), lstm->units));
    NP_TRY(np_require_matrix(call, after(arguments->auxiliary_weights, g), lstm->units,
                             lstm->auxiliary_inputs));
  }
  for (uint32_t i = 0; i < 3; i++) {
    NP_TRY(np_require_vector(call, first + PEEPHOLES + i, lstm->units));
  }
  NP_TRY(np_require_matrix(call, first + PROJECTION, lstm->outputs, lstm->units));
  NP_TRY(np_require_vector(call, first + PROJECTION_BIAS, lstm->outputs));
  NP_TRY(np_require_matrix(call, arguments->state, batch, lstm->outputs));
  return np_require_matrix(call, arguments->cell, batch, lstm->units);
}

enum np_status np_lstm_read_sizes(const struct np_call *call,
                                  const struct np_lstm_arguments *arguments, size_t batch,
                                  size_t inputs, size_t auxiliary_inputs, struct np_lstm *lstm) {
  const uint32_t first = arguments->weights;
  size_t units, columns, rows;
  NP_TRY(check_presence(call, arguments));
  NP_TRY(np_read_matrix(call, first + INPUT_WEIGHTS + NP_GATE_OUTPUT, &units, &columns));
  NP_TRY(np_read_matrix(call, first + RECURRENT_WEIGHTS + NP_GATE_OUTPUT, &rows, &lstm->outputs));
  lstm->units = units;
  lstm->inputs = inputs;
  lstm->auxiliary_inputs = auxiliary_inputs;
  if (units == 0 || inputs == 0 || lstm->outputs == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "%zu units, inputs of %zu and outputs of %zu, wanted at least one of each",
                   units, inputs, lstm->outputs);
  }
  NP_TRY(check_shapes(call, arguments, batch, lstm));
  if (!np_has(call, first + PROJECTION) && lstm->outputs != units) {
    return np_fail(call, NP_BAD_MODEL,
                   "outputs of %zu from %zu units, wanted as many where there is no projection",
                   lstm->outputs, units);
  }
  return NP_OK;
}

static enum np_status read_clip(const struct np_call *call, uint32_t input, float *clip) {
  NP_TRY(np_read_f32(call, input, clip));
  if (!(*clip >= 0.0f)) {
    return np_fail(call, NP_BAD_MODEL, "the clip of input %u is %g, wanted 0 or more", input,
                   (double)*clip);
  }
  return NP_OK;
}

enum np_status np_lstm_read_scalars(const struct np_call *call,
                                    const struct np_lstm_arguments *arguments,
                                    struct np_lstm *lstm) {
  NP_TRY(np_read_activation(call, arguments->scalars, NP_LSTM_ACTIVATIONS, &lstm->activation));
  NP_TRY(read_clip(call, arguments->scalars + 1, &lstm->cell_clip));
  return read_clip(call, arguments->scalars + 2, &lstm->projection_clip);
}

void np_lstm_read_weights(const struct np_call *call, const struct np_lstm_arguments *arguments,
                          struct np_lstm *lstm) {
  const uint32_t first = arguments->weights;
  for (uint32_t g = 0; g < NP_GATES; g++) {
    lstm->gates[g] = (struct np_lstm_gate){
        .input = np_floats(call, first + INPUT_WEIGHTS + g),
        .auxiliary = np_floats(call, after(arguments->auxiliary_weights, g)),
        .recurrent = np_floats(call, first + RECURRENT_WEIGHTS + g),
        .bias = np_floats(call, first + BIASES + g),
        .norm = np_floats(call, after(arguments->norm, g)),
    };
  }
  lstm->gates[NP_GATE_INPUT].peephole = np_floats(call, first + PEEPHOLES);
  lstm->gates[NP_GATE_FORGET].peephole = np_floats(call, first + PEEPHOLES + 1);
  lstm->gates[NP_GATE_OUTPUT].peephole = np_floats(call, first + PEEPHOLES + 2);
  lstm->projection = np_floats(call, first + PROJECTION);
  lstm->projection_bias = np_floats(call, first + PROJECTION_BIAS);
}

/* ---- The operation -------------------------------------------------------------------------- */

enum { SCRATCH_OUT, STATE_OUT, CELL_OUT, OUTPUT };

static const struct np_lstm_arguments ARGUMENTS = {.input = 0,
                                                   .auxiliary = UINT32_MAX,
                                                   .auxiliary_weights = UINT32_MAX,
                                                   .weights = 1,
                                                   .norm = 23,
                                                   .state = 18,
                                                   .cell = 19,
                                                   .scalars = 20};

static enum np_status read_sizes(const struct np_call *call, struct np_lstm *lstm, size_t *batch) {
  size_t inputs;
  NP_TRY(np_read_matrix(call, ARGUMENTS.input, batch, &inputs));
  return np_lstm_read_sizes(call, &ARGUMENTS, *batch, inputs, 0, lstm);
}

static enum np_status find_shapes(const struct np_call *call) {
  struct np_lstm lstm = {0};
  size_t batch;
  NP_TRY(read_sizes(call, &lstm, &batch));
  const size_t gates = np_has(call, ARGUMENTS.weights) ? NP_GATES : NP_GATES - 1;
  NP_TRY(np_set_matrix(call, SCRATCH_OUT, batch, np_mul_saturated(lstm.units, gates)));
  NP_TRY(np_set_matrix(call, STATE_OUT, batch, lstm.outputs));
  NP_TRY(np_set_matrix(call, CELL_OUT, batch, lstm.units));
  return np_set_matrix(call, OUTPUT, batch, lstm.outputs);
}

static enum np_status infer(const struct np_call *call) {
  return np_allow_omitted(call, find_shapes(call));
}

static enum np_status run(const struct np_call *call) {
  struct np_lstm lstm = {0};
  size_t batch;
  NP_TRY(read_sizes(call, &lstm, &batch));
  NP_TRY(np_lstm_read_scalars(call, &ARGUMENTS, &lstm));
  np_lstm_read_weights(call, &ARGUMENTS, &lstm);
  if (batch == 0) {
    return NP_OK;
  }
  float *state = np_out(call, STATE_OUT)->room;
  float *cell = np_out(call, CELL_OUT)->room;
  memcpy(state, np_floats(call, ARGUMENTS.state), batch * lstm.outputs * sizeof *state);
  memcpy(cell, np_floats(call, ARGUMENTS.cell), batch * lstm.units * sizeof *cell);
  np_lstm_step(&lstm, batch,
               (struct np_rows){.data = np_floats(call, ARGUMENTS.input), .stride = lstm.inputs},
               (struct np_rows){0}, state, cell, np_out(call, SCRATCH_OUT)->room,
               (struct np_rows_out){.data = np_out(call, OUTPUT)->room, .stride = lstm.outputs});
  return NP_OK;
}

const struct np_kernel np_kernel_LSTM = {.types = NP_FLOATS, .infer = infer, .run = run};
