/* RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN:
 * h' = act(W x + A a + R h + b), with x the input, a an auxiliary one, h the hidden state. */
#include <string.h>

#include "kernels/np_lstm.h"

/* One direction: its weights, inputs and outputs. */
struct direction {
  struct np_sequence sequence;
  size_t inputs, auxiliary_inputs, units;
  const float *input;
  const float *auxiliary; /* NULL for none */
  const float *weights;
  const float *auxiliary_weights;
  const float *recurrent;
  const float *bias;
  const float *state_in;
  float *state; /* [batch, units] */
  float *next;  /* [units] working memory */
  float *output;
  size_t output_width;  /* width of a row of `output`: more than `units` if outputs are merged */
  size_t output_column; /* start of this direction's values in a row */
  int32_t activation;
  int backward;
};

/* Indices of the inputs of one direction in an operation. UINT32_MAX: it has none. */
struct arguments {
  uint32_t input;
  uint32_t weights; /* recurrent weights, bias and hidden state follow */
  uint32_t auxiliary;
  uint32_t auxiliary_weights;
};

static void step_row(const struct direction *one, size_t t, size_t b) {
  const struct np_sequence *sequence = &one->sequence;
  float *state = one->state + b * one->units;
  float *next = one->next;
  memcpy(next, one->bias, one->units * sizeof *next);
  np_add_product(one->weights,
                 one->input + t * np_time_stride(sequence, one->inputs) +
                     b * np_batch_stride(sequence, one->inputs),
                 one->units, one->inputs, next);
  if (one->auxiliary_weights != NULL) {
    np_add_product(one->auxiliary_weights,
                   one->auxiliary + t * np_time_stride(sequence, one->auxiliary_inputs) +
                       b * np_batch_stride(sequence, one->auxiliary_inputs),
                   one->units, one->auxiliary_inputs, next);
  }
  np_add_product(one->recurrent, state, one->units, one->units, next);
  for (size_t u = 0; u < one->units; u++) {
    state[u] = np_activate(one->activation, next[u]);
  }
  memcpy(one->output + t * np_time_stride(sequence, one->output_width) +
             b * np_batch_stride(sequence, one->output_width) + one->output_column,
         state, one->units * sizeof *state);
}

static void run_direction(const struct direction *one) {
  const struct np_sequence *sequence = &one->sequence;
  if (sequence->batch == 0) {
    return;
  }
  memcpy(one->state, one->state_in, sequence->batch * one->units * sizeof *one->state);
  for (size_t i = 0; i < sequence->steps; i++) {
    for (size_t b = 0; b < sequence->batch; b++) {
      step_row(one, one->backward ? sequence->steps - 1 - i : i, b);
    }
  }
}

/* Reads the sizes of a direction, whose sequence, inputs and auxiliary_inputs are set. */
static enum np_status read_sizes(const struct np_call *call, const struct arguments *arguments,
                                 struct direction *one) {
  size_t columns;
  NP_TRY(np_read_matrix(call, arguments->weights, &one->units, &columns));
  if (one->units == 0 || one->inputs == 0) {
    return np_fail(call, NP_BAD_MODEL, "%zu units and inputs of %zu, wanted at least one of each",
                   one->units, one->inputs);
  }
  NP_TRY(np_require_matrix(call, arguments->weights, one->units, one->inputs));
  NP_TRY(np_require_matrix(call, arguments->weights + 1, one->units, one->units));
  NP_TRY(np_require_vector(call, arguments->weights + 2, one->units));
  NP_TRY(np_require_matrix(call, arguments->weights + 3, one->sequence.batch, one->units));
  for (uint32_t i = 1; i < 4; i++) {
    if (!np_has(call, arguments->weights + i)) {
      return np_fail(call, NP_BAD_MODEL, "input %u is left out", arguments->weights + i);
    }
  }
  return np_require_matrix(call, arguments->auxiliary_weights, one->units, one->auxiliary_inputs);
}

static void read_values(const struct np_call *call, const struct arguments *arguments,
                        struct direction *one) {
  one->input = np_floats(call, arguments->input);
  one->weights = np_floats(call, arguments->weights);
  one->recurrent = np_floats(call, arguments->weights + 1);
  one->bias = np_floats(call, arguments->weights + 2);
  one->state_in = np_floats(call, arguments->weights + 3);
  one->auxiliary = np_floats(call, arguments->auxiliary);
  one->auxiliary_weights = np_floats(call, arguments->auxiliary_weights);
}

/* Returns the floats of working memory that a direction needs. */
static size_t direction_floats(const struct direction *one) {
  return np_add_saturated(np_mul_saturated(one->sequence.batch, one->units), one->units);
}

