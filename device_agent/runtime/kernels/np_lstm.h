/* Shared by the recurrent kernels: sequences, activations, and the step of every LSTM on floats.
 *
 *   i = logistic(norm(Wi x + Ai a + Ri h + Pi c) + bi)       1 - f where there is no input gate
 *   f = logistic(norm(Wf x + Af a + Rf h + Pf c) + bf)
 *   c' = clip(f c + i act(norm(Wc x + Ac a + Rc h) + bc))
 *   o = logistic(norm(Wo x + Ao a + Ro h + Po c') + bo)
 *   h' = clip(projection(o act(c')) + bias)
 *
 * x is the input, a the auxiliary one, h the output state, c the cell state; products with P (the
 * peepholes) are element by element; norm is the identity, or layer normalisation. */
#ifndef NP_LSTM_H
#define NP_LSTM_H

#include "kernels/np_kernel.h"

/* ---- Sequences ------------------------------------------------------------------------------ */

/* The rows of a tensor [steps, batch, width] or [batch, steps, width]. */
struct np_sequence {
  size_t steps;
  size_t batch;
  int time_major;
};

/* Return the number of elements between rows that are neighbours in the batch, or in time. */
static inline size_t np_batch_stride(const struct np_sequence *sequence, size_t width) {
  return sequence->time_major ? width : sequence->steps * width;
}

static inline size_t np_time_stride(const struct np_sequence *sequence, size_t width) {
  return sequence->time_major ? sequence->batch * width : width;
}

/* ---- Shapes and values ---------------------------------------------------------------------- */

/* Check that an input has this shape: NP_BAD_MODEL and a sentence if not, NP_MISSING if its shape
 * is not known yet. An omitted input passes. */
enum np_status np_require_vector(const struct np_call *call, uint32_t input, size_t n);
enum np_status np_require_matrix(const struct np_call *call, uint32_t input, size_t rows,
                                 size_t columns);

/* Set the shape of an output to [rows, columns], or to that of a sequence of rows. */
enum np_status np_set_matrix(const struct np_call *call, uint32_t output, size_t rows,
                             size_t columns);
enum np_status np_set_sequence(const struct np_call *call, uint32_t output,
                               const struct np_sequence *sequence, size_t width);

/* Reads the rows and columns of an input; NP_BAD_MODEL if it is omitted or not a matrix, NP_MISSING
 * if its shape is not known yet. */
enum np_status np_read_matrix(const struct np_call *call, uint32_t input, size_t *rows,
                              size_t *columns);

/* Reads steps, batch and width of an input of rank 3. */
enum np_status np_read_sequence(const struct np_call *call, uint32_t input, int time_major,
                                struct np_sequence *sequence, size_t *width);

/* Converts the status of infer: NP_MISSING instead of NP_BAD_MODEL while an optional input has no
 * values yet, since a run may omit it, and the shapes may fit then. */
enum np_status np_allow_omitted(const struct np_call *call, enum np_status status);

/* Returns the values of a float input, NULL if it is omitted. */
const float *np_floats(const struct np_call *call, uint32_t input);

/* ---- Arithmetic ----------------------------------------------------------------------------- */

/* Activations: fuse codes, and two more that the recurrent operations have. */
enum { NP_ACTIVATION_TANH = 4, NP_ACTIVATION_SIGMOID = 6 };
#define NP_LSTM_ACTIVATIONS 0x5bu /* a bit each: none, relu, relu6, tanh and sigmoid */
#define NP_RNN_ACTIVATIONS 0x5fu  /* and relu1 */

/* Reads the code of one of the `allowed` activations: NP_BAD_MODEL for others, NP_MISSING if the
 * value is not known yet. */
enum np_status np_read_activation(const struct np_call *call, uint32_t input, uint32_t allowed,
                                  int32_t *activation);

/* Applies one of these activations to a number. */
float np_activate(int32_t activation, float value);

