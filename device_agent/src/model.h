/* A serialized NNAPI model (PROTOCOL.md, section 4) as an np_graph. */
#ifndef NP_MODEL_H
#define NP_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "np_graph.h"
#include "np_status.h"

/* A view of bytes, not owned. */
struct np_bytes {
  const uint8_t *data;
  size_t length;
};

/* A constant that is stored in a numbered buffer. */
struct np_buffer_use {
  uint32_t operand;
  uint32_t buffer;
  uint32_t offset; /* a multiple of the operand's element size */
  uint32_t length; /* the operand's bytes */
};

/* Immediate constants, channel scales, operation arguments, inputs and outputs of `graph` point
 * into the serialized bytes; constants in numbered buffers have no value before np_model_bind. */
struct np_model {
  struct np_graph graph; /* operands and operations are owned */
  struct np_buffer_use *uses;
  uint32_t n_uses;
  uint32_t n_buffers;    /* one more than the largest buffer number used */
  struct np_bytes bytes; /* the serialized model */
};

/* Reads a model from bytes[length], which must be aligned to 4 and outlive it.
 *
 * Checks every count, index and length, that values have their operands' sizes, that an operand has
 * at most one origin (input, value or operation), that outputs are written, and that channel scales
 * fit their operands. Engines check the operands of each operation. The caller frees *model with
 * np_model_free, even after a failure. NP_BAD_ARGUMENT if not aligned, NP_NO_MEMORY, or
 * NP_BAD_REQUEST with the broken rule in *why. */
enum np_status np_model_open(const void *bytes, size_t length, struct np_model *model,
                             struct np_message *why);

/* Points the constants in numbered buffers at buffers[n_buffers], which must outlive the model.
 * NP_BAD_REQUEST if a constant does not fit its buffer. */
enum np_status np_model_bind(struct np_model *model, const struct np_bytes *buffers,
                             uint32_t n_buffers, struct np_message *why);

void np_model_free(struct np_model *model);

/* The tensor that is an input or output of a segment. */
struct np_port {
  uint32_t tensor;
  uint32_t order; /* 0: the tensor has the layout of the model's operand */
};

/* Returns whether a tensor may be used for a model's operand; a dimension of 0 in the model matches
 * any, and a tensor operand of rank 0 any shape. */
int np_port_fits(int32_t type, uint32_t rank, const uint32_t *dims,
                 const struct np_operand *operand);

#endif