/* Gives a direction its working memory; returns the start of the rest. */
static float *assign_memory(struct direction *one, float *memory) {
  one->next = memory;
  one->state = one->next + one->units;
  return one->state + one->sequence.batch * one->units;
}

/* ---- RNN ------------------------------------------------------------------------------------ */

static const struct arguments STEP = {
    .input = 0, .weights = 1, .auxiliary = UINT32_MAX, .auxiliary_weights = UINT32_MAX};

/* Reads a direction with a sequence of one step. */
static enum np_status read_step(const struct np_call *call, struct direction *one) {
  one->sequence = (struct np_sequence){.steps = 1, .time_major = 1};
  NP_TRY(np_read_matrix(call, STEP.input, &one->sequence.batch, &one->inputs));
  return read_sizes(call, &STEP, one);
}

static enum np_status infer_step(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_step(call, &one));
  NP_TRY(np_set_matrix(call, 0, one.sequence.batch, one.units));
  return np_set_matrix(call, 1, one.sequence.batch, one.units);
}

static size_t scratch_step(const struct np_call *call) {
  struct direction one = {0};
  return read_step(call, &one) == NP_OK ? np_mul_saturated(direction_floats(&one), sizeof(float))
                                        : 0;
}

static enum np_status run_step(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_step(call, &one));
  NP_TRY(np_read_activation(call, 5, NP_RNN_ACTIVATIONS, &one.activation));
  read_values(call, &STEP, &one);
  (void)assign_memory(&one, call->scratch);
  one.state = np_out(call, 0)->room;
  one.output = np_out(call, 1)->room;
  one.output_width = one.units;
  run_direction(&one);
  return NP_OK;
}

const struct np_kernel np_kernel_RNN = {
    .types = NP_FLOATS, .infer = infer_step, .scratch = scratch_step, .run = run_step};

/* ---- UNIDIRECTIONAL_SEQUENCE_RNN ------------------------------------------------------------ */

static enum np_status read_one_way(const struct np_call *call, struct direction *one) {
  int32_t time_major;
  NP_TRY(np_read_i32(call, 6, &time_major));
  if (time_major != 0 && time_major != 1) {
    return np_fail(call, NP_BAD_MODEL, "time_major (input 6) is %d, wanted 0 or 1", time_major);
  }
  NP_TRY(np_read_sequence(call, STEP.input, time_major, &one->sequence, &one->inputs));
  return read_sizes(call, &STEP, one);
}

static enum np_status infer_one_way(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_one_way(call, &one));
  if (call->operation->n_outputs > 1) {
    NP_TRY(np_set_matrix(call, 1, one.sequence.batch, one.units));
  }
  return np_set_sequence(call, 0, &one.sequence, one.units);
}

static size_t scratch_one_way(const struct np_call *call) {
  struct direction one = {0};
  return read_one_way(call, &one) == NP_OK ? np_mul_saturated(direction_floats(&one), sizeof(float))
                                           : 0;
}

static enum np_status run_one_way(const struct np_call *call) {
  struct direction one = {0};
  NP_TRY(read_one_way(call, &one));
  NP_TRY(np_read_activation(call, 5, NP_RNN_ACTIVATIONS, &one.activation));
  read_values(call, &STEP, &one);
  (void)assign_memory(&one, call->scratch);
  if (call->operation->n_outputs > 1) {
    one.state = np_out(call, 1)->room;
  }
  one.output = np_out(call, 0)->room;
  one.output_width = one.units;
  run_direction(&one);
  return NP_OK;
}

const struct np_kernel np_kernel_UNIDIRECTIONAL_SEQUENCE_RNN = {
    .types = NP_FLOATS, .infer = infer_one_way, .scratch = scratch_one_way, .run = run_one_way};

/* ---- BIDIRECTIONAL_SEQUENCE_RNN ------------------------------------------------------------- */

enum { INPUT = 0, AUXILIARY = 9, FUSE = 12, TIME_MAJOR = 13, MERGE = 14 };

static const struct arguments FORWARD = {
    .input = INPUT, .weights = 1, .auxiliary = AUXILIARY, .auxiliary_weights = 10};
static const struct arguments BACKWARD = {
    .input = INPUT, .weights = 5, .auxiliary = AUXILIARY, .auxiliary_weights = 11};

/* Both directions and how they are linked: without auxiliary weights, an auxiliary input is the
 * backward one's only input (parallel linking); with them, both read both (cross-linking). */
struct two_ways {
  struct direction forward;
  struct direction backward;
  struct arguments arguments[2];
  int merges;
  uint32_t states; /* the first output of the two states, 0 for none */
};

