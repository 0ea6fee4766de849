/* UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM. */
#include <string.h>

#include "kernels/np_lstm.h"

/* One direction: an LSTM, its inputs and its outputs. */
struct direction {
  struct np_lstm lstm;
  struct np_sequence sequence;
  const float *input;
  const float *auxiliary; /* NULL for none */
  const float *state_in;
  const float *cell_in;
  float *state; /* [batch, outputs] */
  float *cell;  /* [batch, units] */
  float *gates; /* working memory */
  float *output;
  size_t output_width;  /* width of a row of `output`: more than `outputs` if outputs are merged */
  size_t output_column; /* start of this direction's values in a row */
  int backward;
};

static void run_direction(const struct direction *one) {
  const struct np_lstm *lstm = &one->lstm;
  const struct np_sequence *sequence = &one->sequence;
  if (sequence->batch == 0) {
    return;
  }
  memcpy(one->state, one->state_in, sequence->batch * lstm->outputs * sizeof(float));
  memcpy(one->cell, one->cell_in, sequence->batch * lstm->units * sizeof(float));
  for (size_t i = 0; i < sequence->steps; i++) {
    const size_t t = one->backward ? sequence->steps - 1 - i : i;
    const struct np_rows input = {
        .data = one->input + t * np_time_stride(sequence, lstm->inputs),
        .stride = np_batch_stride(sequence, lstm->inputs),
    };
    struct np_rows auxiliary = {0};
    if (one->auxiliary != NULL) {
      auxiliary.data = one->auxiliary + t * np_time_stride(sequence, lstm->auxiliary_inputs);
      auxiliary.stride = np_batch_stride(sequence, lstm->auxiliary_inputs);
    }
    const struct np_rows_out output = {
        .data = one->output + t * np_time_stride(sequence, one->output_width) + one->output_column,
        .stride = np_batch_stride(sequence, one->output_width),
    };
    np_lstm_step(lstm, sequence->batch, input, auxiliary, one->state, one->cell, one->gates,
                 output);
  }
}

/* Returns the floats of working memory that a direction needs, including its states. */
static size_t direction_floats(const struct direction *one) {
  const size_t batch = one->sequence.batch;
  const size_t states = np_add_saturated(np_mul_saturated(batch, one->lstm.outputs),
                                         np_mul_saturated(batch, one->lstm.units));
  return np_add_saturated(np_lstm_gate_floats(&one->lstm, batch), states);
}

/* Gives a direction its working memory; returns the start of the rest. */
static float *assign_memory(struct direction *one, float *memory) {
  const size_t batch = one->sequence.batch;
  one->gates = memory;
  one->state = one->gates + np_lstm_gate_floats(&one->lstm, batch);
  one->cell = one->state + batch * one->lstm.outputs;
  return one->cell + batch * one->lstm.units;
}

/* Puts states that are outputs (from output `first` on) into those. */
static void assign_states(const struct np_call *call, struct direction *one, uint32_t first) {
  one->state = np_out(call, first)->room;
  one->cell = np_out(call, first + 1)->room;
}

static enum np_status read_weights(const struct np_call *call,
                                   const struct np_lstm_arguments *arguments,
                                   struct direction *one) {
  NP_TRY(np_lstm_read_scalars(call, arguments, &one->lstm));
  np_lstm_read_weights(call, arguments, &one->lstm);
  one->input = np_floats(call, arguments->input);
  one->auxiliary = np_floats(call, arguments->auxiliary);
  one->state_in = np_floats(call, arguments->state);
  one->cell_in = np_floats(call, arguments->cell);
  return NP_OK;
}

static enum np_status set_states(const struct np_call *call, uint32_t first,
                                 const struct direction *one) {
  NP_TRY(np_set_matrix(call, first, one->sequence.batch, one->lstm.outputs));
  return np_set_matrix(call, first + 1, one->sequence.batch, one->lstm.units);
}

/* ---- UNIDIRECTIONAL_SEQUENCE_LSTM ----------------------------------------------------------- */

static const struct np_lstm_arguments ONE_WAY = {.input = 0,
                                                 .auxiliary = UINT32_MAX,
                                                 .auxiliary_weights = UINT32_MAX,
                                                 .weights = 1,
                                                 .norm = 24,
                                                 .state = 18,
                                                 .cell = 19,
                                                 .scalars = 20};
enum { ONE_WAY_TIME_MAJOR = 23 };

