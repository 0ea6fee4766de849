/* A small model of every recurrent operation, all of its optional inputs given. */
#ifndef NP_TEST_RECURRENT_H
#define NP_TEST_RECURRENT_H

#include "np_executor.h"
#include "np_test.h"

enum { OPERANDS = 72, OUTPUTS = 6, INPUTS = 3, UNITS = 4, PROJECTED = 2 };

/* A model of one operation. Tensors are constants, but for its first input and for empty ones. */
struct one {
  struct np_operand operands[OPERANDS];
  uint32_t scalars[OPERANDS];
  struct np_operation operation;
  uint32_t arguments[OPERANDS];
  uint32_t results[OUTPUTS];
  uint32_t inputs[OPERANDS];
  struct np_graph graph;
  uint32_t steps, batch;
};

static inline uint32_t add_operand(struct one *m, int32_t type, enum np_lifetime lifetime) {
  const uint32_t index = m->graph.n_operands++;
  m->operands[index] = (struct np_operand){.type = type, .lifetime = lifetime};
  if (lifetime == NP_OUTPUT) {
    m->results[m->operation.n_outputs++] = index;
  } else {
    m->arguments[m->operation.n_inputs++] = index;
  }
  return index;
}

static inline struct np_operand *add_tensor(struct one *m, int32_t type, uint32_t rank, uint32_t a,
                                            uint32_t b, uint32_t c) {
  const int first = m->operation.n_inputs == 0;
  struct np_operand *operand = &m->operands[add_operand(m, type, first ? NP_INPUT : NP_CONSTANT)];
  operand->rank = rank;
  operand->dims[0] = a;
  operand->dims[1] = b;
  operand->dims[2] = c;
  operand->scale = type == NP_TYPE_TENSOR_FLOAT32 ? 0.0f : 1.0f / 128;
  operand->zero_point = type == NP_TYPE_TENSOR_QUANT8_ASYMM ? 128 : 0;
  return operand;
}

static inline struct np_operand *add_matrix(struct one *m, int32_t type, uint32_t rows,
                                            uint32_t columns) {
  return add_tensor(m, type, 2, rows, columns, 0);
}

static inline struct np_operand *add_vector(struct one *m, int32_t type, uint32_t n) {
  return add_tensor(m, type, 1, n, 0, 0);
}

static inline void add_scalar(struct one *m, int32_t type, const void *bytes, size_t length) {
  const uint32_t index = add_operand(m, type, NP_CONSTANT);
  memcpy(&m->scalars[index], bytes, length);
  m->operands[index].value = &m->scalars[index];
  m->operands[index].length = length;
}

static inline void add_i32(struct one *m, int32_t value) {
  add_scalar(m, NP_TYPE_INT32, &value, sizeof value);
}

static inline void add_f32(struct one *m, float value) {
  add_scalar(m, NP_TYPE_FLOAT32, &value, sizeof value);
}

static inline void add_bool(struct one *m, int value) {
  const unsigned char byte = value ? 1 : 0;
  add_scalar(m, NP_TYPE_BOOL, &byte, 1);
}

/* ---- The operations ------------------------------------------------------------------------- */

static const int32_t FLOATS = NP_TYPE_TENSOR_FLOAT32;

/* From input_to_input_weights to the projection's bias; narrow types for QUANTIZED_LSTM. */
static inline void add_lstm(struct one *m, int32_t weights, int32_t peepholes, int32_t biases) {
  for (int g = 0; g < 4; g++) {
    add_matrix(m, weights, UNITS, INPUTS);
  }
  for (int g = 0; g < 4; g++) {
    add_matrix(m, weights, UNITS, PROJECTED);
  }
  for (int g = 0; g < 3; g++) {
    add_vector(m, peepholes, UNITS);
  }
  for (int g = 0; g < 4; g++) {
    add_vector(m, biases, UNITS);
  }
  add_matrix(m, weights, PROJECTED, UNITS);
  add_vector(m, biases, PROJECTED);
}

static inline void add_vectors(struct one *m, int32_t type, int n) {
  for (int i = 0; i < n; i++) {
    add_vector(m, type, UNITS);
  }
}

static inline void add_lstm_scalars(struct one *m) {
  add_i32(m, 4);
  add_f32(m, 0.5f);
  add_f32(m, 0.25f);
}

static inline void make_lstm(struct one *m) {
  add_matrix(m, FLOATS, m->batch, INPUTS);
  add_lstm(m, FLOATS, FLOATS, FLOATS);
  add_matrix(m, FLOATS, m->batch, PROJECTED);
  add_matrix(m, FLOATS, m->batch, UNITS);
  add_lstm_scalars(m);
  add_vectors(m, FLOATS, 4);
}

static inline void make_one_way_lstm(struct one *m) {
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  add_lstm(m, FLOATS, FLOATS, FLOATS);
  add_matrix(m, FLOATS, m->batch, PROJECTED);
  add_matrix(m, FLOATS, m->batch, UNITS);
  add_lstm_scalars(m);
  add_bool(m, 1);
  add_vectors(m, FLOATS, 4);
}

static inline void make_two_way_lstm(struct one *m) {
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  for (int way = 0; way < 2; way++) {
    add_lstm(m, FLOATS, FLOATS, FLOATS);
  }
  for (int way = 0; way < 2; way++) {
    add_matrix(m, FLOATS, m->batch, PROJECTED);
    add_matrix(m, FLOATS, m->batch, UNITS);
  }
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  for (int g = 0; g < 8; g++) {
    add_matrix(m, FLOATS, UNITS, INPUTS);
  }
  add_lstm_scalars(m);
  add_bool(m, 0);
  add_bool(m, 1);
  add_vectors(m, FLOATS, 8);
}