/* Reads the auxiliary input's width; its other dimensions must be those of the input. */
static enum np_status read_auxiliary(const struct np_call *call, const struct np_sequence *wanted,
                                     size_t *width) {
  struct np_sequence found;
  NP_TRY(np_read_sequence(call, AUXILIARY, wanted->time_major, &found, width));
  if (found.steps != wanted->steps || found.batch != wanted->batch || *width == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "the auxiliary input (input %d) has %zu steps of %zu rows of %zu, wanted %zu of "
                   "%zu of 1 or more",
                   AUXILIARY, found.steps, found.batch, *width, wanted->steps, wanted->batch);
  }
  return NP_OK;
}

static enum np_status link_inputs(const struct np_call *call, struct two_ways *two) {
  two->arguments[0] = FORWARD;
  two->arguments[1] = BACKWARD;
  const int linked = np_has(call, AUXILIARY);
  const int crossed = np_has(call, FORWARD.auxiliary_weights);
  if (np_has(call, BACKWARD.auxiliary_weights) != crossed || (crossed && !linked)) {
    return np_fail(call, NP_BAD_MODEL,
                   "auxiliary weights (inputs 10 and 11) are wanted for both directions and with "
                   "an auxiliary input (input 9), or not at all");
  }
  two->backward.inputs = two->forward.inputs;
  if (!linked) {
    return NP_OK;
  }
  size_t width;
  NP_TRY(read_auxiliary(call, &two->forward.sequence, &width));
  if (crossed) {
    two->forward.auxiliary_inputs = width;
    two->backward.auxiliary_inputs = width;
  } else {
    two->arguments[1].input = AUXILIARY;
    two->backward.inputs = width;
  }
  return NP_OK;
}

static enum np_status read_two_ways(const struct np_call *call, struct two_ways *two) {
  int time_major;
  NP_TRY(np_read_bool(call, MERGE, &two->merges));
  NP_TRY(np_read_bool(call, TIME_MAJOR, &time_major));
  NP_TRY(np_read_sequence(call, INPUT, time_major, &two->forward.sequence, &two->forward.inputs));
  two->backward.sequence = two->forward.sequence;
  two->backward.backward = 1;
  NP_TRY(link_inputs(call, two));
  NP_TRY(read_sizes(call, &two->arguments[0], &two->forward));
  NP_TRY(read_sizes(call, &two->arguments[1], &two->backward));
  const uint32_t plain = two->merges ? 1 : 2;
  const uint32_t n_outputs = call->operation->n_outputs;
  if (n_outputs != plain && n_outputs != plain + 2) {
    return np_fail(call, NP_BAD_MODEL, "%u outputs, wanted %u, or %u with the states", n_outputs,
                   plain, plain + 2);
  }
  two->states = n_outputs == plain ? 0 : plain;
  return NP_OK;
}

static enum np_status find_shapes_two_ways(const struct np_call *call) {
  struct two_ways two = {0};
  NP_TRY(read_two_ways(call, &two));
  const struct np_sequence *sequence = &two.forward.sequence;
  if (two.states != 0) {
    NP_TRY(np_set_matrix(call, two.states, sequence->batch, two.forward.units));
    NP_TRY(np_set_matrix(call, two.states + 1, sequence->batch, two.backward.units));
  }
  if (two.merges) {
    return np_set_sequence(call, 0, sequence,
                           np_add_saturated(two.forward.units, two.backward.units));
  }
  NP_TRY(np_set_sequence(call, 0, sequence, two.forward.units));
  return np_set_sequence(call, 1, sequence, two.backward.units);
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
  NP_TRY(np_read_activation(call, FUSE, NP_RNN_ACTIVATIONS, &two.forward.activation));
  two.backward.activation = two.forward.activation;
  read_values(call, &two.arguments[0], &two.forward);
  read_values(call, &two.arguments[1], &two.backward);
  (void)assign_memory(&two.backward, assign_memory(&two.forward, call->scratch));
  if (two.states != 0) {
    two.forward.state = np_out(call, two.states)->room;
    two.backward.state = np_out(call, two.states + 1)->room;
  }
  two.forward.output = np_out(call, 0)->room;
  two.backward.output = np_out(call, two.merges ? 0 : 1)->room;
  two.forward.output_width = two.forward.units + (two.merges ? two.backward.units : 0);
  two.backward.output_width = two.backward.units + (two.merges ? two.forward.units : 0);
  two.backward.output_column = two.merges ? two.forward.units : 0;
  run_direction(&two.forward);
  run_direction(&two.backward);
  return NP_OK;
}

const struct np_kernel np_kernel_BIDIRECTIONAL_SEQUENCE_RNN = {
    .types = NP_FLOATS, .infer = infer_two_ways, .scratch = scratch_two_ways, .run = run_two_ways};
