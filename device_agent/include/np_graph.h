/* An NNAPI model as data: what the agent reads from a request, what the emulator builds through
 * the C API, and what the kernels check and run. No function here allocates. */
#ifndef NP_GRAPH_H
#define NP_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "np_nnapi.h"

#define NP_MAX_RANK 8u

enum np_lifetime {
  NP_TEMPORARY = 0, /* written by one operation, read by others */
  NP_INPUT,
  NP_OUTPUT,
  NP_CONSTANT,
  NP_NO_VALUE, /* an optional operand left out */
};

struct np_operand {
  int32_t type; /* NP_TYPE_* */
  uint32_t rank;
  uint32_t dims[NP_MAX_RANK]; /* 0 is unknown, until shapes are inferred */
  float scale;
  int32_t zero_point;
  enum np_lifetime lifetime;
  const void *value;           /* NP_CONSTANT only; not owned; of NP_TYPE_MODEL a struct np_graph */
  size_t length;               /* bytes at value; 0 of NP_TYPE_MODEL */
  const float *channel_scales; /* [dims[channel_dim]] of TENSOR_QUANT8_SYMM_PER_CHANNEL, else NULL;
                                  not owned */
  uint32_t channel_dim;
};

struct np_operation {
  int32_t code; /* ANEURALNETWORKS_*, or one of ours from NP_FIRST_OWN_CODE */
  uint32_t n_inputs;
  uint32_t n_outputs;
  const uint32_t *inputs; /* [n_inputs] operand indices; not owned */
  const uint32_t *outputs;
};

/* Operations that models use and NNAPI cannot say have codes of our own from here on. */
#define NP_FIRST_OWN_CODE 0x10000

struct np_graph {
  struct np_operand *operands; /* [n_operands] */
  uint32_t n_operands;
  struct np_operation *operations; /* [n_operations], in any order; validated graphs are sorted */
  uint32_t n_operations;
  const uint32_t *inputs; /* [n_inputs] operand indices */
  uint32_t n_inputs;
  const uint32_t *outputs;
  uint32_t n_outputs;
};

/* Bytes of one element of an operand type, 0 for an unknown one. */
size_t np_type_bytes(int32_t type);

/* Whether the type is a tensor's (as opposed to a scalar's). */
int np_type_is_tensor(int32_t type);

/* Elements of an operand (1 for a scalar), 0 where a dimension is unknown or zero, SIZE_MAX on
 * overflow. */
size_t np_operand_elements(const struct np_operand *operand);

/* Bytes of an operand, 0 where a dimension is unknown or zero, SIZE_MAX on overflow. */
size_t np_operand_bytes(const struct np_operand *operand);

/* Name of an NNAPI operation, "UNKNOWN" for others. */
const char *np_operation_name(int32_t code);

/* Code of an NNAPI operation by name, -1 for none. */
int32_t np_operation_code(const char *name);

/* Feature level number (1, 2, ...) that introduced an NNAPI operation, 0 for none. */
int np_operation_level(int32_t code);

#endif