/* Returns the inner product of two vectors. */
float np_dot(const float *a, const float *b, size_t n);

/* out[i] += row i of weights[rows, columns] times vector. */
void np_add_product(const float *weights, const float *vector, size_t rows, size_t columns,
                    float *out);

/* ---- LSTM ----------------------------------------------------------------------------------- */

enum np_gate { NP_GATE_INPUT, NP_GATE_FORGET, NP_GATE_CELL, NP_GATE_OUTPUT, NP_GATES };

/* The tensors of a gate; NULL for omitted ones. */
struct np_lstm_gate {
  const float *input;     /* [units, inputs]; NULL in the input gate: there is no input gate */
  const float *auxiliary; /* [units, auxiliary_inputs] */
  const float *recurrent; /* [units, outputs] */
  const float *peephole;  /* [units] */
  const float *bias;      /* [units] */
  const float *norm;      /* [units] */
};

struct np_lstm {
  size_t inputs, auxiliary_inputs, units, outputs;
  struct np_lstm_gate gates[NP_GATES];
  const float *projection;      /* [outputs, units] */
  const float *projection_bias; /* [outputs] */
  int32_t activation;
  float cell_clip, projection_clip; /* 0 for none */
};

/* Indices of the inputs of one LSTM in an operation; inputs not named here follow `weights`, in the
 * same order in every operation. UINT32_MAX: the operation has none. */
struct np_lstm_arguments {
  uint32_t input;
  uint32_t auxiliary;
  uint32_t auxiliary_weights; /* the first of four */
  uint32_t weights;           /* input_to_input_weights */
  uint32_t norm;              /* the first of four layer_norm_weights */
  uint32_t state;             /* output_state_in */
  uint32_t cell;              /* cell_state_in */
  uint32_t scalars;           /* activation, cell_clip, proj_clip */
};

/* Reads the sizes of an LSTM whose input and auxiliary input have these widths (0: no auxiliary
 * one), and checks all its shapes against each other. NP_MISSING if one is not known yet. */
enum np_status np_lstm_read_sizes(const struct np_call *call,
                                  const struct np_lstm_arguments *arguments, size_t batch,
                                  size_t inputs, size_t auxiliary_inputs, struct np_lstm *lstm);

/* Reads an LSTM's activation and clips. NP_MISSING if one is not known yet. */
enum np_status np_lstm_read_scalars(const struct np_call *call,
                                    const struct np_lstm_arguments *arguments,
                                    struct np_lstm *lstm);

/* Reads an LSTM's weights, which must be known. */
void np_lstm_read_weights(const struct np_call *call, const struct np_lstm_arguments *arguments,
                          struct np_lstm *lstm);

static inline int np_lstm_has_input_gate(const struct np_lstm *lstm) {
  return lstm->gates[NP_GATE_INPUT].input != NULL;
}

/* Rows of a batch as a step reads or writes them: row b starts at data + b * stride. */
struct np_rows {
  const float *data;
  size_t stride;
};

struct np_rows_out {
  float *data;
  size_t stride;
};

/* Computes one step of a batch. Reads and replaces state[batch, outputs] and cell[batch, units],
 * and writes the state to `output` as well. `gates` is working memory of np_lstm_gate_floats; its
 * contents afterwards are those that the reference leaves in LSTM's scratch buffer. auxiliary.data
 * is NULL if there is no auxiliary input. */
void np_lstm_step(const struct np_lstm *lstm, size_t batch, struct np_rows input,
                  struct np_rows auxiliary, float *state, float *cell, float *gates,
                  struct np_rows_out output);

/* Returns units * batch * 4, enough for every LSTM; SIZE_MAX on overflow. */
static inline size_t np_lstm_gate_floats(const struct np_lstm *lstm, size_t batch) {
  return np_mul_saturated(np_mul_saturated(lstm->units, batch), NP_GATES);
}

#endif