static enum np_status read_one_way(const struct np_call *call, struct direction *one) {
  int time_major;
  size_t width;
  NP_TRY(np_read_bool(call, ONE_WAY_TIME_MAJOR, &time_major));
  NP_TRY(np_read_sequence(call, ONE_WAY.input, time_major, &one->sequence, &width));
  return np_lstm_read_sizes(call, &ONE_WAY, one->sequence.batch, width, 0, &one->lstm);
}

static enum np_status find_shapes_one_way(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_one_way(call, &one));
  const uint32_t n_outputs = call->operation->n_outputs;
  if (n_outputs != 1 && n_outputs != 3) {
    return np_fail(call, NP_BAD_MODEL, "%u outputs, wanted 1, or 3 with the states", n_outputs);
  }
  if (n_outputs == 3) {
    NP_TRY(set_states(call, 1, &one));
  }
  return np_set_sequence(call, 0, &one.sequence, one.lstm.outputs);
}

static enum np_status infer_one_way(const struct np_call *call) {
  return np_allow_omitted(call, find_shapes_one_way(call));
}

static size_t scratch_one_way(const struct np_call *call) {
  struct direction one = {0};
  if (read_one_way(call, &one) != NP_OK) {
    return 0;
  }
  return np_mul_saturated(direction_floats(&one), sizeof(float));
}

static enum np_status run_one_way(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_one_way(call, &one));
  NP_TRY(read_weights(call, &ONE_WAY, &one));
  (void)assign_memory(&one, call->scratch);
  if (call->operation->n_outputs == 3) {
    assign_states(call, &one, 1);
  }
  one.output = np_out(call, 0)->room;
  one.output_width = one.lstm.outputs;
  run_direction(&one);
  return NP_OK;
}

const struct np_kernel np_kernel_UNIDIRECTIONAL_SEQUENCE_LSTM = {
    .types = NP_FLOATS, .infer = infer_one_way, .scratch = scratch_one_way, .run = run_one_way};

/* ---- BIDIRECTIONAL_SEQUENCE_LSTM ------------------------------------------------------------ */

enum { INPUT = 0, AUXILIARY_INPUT = 39, MERGE = 51, TIME_MAJOR = 52 };

static const struct np_lstm_arguments FORWARD = {.input = INPUT,
                                                 .auxiliary = AUXILIARY_INPUT,
                                                 .auxiliary_weights = 40,
                                                 .weights = 1,
                                                 .norm = 53,
                                                 .state = 35,
                                                 .cell = 36,
                                                 .scalars = 48};
static const struct np_lstm_arguments BACKWARD = {.input = INPUT,
                                                  .auxiliary = AUXILIARY_INPUT,
                                                  .auxiliary_weights = 44,
                                                  .weights = 18,
                                                  .norm = 57,
                                                  .state = 37,
                                                  .cell = 38,
                                                  .scalars = 48};

/* Both directions and how they are linked: without auxiliary weights, an auxiliary input is the
 * backward one's only input (parallel linking); with them, both read both (cross-linking). */
struct two_ways {
  struct direction forward;
  struct direction backward;
  struct np_lstm_arguments arguments[2];
  int merges;
  uint32_t states; /* the first output of the four states, 0 for none */
};

static enum np_status link_inputs(const struct np_call *call, struct two_ways *two, int crossed) {
  two->arguments[0] = FORWARD;
  two->arguments[1] = BACKWARD;
  const int has_input = np_has(call, AUXILIARY_INPUT);
  if (np_has(call, BACKWARD.auxiliary_weights + 1) != crossed || (crossed && !has_input)) {
    return np_fail(call, NP_BAD_MODEL,
                   "auxiliary weights (inputs 40 to 47) are wanted for both directions and with an "
                   "auxiliary input (input 39), or not at all");
  }
  if (!crossed) {
    two->arguments[0].auxiliary = UINT32_MAX;
    two->arguments[1].auxiliary = UINT32_MAX;
    two->arguments[1].input = has_input ? AUXILIARY_INPUT : INPUT;
  }
  return NP_OK;
}

