/* An input or output of a segment: which tensor it is. */
#ifndef NP_PORT_H
#define NP_PORT_H

#include <stdint.h>

#include "np_graph.h"

struct np_port {
  uint32_t tensor;
  uint32_t order; /* 0: the tensor lies as the model's operand */
};

/* Whether a tensor may stand for a model's operand; a dimension of 0 in the model is any, and so is
 * a tensor operand of rank 0. */
int np_port_fits(int32_t type, uint32_t rank, const uint32_t *dims,
                 const struct np_operand *operand);

#endif
