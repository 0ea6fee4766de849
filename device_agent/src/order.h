/* Which axis of a tensor is which of a model's operand, and copies from one layout to the other. */
#ifndef NP_ORDER_H
#define NP_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "np_graph.h"

/* An input or output of a segment. */
struct np_port {
  uint32_t tensor;
  uint32_t order; /* 0: as it lies; else np_order_axis tells which axis is which */
};

/* Axis of the tensor that is axis i < 8 of the model's operand, for an order that is not 0. */
static inline uint32_t np_order_axis(uint32_t order, uint32_t i) { return order >> 4 * i & 15; }

/* Whether an order is 0, or a permutation of 0..rank-1 that is not the identity. */
int np_order_is_valid(uint32_t order, uint32_t rank);

/* Whether a tensor may stand for a model's operand in a valid order; a dimension of 0 in the model
 * is any, and so is a tensor operand of rank 0. */
int np_order_fits(uint32_t order, int32_t type, uint32_t rank, const uint32_t *dims,
                  const struct np_operand *operand);

/* A tensor's shape as the operand has it: operand_dims[rank]. Order 0 leaves it as it is. */
void np_order_dims(uint32_t order, uint32_t rank, const uint32_t *dims, uint32_t *operand_dims);

/* Copies a tensor of the shape dims[rank] to where an operand reads it, in the operand's layout;
 * and an operand's bytes to where the tensor lies. Elements have element_bytes (1, 2 or 4), the
 * order is a permutation of 0..rank-1 and not 0. */
void np_order_to_operand(uint32_t order, uint32_t rank, const uint32_t *dims, size_t element_bytes,
                         const void *tensor, void *operand);
void np_order_from_operand(uint32_t order, uint32_t rank, const uint32_t *dims,
                           size_t element_bytes, const void *operand, void *tensor);

#endif
