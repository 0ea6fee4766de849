/* An NNAPI model as data: the agent reads it from a request, the emulator builds it through the C
 * API, and the kernels check and run it. No function here allocates. */
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
  uint32_t dims[NP_MAX_RANK]; /* 0: unknown until shapes are inferred */
  float scale;
  int32_t zero_point;
  enum np_lifetime lifetime;
  const void *value;           /* NP_CONSTANT only; not owned; for NP_TYPE_MODEL a struct
                                  np_graph */
  size_t length;               /* bytes at value; 0 for NP_TYPE_MODEL */
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

/* Operations that models use but NNAPI lacks have codes of our own from here on. */
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

/* Returns the bytes of one element of an operand type, 0 for an unknown type. */
size_t np_type_bytes(int32_t type);

/* Returns whether a type is a tensor's (as opposed to a scalar's). */
int np_type_is_tensor(int32_t type);

/* Returns the number of elements of an operand (1 for a scalar), 0 if a dimension is unknown or
 * zero, SIZE_MAX on overflow. */
size_t np_operand_elements(const struct np_operand *operand);

/* Returns the bytes of an operand, 0 if a dimension is unknown or zero, SIZE_MAX on overflow. */
size_t np_operand_bytes(const struct np_operand *operand);

/* Returns the name of an NNAPI operation, "UNKNOWN" for other codes. */
const char *np_operation_name(int32_t code);

/* Returns the code of an NNAPI operation by name, -1 for an unknown name. */
int32_t np_operation_code(const char *name);

/* Returns the number (1, 2, ...) of the feature level that introduced an operation, 0 for none. */
int np_operation_level(int32_t code);

#endif