static inline void add_rnn(struct one *m) {
  add_matrix(m, FLOATS, UNITS, INPUTS);
  add_matrix(m, FLOATS, UNITS, UNITS);
  add_vector(m, FLOATS, UNITS);
  add_matrix(m, FLOATS, m->batch, UNITS);
}

static inline void make_rnn(struct one *m) {
  add_matrix(m, FLOATS, m->batch, INPUTS);
  add_rnn(m);
  add_i32(m, 1);
}

static inline void make_one_way_rnn(struct one *m) {
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  add_rnn(m);
  add_i32(m, 1);
  add_i32(m, 1);
}

static inline void make_two_way_rnn(struct one *m) {
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  add_rnn(m);
  add_rnn(m);
  add_tensor(m, FLOATS, 3, m->steps, m->batch, INPUTS);
  add_matrix(m, FLOATS, UNITS, INPUTS);
  add_matrix(m, FLOATS, UNITS, INPUTS);
  add_i32(m, 1);
  add_bool(m, 1);
  add_bool(m, 0);
}

static inline void make_svdf(struct one *m) {
  add_matrix(m, FLOATS, m->batch, INPUTS);
  add_matrix(m, FLOATS, UNITS, INPUTS);
  add_matrix(m, FLOATS, UNITS, 5);
  add_vector(m, FLOATS, UNITS / 2);
  add_matrix(m, FLOATS, m->batch, UNITS * 5);
  add_i32(m, 2);
  add_i32(m, 1);
}

static inline void make_qlstm16(struct one *m) {
  const int32_t bytes = NP_TYPE_TENSOR_QUANT8_ASYMM;
  add_matrix(m, bytes, m->batch, INPUTS);
  for (int g = 0; g < 4; g++) {
    add_matrix(m, bytes, UNITS, INPUTS);
  }
  for (int g = 0; g < 4; g++) {
    add_matrix(m, bytes, UNITS, UNITS);
  }
  for (int g = 0; g < 4; g++) {
    add_vector(m, NP_TYPE_TENSOR_INT32, UNITS)->scale = 1.0f / (128 * 128);
  }
  add_matrix(m, NP_TYPE_TENSOR_QUANT16_SYMM, m->batch, UNITS)->scale = 1.0f / 2048;
  add_matrix(m, bytes, m->batch, UNITS);
}

static inline void make_qlstm(struct one *m) {
  const int32_t words = NP_TYPE_TENSOR_QUANT16_SYMM;
  const int32_t bytes = NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
  add_matrix(m, bytes, m->batch, INPUTS);
  add_lstm(m, NP_TYPE_TENSOR_QUANT8_SYMM, words, NP_TYPE_TENSOR_INT32);
  add_matrix(m, bytes, m->batch, PROJECTED);
  add_matrix(m, words, m->batch, UNITS)->scale = 1.0f / 2048;
  add_vectors(m, words, 4);
  add_f32(m, 0.5f);
  add_f32(m, 0.25f);
  for (int g = 0; g < 4; g++) {
    add_f32(m, 1.0f / 128);
  }
  add_i32(m, -3);
  add_f32(m, 1.0f / 128);
}

static const struct {
  int32_t code;
  void (*make)(struct one *m);
  uint32_t n_outputs;
  int32_t outputs[OUTPUTS];
} OPERATIONS[] = {
    {ANEURALNETWORKS_LSTM, make_lstm, 4, {3, 3, 3, 3}},
    {ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_LSTM, make_one_way_lstm, 3, {3, 3, 3}},
    {ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_LSTM, make_two_way_lstm, 6, {3, 3, 3, 3, 3, 3}},
    {ANEURALNETWORKS_RNN, make_rnn, 2, {3, 3}},
    {ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_RNN, make_one_way_rnn, 2, {3, 3}},
    {ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_RNN, make_two_way_rnn, 4, {3, 3, 3, 3}},
    {ANEURALNETWORKS_SVDF, make_svdf, 2, {3, 3}},
    {ANEURALNETWORKS_QUANTIZED_16BIT_LSTM, make_qlstm16, 2, {7, 5}},
    {ANEURALNETWORKS_QUANTIZED_LSTM, make_qlstm, 3, {14, 7, 14}},
};
enum { N_OPERATIONS = sizeof OPERATIONS / sizeof OPERATIONS[0] };

static inline struct one *make(size_t which, uint32_t steps, uint32_t batch) {
  struct one *m = calloc(1, sizeof *m);
  if (m == NULL) {
    abort();
  }
  m->steps = steps;
  m->batch = batch;
  OPERATIONS[which].make(m);
  m->operation.code = OPERATIONS[which].code;
  for (uint32_t o = 0; o < OPERATIONS[which].n_outputs; o++) {
    const int32_t type = OPERATIONS[which].outputs[o];
    struct np_operand *output = &m->operands[add_operand(m, type, NP_OUTPUT)];
    output->scale = type == NP_TYPE_TENSOR_QUANT16_SYMM ? 1.0f / 2048 : 1.0f / 128;
    output->scale = type == FLOATS ? 0.0f : output->scale;
    output->zero_point = type == NP_TYPE_TENSOR_QUANT8_ASYMM ? 128 : 0;
  }
  m->operation.inputs = m->arguments;
  m->operation.outputs = m->results;
  m->graph.operands = m->operands;
  m->graph.operations = &m->operation;
  m->graph.n_operations = 1;
  m->graph.inputs = m->inputs;
  m->graph.outputs = m->results;
  m->graph.n_outputs = m->operation.n_outputs;
  return m;
}

#endif