static enum np_status read_two_sizes(const struct np_call *call, struct two_ways *two) {
  int time_major;
  size_t width;
  size_t auxiliary_width = 0;
  NP_TRY(np_read_bool(call, TIME_MAJOR, &time_major));
  NP_TRY(np_read_sequence(call, INPUT, time_major, &two->forward.sequence, &width));
  two->backward.sequence = two->forward.sequence;
  two->backward.backward = 1;
  const int crossed = np_has(call, FORWARD.auxiliary_weights + 1);
  NP_TRY(link_inputs(call, two, crossed));
  if (np_has(call, AUXILIARY_INPUT)) {
    struct np_sequence auxiliary;
    NP_TRY(np_read_sequence(call, AUXILIARY_INPUT, time_major, &auxiliary, &auxiliary_width));
    if (auxiliary.steps != two->forward.sequence.steps ||
        auxiliary.batch != two->forward.sequence.batch || auxiliary_width == 0) {
      return np_fail(call, NP_BAD_MODEL,
                     "the auxiliary input (input 39) has %zu steps of %zu rows of %zu, wanted %zu "
                     "of %zu of 1 or more",
                     auxiliary.steps, auxiliary.batch, auxiliary_width, two->forward.sequence.steps,
                     two->forward.sequence.batch);
    }
  }
  const size_t backward_width = two->arguments[1].input == INPUT ? width : auxiliary_width;
  const size_t extra_width = crossed ? auxiliary_width : 0;
  const size_t batch = two->forward.sequence.batch;
  NP_TRY(np_lstm_read_sizes(call, &FORWARD, batch, width, extra_width, &two->forward.lstm));
  return np_lstm_read_sizes(call, &BACKWARD, batch, backward_width, extra_width,
                            &two->backward.lstm);
}

static enum np_status read_two_ways(const struct np_call *call, struct two_ways *two) {
  NP_TRY(np_read_bool(call, MERGE, &two->merges));
  NP_TRY(read_two_sizes(call, two));
  const uint32_t plain = two->merges ? 1 : 2;
  const uint32_t n_outputs = call->operation->n_outputs;
  if (n_outputs != plain && n_outputs != plain + 4) {
    return np_fail(call, NP_BAD_MODEL, "%u outputs, wanted %u, or %u with the states", n_outputs,
                   plain, plain + 4);
  }
  two->states = n_outputs == plain ? 0 : plain;
  return NP_OK;
}

static enum np_status find_shapes_two_ways(const struct np_call *call) {
  struct two_ways two = {0};
  NP_TRY(read_two_ways(call, &two));
  const struct np_sequence *sequence = &two.forward.sequence;
  const size_t forward = two.forward.lstm.outputs;
  const size_t backward = two.backward.lstm.outputs;
  if (two.states != 0) {
    NP_TRY(set_states(call, two.states, &two.forward));
    NP_TRY(set_states(call, two.states + 2, &two.backward));
  }
  if (two.merges) {
    return np_set_sequence(call, 0, sequence, np_add_saturated(forward, backward));
  }
  NP_TRY(np_set_sequence(call, 0, sequence, forward));
  return np_set_sequence(call, 1, sequence, backward);
}

static enum np_status infer_two_ways(const struct np_call *call) {
  return np_allow_omitted(call, find_shapes_two_ways(call));
}

static size_t scratch_two_ways(const struct np_call *call) {
  struct two_ways two = {0};
  if (read_two_ways(call, &two) != NP_OK) {
    return 0;
  }
  return np_mul_saturated(
      np_add_saturated(direction_floats(&two.forward), direction_floats(&two.backward)),
      sizeof(float));
}

static enum np_status run_two_ways(const struct np_call *call) {
  struct two_ways two = {0};
  NP_TRY(read_two_ways(call, &two));
  NP_TRY(read_weights(call, &two.arguments[0], &two.forward));
  NP_TRY(read_weights(call, &two.arguments[1], &two.backward));
  (void)assign_memory(&two.backward, assign_memory(&two.forward, call->scratch));
  if (two.states != 0) {
    assign_states(call, &two.forward, two.states);
    assign_states(call, &two.backward, two.states + 2);
  }
  two.forward.output = np_out(call, 0)->room;
  two.forward.output_width = two.forward.lstm.outputs;
  two.backward.output_width = two.backward.lstm.outputs;
  if (two.merges) {
    two.forward.output_width += two.backward.lstm.outputs;
    two.backward.output_width = two.forward.output_width;
    two.backward.output = two.forward.output;
    two.backward.output_column = two.forward.lstm.outputs;
  } else {
    two.backward.output = np_out(call, 1)->room;
  }
  run_direction(&two.forward);
  run_direction(&two.backward);
  return NP_OK;
}

const struct np_kernel np_kernel_BIDIRECTIONAL_SEQUENCE_LSTM = {
    .types = NP_FLOATS, .infer = infer_two_ways, .scratch = scratch_two_ways, .run = run_two_ways};
